"""Debug files from debuginfod servers, by elfutils' protocol and in its cache, so that both share what they fetch.

    GET SERVER/buildid/BUILD_ID/debuginfo
    CACHE/BUILD_ID/debuginfo    the file; empty: no server had it lately

No server is trusted. What it sends is bounded in size and time, and kept when it is an ELF file of the build-id that
was asked for; the core looks it over once more before it reads it. Whoever hangs is left behind: the threads that fetch
end with the process.
"""

from __future__ import annotations

import os
import pwd
import re
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Final
from urllib.error import HTTPError
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    UnknownHandler,
)

from stackhound import _native
from stackhound.errors import UsageError
from stackhound.profile.units import format_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from http.client import HTTPResponse

#: Where distributions name their servers, for shells to put them into DEBUGINFOD_URLS.
SERVER_LISTS: Final = Path("/etc/debuginfod")
NO_SERVER: Final = "set DEBUGINFOD_URLS, for example to https://debuginfod.elfutils.org; with sudo -E"

#: Of one file: Debian's largest but browsers and compilers have less. elfutils' variables change both.
MAX_FILE_BYTES: Final = 512 << 20
MAX_FILE_S: Final = 20.0

#: As in elfutils: how long a miss is believed, and how long a file is kept that nobody reads.
MISS_S: Final = 600
UNUSED_S: Final = 7 * 24 * 3600

#: A directory of the cache. Linkers make 8 bytes and more.
BUILD_ID: Final = re.compile(r"(?:[0-9a-f]{2}){8,}")

#: Files at a time: servers of distributions take seconds to begin with one that they have to unpack.
THREADS: Final = 4
CHUNK_BYTES: Final = 64 << 10
#: Between two looks at whether somebody has lost patience.
LOOK_S: Final = 0.1

FETCHED: Final = "fetched"
#: Why there is no file, in the order in which it is told.
UNKNOWN: Final = "unknown to the servers"
TOO_LARGE: Final = "too large"
TOO_SLOW: Final = "not there in time"
FAILED: Final = "not given"
WRONG: Final = "not what was asked for"
UNKEPT: Final = "not kept: the cache cannot be written"
REASONS: Final = (UNKNOWN, TOO_LARGE, TOO_SLOW, FAILED, WRONG, UNKEPT)


@dataclass(frozen=True)
class Limits:
    """How long fetching may take and how much it may fetch: all of it, and each file."""

    time_s: float
    size_bytes: int
    file_s: float
    file_bytes: int

    @classmethod
    def of_environment(cls, time_s: float, size_bytes: int) -> Limits:
        """Those of all files as given, those of each as elfutils' variables have them.

        Raises:
            UsageError: a variable is no number.
        """
        file_s = _number("DEBUGINFOD_MAXTIME") or MAX_FILE_S
        file_bytes = _number("DEBUGINFOD_MAXSIZE") or MAX_FILE_BYTES
        return cls(time_s, size_bytes, min(file_s, time_s), min(file_bytes, size_bytes))


@dataclass
class Report:
    """What became of the files that were asked for."""

    asked: int
    outcomes: Counter[str] = field(default_factory=Counter)
    received_bytes: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        """One line: ``debuginfod: 3 of 5 debug files in 1.2 s (12 MB); 2 unknown to the servers``."""
        fetched = f"{self.outcomes[FETCHED]:,} of {self.asked:,} debug files in {self.seconds:.1f} s"
        size = f" ({format_value(self.received_bytes, 'bytes')})" if self.received_bytes else ""
        missed = [f"{self.outcomes[reason]:,} {reason}" for reason in REASONS if self.outcomes[reason]]
        return f"debuginfod: {fetched}{size}{'; ' if missed else ''}{', '.join(missed)}"


