"""Debug files from a real debuginfod server: elfutils' own, on the loopback interface."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from support_profiles import count, misses, samples_of
from support_recordings import record_some, run_stackhound, wait_for
from support_workloads import FOR_EVER, Program, build, require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound import Profile

pytestmark = pytest.mark.ebpf

SAMPLES = 100


class Stripped:
    """A program of which the server alone has the symbols."""

    def __init__(self, directory: Path) -> None:
        whole = build("busy.c", "-Wl,--build-id=sha1")
        self.program = directory / "busy"
        self.debug = directory / "served" / "busy.debug"
        self.debug.parent.mkdir()
        subprocess.run((require("objcopy"), "--only-keep-debug", whole, self.debug), check=True)
        subprocess.run(("objcopy", "--strip-all", whole, self.program), check=True)
        notes = subprocess.run(("readelf", "--notes", whole), check=True, capture_output=True, text=True).stdout
        self.build_id = notes.partition("Build ID: ")[2].split()[0]


@pytest.fixture
def stripped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stripped:
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "cache"))
    for variable in ("DEBUGINFOD_MAXTIME", "DEBUGINFOD_MAXSIZE", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    return Stripped(tmp_path)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def serving(directory: Path, build_id: str) -> Iterator[str]:
    """elfutils' server with the files in a directory, once it knows them."""
    server = require("debuginfod")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DEBUGINFOD")}
    command = (server, "-d", ":memory:", "-p", str(port), "-F", directory)
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet) as process:
        try:
            wait_for(lambda: has(url, build_id), "the server to have read its files")
            yield url
        finally:
            process.terminate()


def has(url: str, build_id: str) -> bool:
    try:
        with urlopen(f"{url}/buildid/{build_id}/debuginfo") as answer:
            return bool(answer.status == 200)
    except (URLError, ConnectionError):
        return False


def recorded(stripped: Stripped, **options: object) -> Profile:
    with Program(stripped.program, FOR_EVER) as program:
        return record_some(SAMPLES, program, frequency_hz=999, debuginfod=True, **options)


def note_of(profile: Profile) -> str:
    (note,) = (note for note in profile.metadata["notes"] if note.startswith("debuginfod: "))
    return note


def test_names_and_lines_come_from_the_server(stripped: Stripped, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(stripped.debug.parent, stripped.build_id) as url:
        monkeypatch.setenv("DEBUGINFOD_URLS", url)
        profile = recorded(stripped)
    samples = samples_of(profile)
    assert count(samples, "churn") >= 0.9 * count(samples), misses(samples)
    own = {(frame.name, Path(frame.file).name) for sample in samples for frame in sample.frames if frame.inlined}
    assert own >= {("mix", "busy.c"), ("stir", "busy.c")}
    assert " 1 of " in note_of(profile)


def test_what_was_fetched_once_is_there_without_the_server(
    stripped: Stripped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And elfutils' own client finds it, too."""
    with serving(stripped.debug.parent, stripped.build_id) as url:
        monkeypatch.setenv("DEBUGINFOD_URLS", url)
        recorded(stripped)
    samples = samples_of(recorded(stripped))
    assert count(samples, "churn") >= 0.9 * count(samples), misses(samples)
    find = (require("debuginfod-find"), "debuginfo", stripped.build_id)
    found = subprocess.run(find, check=True, capture_output=True, text=True).stdout.strip()
    assert found == str(tmp_path / "cache" / stripped.build_id / "debuginfo")


def test_what_elfutils_has_fetched_is_not_fetched_again(stripped: Stripped, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(stripped.debug.parent, stripped.build_id) as url:
        monkeypatch.setenv("DEBUGINFOD_URLS", url)
        find = (require("debuginfod-find"), "debuginfo", stripped.build_id)
        subprocess.run(find, check=True, capture_output=True)
    monkeypatch.setenv("DEBUGINFOD_URLS", f"http://127.0.0.1:{free_port()}")
    samples = samples_of(recorded(stripped))
    assert count(samples, "churn") >= 0.9 * count(samples), misses(samples)


def test_without_the_option_no_server_is_asked(stripped: Stripped, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, Program(stripped.program, FOR_EVER) as program:
        monkeypatch.setenv("DEBUGINFOD_URLS", f"http://127.0.0.1:{server.getsockname()[1]}")
        samples = samples_of(record_some(SAMPLES, program, frequency_hz=999))
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert not count(samples, "churn")


def test_a_server_that_never_answers_delays_the_end_no_longer_than_it_may(
    stripped: Stripped, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # the kernel accepts for it, and that is all
        monkeypatch.setenv("DEBUGINFOD_URLS", f"http://127.0.0.1:{server.getsockname()[1]}")
        profile = recorded(stripped, debuginfod_time_s=0.5)
    assert "not there in time" in note_of(profile)
    assert not count(samples_of(profile), "churn")


def test_the_command_line_says_in_one_line_what_became_of_it(
    stripped: Stripped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEBUGINFOD_URLS", f"http://127.0.0.1:{free_port()}")
    output = tmp_path / "a.folded"
    work = f"echo go | {stripped.program} 200"
    done = run_stackhound("record", "--debuginfod", "-F", "999", "-o", output, "--", "sh", "-c", work)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stderr.decode().splitlines() if line.startswith("note: debuginfod: "))
    assert "not given" in line
    assert output.read_text()