def find_servers() -> tuple[str, ...]:
    """The servers of DEBUGINFOD_URLS, or of the distribution where that is not set (sudo drops it).

    Raises:
        UsageError: there are none, or one is not reached by HTTP.
    """
    named = os.environ.get("DEBUGINFOD_URLS")
    servers = named.split() if named is not None else _listed_servers()
    if not servers:
        raise UsageError("no debuginfod server is known", NO_SERVER)
    for server in servers:
        if not server.startswith(("http://", "https://")):
            raise UsageError(f"the debuginfod server {server!r} is no HTTP address", NO_SERVER)
    return tuple(server.rstrip("/") for server in servers)


def _listed_servers() -> list[str]:
    return [server for path in sorted(SERVER_LISTS.glob("*.urls")) for server in path.read_text().split()]


def find_cache() -> Path:
    """The directory that elfutils would use, unless it is somebody else's, as the home of sudo's caller is."""
    named = os.environ.get("DEBUGINFOD_CACHE_PATH")
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(os.environ.get("HOME", ""))
    if _is_ours(Path(cache)):
        return Path(cache, "debuginfod_client")
    if not _is_ours(home):
        home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    return home / ".cache" / "debuginfod_client"


def _is_ours(directory: Path) -> bool:
    with suppress(OSError):
        return directory.is_absolute() and directory.stat().st_uid == os.geteuid()
    return False


def _number(variable: str) -> int:
    """A variable of the environment; 0 where it is not set."""
    value = os.environ.get(variable, "0")
    if not (value.isascii() and value.isdecimal()):
        raise UsageError(f"{variable} is {value!r}", "make it a number, or unset it")
    return int(value)


class Debuginfod:
    """One round of fetching."""

    def __init__(self, servers: Sequence[str], cache: Path, limits: Limits) -> None:
        self._servers = servers
        self._cache = cache
        self._limits = limits
        self._opener = _http_opener()
        self._unreachable: set[str] = set()
        self._lock = threading.Lock()
        self._received_bytes = 0
        self._deadline_s = 0.0

    def fetch(self, build_ids: Sequence[str]) -> Report:
        """Put what can be had into the cache, the first first. A Ctrl-C that is held back ends it, too."""
        began_s = time.monotonic()
        self._deadline_s = began_s + self._limits.time_s
        report = Report(len(build_ids))
        discard_unused(self._cache)
        wanted: SimpleQueue[str] = SimpleQueue()
        outcomes: SimpleQueue[str] = SimpleQueue()
        for build_id in build_ids:
            wanted.put(build_id)
        for _ in range(min(THREADS, len(build_ids))):
            threading.Thread(target=self._work, args=(wanted, outcomes), daemon=True).start()
        while report.outcomes.total() < len(build_ids) and time.monotonic() < self._deadline_s and not _is_impatient():
            with suppress(Empty):
                report.outcomes[outcomes.get(timeout=LOOK_S)] += 1
        self._deadline_s = 0.0  # whoever is still at it stops
        report.outcomes[TOO_SLOW] += len(build_ids) - report.outcomes.total()
        report.received_bytes = self._received_bytes
        report.seconds = time.monotonic() - began_s
        return report

    def _work(self, wanted: SimpleQueue[str], outcomes: SimpleQueue[str]) -> None:
        while time.monotonic() < self._deadline_s:
            try:
                build_id = wanted.get_nowait()
            except Empty:
                return
            try:
                outcomes.put(self._fetch_one(build_id))
            except OSError:  # of the cache: those of servers are outcomes
                outcomes.put(UNKEPT)

    def _fetch_one(self, build_id: str) -> str:
        kept = self._cache / build_id / "debuginfo"
        if _is_miss(kept):
            return UNKNOWN
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        reasons = set()
        for server in self._servers:
            reason = self._ask(server, build_id, kept)
            if reason == FETCHED:
                return FETCHED
            reasons.add(reason)
        if reasons == {UNKNOWN}:
            kept.write_bytes(b"")
        return next(reason for reason in reversed(REASONS) if reason in reasons)

    def _ask(self, server: str, build_id: str, kept: Path) -> str:
        until_s = min(self._deadline_s, time.monotonic() + self._limits.file_s)
        left_s = until_s - time.monotonic()
        if left_s <= 0 or server in self._unreachable:
            return FAILED if server in self._unreachable else TOO_SLOW
        request = Request(f"{server}/buildid/{build_id}/debuginfo", headers={"User-Agent": "stackhound"})  # noqa: S310
        try:
            response = self._opener.open(request, timeout=left_s)
        except HTTPError as error:
            error.close()
            return UNKNOWN if error.code == 404 else FAILED
        except (OSError, HTTPException, ValueError):
            self._unreachable.add(server)  # not to wait for it once more
            return TOO_SLOW if time.monotonic() >= until_s else FAILED
        with response:
            return self._keep(response, build_id, kept, until_s)

    def _keep(self, response: HTTPResponse, build_id: str, kept: Path, until_s: float) -> str:
        """Write what the server sends beside the place where it is kept, and move it there when it is right."""
        with NamedTemporaryFile(dir=kept.parent, prefix="debuginfo.", delete=False) as file:
            fresh = Path(file.name)
            try:
                reason = self._receive(response, file.write, until_s)
                file.flush()
                if reason == FETCHED and _native.build_id(str(fresh)) != build_id:
                    reason = WRONG
                if reason == FETCHED:
                    fresh.replace(kept)
            finally:
                fresh.unlink(missing_ok=True)
        return reason

    def _receive(self, response: HTTPResponse, write: Callable[[bytes], object], until_s: float) -> str:
        stated = response.headers.get("Content-Length", "")
        if stated.isdecimal() and int(stated[:20]) > self._limits.file_bytes:
            return TOO_LARGE
        file_bytes = 0
        while True:
            try:
                chunk = response.read1(CHUNK_BYTES)
            except (OSError, HTTPException):
                return TOO_SLOW if time.monotonic() >= until_s else FAILED
            if not chunk:
                return FETCHED
            file_bytes += len(chunk)
            if time.monotonic() > min(until_s, self._deadline_s):
                return TOO_SLOW
            if file_bytes > self._limits.file_bytes or not self._take(len(chunk)):
                return TOO_LARGE
            write(chunk)

    def _take(self, size_bytes: int) -> bool:
        """Take so much of what all files may have together."""
        with self._lock:
            self._received_bytes += size_bytes
            return self._received_bytes <= self._limits.size_bytes


def discard_unused(cache: Path) -> None:
    """Remove what nobody has read for a week, as elfutils does. What cannot be removed stays."""
    oldest_s = time.time() - UNUSED_S
    for path in cache.glob("*/debuginfo*"):
        if BUILD_ID.fullmatch(path.parent.name):
            with suppress(OSError):  # somebody else's, or somebody else does the same now, or there is more beside it
                status = path.lstat()
                if max(status.st_atime, status.st_mtime) < oldest_s:
                    path.unlink()
                    path.parent.rmdir()


def _is_miss(kept: Path) -> bool:
    """Whether the servers were asked a moment ago, and had nothing."""
    try:
        status = kept.stat()
    except FileNotFoundError:
        return False
    return status.st_size == 0 and time.time() - status.st_mtime < MISS_S


def _is_impatient() -> bool:
    """Whether a signal that would end us waits to be let through."""
    return bool(signal.sigpending() & {signal.SIGINT, signal.SIGTERM})


def _http_opener() -> OpenerDirector:
    """What opens URLs, without files, FTP and all the rest that a redirection could lead to."""
    opener = OpenerDirector()
    for handler in (
        ProxyHandler(),
        HTTPHandler(),
        HTTPSHandler(),
        HTTPRedirectHandler(),
        HTTPErrorProcessor(),
        HTTPDefaultErrorHandler(),
        UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener
