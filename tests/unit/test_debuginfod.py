"""Fetching debug files: what servers give is kept, what they should not give is not, and nobody waits for long."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stackhound import _native
from stackhound.errors import UsageError
from stackhound.recording import debuginfod
from stackhound.recording.debuginfod import Debuginfod, Limits, Report, discard_unused, find_cache, find_servers

#: Long enough for whatever should be there; no test waits so long.
PATIENT = Limits(time_s=60, size_bytes=1 << 30, file_s=60, file_bytes=1 << 30)
VARIABLES = (
    *("DEBUGINFOD_URLS", "DEBUGINFOD_CACHE_PATH", "DEBUGINFOD_MAXTIME", "DEBUGINFOD_MAXSIZE", "XDG_CACHE_HOME"),
    *("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"),
)


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path):
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(debuginfod, "SERVER_LISTS", tmp_path / "lists")


@pytest.fixture(scope="session")
def elf():
    """(build-id, contents) of an ELF file."""
    path = Path("/proc/self/exe").resolve()
    found = _native.build_id(str(path))
    if not found:
        pytest.skip("needs a Python with a build-id")
    return found, path.read_bytes()


class Server:
    """A server that answers as the test says: ``answer(handler)`` for each request."""

    def __init__(self, answer):
        outer = self
        self.asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append(self.path)
                answer(self)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.socket.close()


def send(handler, contents, stated_bytes=None):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(contents) if stated_bytes is None else stated_bytes))
    handler.end_headers()
    handler.wfile.write(contents)


def fetch(cache, build_ids, *servers, limits=PATIENT):
    return Debuginfod(servers, cache, limits).fetch(build_ids)


def files_in(cache):
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file())


def test_a_file_is_kept_where_elfutils_looks_for_it(elf, tmp_path):
    build_id, contents = elf
    with Server(lambda handler: send(handler, contents)) as server:
        report = fetch(tmp_path, [build_id], server.url)
    assert report.outcomes == Counter({"fetched": 1, "not there in time": 0})
    assert server.asked == [f"/buildid/{build_id}/debuginfo"]
    assert files_in(tmp_path) == [f"{build_id}/debuginfo"]
    assert (tmp_path / build_id / "debuginfo").read_bytes() == contents
    assert re.fullmatch(r"debuginfod: 1 of 1 debug files in \d+\.\d s \([\d.]+ [KM]iB\)", str(report))


def test_the_second_server_is_asked_for_what_the_first_does_not_have(elf, tmp_path):
    build_id, contents = elf
    with (
        Server(lambda handler: handler.send_error(404)) as first,
        Server(lambda handler: send(handler, contents)) as second,
    ):
        report = fetch(tmp_path, [build_id], first.url, second.url)
    assert report.outcomes["fetched"] == 1
    assert first.asked == second.asked


def test_a_file_that_no_server_has_is_not_asked_for_again_soon(tmp_path):
    with Server(lambda handler: handler.send_error(404)) as server:
        first, second = (fetch(tmp_path, ["ab" * 20], server.url) for _ in range(2))
        assert len(server.asked) == 1
        an_hour_ago = time.time() - 3600
        os.utime(tmp_path / ("ab" * 20) / "debuginfo", (an_hour_ago, an_hour_ago))
        fetch(tmp_path, ["ab" * 20], server.url)
    assert len(server.asked) == 2
    assert first.outcomes["unknown to the servers"] == second.outcomes["unknown to the servers"] == 1
    assert "0 of 1 debug files" in str(first)


def wrong_build_id(contents, build_id):
    return contents.replace(bytes.fromhex(build_id), bytes(len(build_id) // 2))


@pytest.mark.parametrize(
    "lie",
    [
        lambda *_: b"<html>sign in</html>",
        lambda contents, _: contents[: len(contents) // 2],
        lambda *_: b"",
        wrong_build_id,
    ],
    ids=["a page", "a half", "nothing", "another file"],
)
def test_what_was_not_asked_for_is_not_kept(lie, elf, tmp_path):
    build_id, contents = elf
    with Server(lambda handler: send(handler, lie(contents, build_id))) as server:
        report = fetch(tmp_path, [build_id], server.url)
    assert report.outcomes["not what was asked for"] == 1
    assert files_in(tmp_path) == []


def send_for_ever(handler):
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(bytes(1 << 16))
    except OSError:
        pass  # the client had enough


@pytest.mark.parametrize(
    "answer", [send_for_ever, lambda handler: send(handler, b"x", 1 << 40)], ids=["endless", "so it says"]
)
def test_a_file_larger_than_the_limit_is_given_up(answer, tmp_path):
    limits = Limits(time_s=60, size_bytes=1 << 30, file_s=60, file_bytes=1 << 20)
    with Server(answer) as server:
        report = fetch(tmp_path, ["ab" * 20], server.url, limits=limits)
    assert report.outcomes["too large"] == 1
    assert report.received_bytes <= (1 << 20) + (1 << 16)
    assert files_in(tmp_path) == []


def test_all_files_together_are_no_larger_than_the_limit(elf, tmp_path):
    build_id, contents = elf
    limits = Limits(time_s=60, size_bytes=len(contents) * 3 // 2, file_s=60, file_bytes=1 << 30)
    with Server(lambda handler: send(handler, contents)) as server:
        first = Debuginfod([server.url], tmp_path, limits)
        first.fetch([build_id])
        report = first.fetch([build_id])
    assert report.outcomes["too large"] == 1


def drip(handler):
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b".")
            time.sleep(0.02)
    except OSError:
        pass


def say_nothing(handler):
    handler.rfile.read(1)  # until the client goes away


@pytest.mark.parametrize("answer", [drip, say_nothing], ids=["dripping", "silent"])
def test_a_slow_server_is_left_behind(answer, tmp_path):
    limits = Limits(time_s=0.3, size_bytes=1 << 30, file_s=60, file_bytes=1 << 30)
    with Server(answer) as server:
        report = fetch(tmp_path, ["ab" * 20, "cd" * 20], server.url, limits=limits)
    assert report.outcomes == Counter({"not there in time": 2})


def test_a_slow_file_does_not_use_up_the_time_of_the_others(elf, tmp_path):
    build_id, contents = elf
    limits = Limits(time_s=60, size_bytes=1 << 30, file_s=0.3, file_bytes=1 << 30)
    slow = [f"{number:040x}" for number in range(8)]
    with Server(lambda handler: send(handler, contents) if build_id in handler.path else drip(handler)) as server:
        report = fetch(tmp_path, [*slow, build_id], server.url, limits=limits)
    assert report.outcomes == Counter({"not there in time": 8, "fetched": 1})


def test_a_server_that_is_not_there_is_asked_once(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = Debuginfod([f"http://127.0.0.1:{port}"], tmp_path, PATIENT)
    report = client.fetch([f"{number:040x}" for number in range(20)])
    assert report.outcomes["not given"] == 20
    assert str(report).startswith("debuginfod: 0 of 20 debug files in ")
    assert str(report).endswith("; 20 not given")


@pytest.mark.parametrize(
    "answer", [b"", b"\0" * 100, b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 500]
)
def test_nonsense_from_a_server_is_one_more_reason(answer, tmp_path):
    def answer_with_nonsense(handler):
        handler.wfile.write(answer)
        handler.close_connection = True

    with Server(answer_with_nonsense) as server:
        report = fetch(tmp_path, ["ab" * 20], server.url)
    assert report.outcomes["not given"] == 1


def test_a_redirection_leads_to_no_file_of_this_machine(elf, tmp_path):
    build_id, _ = elf
    path = Path("/proc/self/exe").resolve()

    def redirect(handler):
        handler.send_response(302)
        handler.send_header("Location", f"file://{path}")
        handler.end_headers()

    with Server(redirect) as server:
        report = fetch(tmp_path, [build_id], server.url)
    assert report.outcomes["not given"] == 1
    assert files_in(tmp_path) == []


def test_an_impatient_ctrl_c_goes_on_without_the_rest(tmp_path):
    """On the command line signals are held back while a recording ends."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with Server(drip) as server:
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            report = fetch(tmp_path, ["ab" * 20], server.url)
        assert report.outcomes["not there in time"] == 1
    finally:
        signal.sigtimedwait({signal.SIGINT}, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_cache_that_cannot_be_written_is_a_reason(elf, tmp_path):
    build_id, contents = elf
    (tmp_path / "cache").write_text("a file")
    with Server(lambda handler: send(handler, contents)) as server:
        report = fetch(tmp_path / "cache", [build_id], server.url)
    assert str(report).endswith("1 not kept: the cache cannot be written")


def test_what_nobody_has_read_for_a_week_is_removed_and_nothing_else(tmp_path):
    old, read, other = (name * 20 for name in ("aa", "bb", "cc"))
    for name, days in (
        (f"{old}/debuginfo", 8),
        (f"{read}/debuginfo", 6),
        (f"{other}/source", 8),
        ("cafe/debuginfo", 8),
    ):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_bytes(b"x")
        past = time.time() - days * 24 * 3600
        os.utime(path, (past, past))
    discard_unused(tmp_path)
    assert files_in(tmp_path) == sorted([f"{read}/debuginfo", f"{other}/source", "cafe/debuginfo"])
    assert not (tmp_path / old).exists()


# Where to ask, and where to keep


def test_servers_are_those_of_the_environment(monkeypatch):
    monkeypatch.setenv("DEBUGINFOD_URLS", "https://one.example/ http://two.example:8002/sub")
    assert find_servers() == ("https://one.example", "http://two.example:8002/sub")


def test_without_the_environment_servers_are_those_of_the_distribution(tmp_path):
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "b.urls").write_text("https://b.example\n")
    (tmp_path / "lists" / "a.urls").write_text("https://a.example\n")
    assert find_servers() == ("https://a.example", "https://b.example")


@pytest.mark.parametrize("urls", ["", "file:///usr/lib/debug", "https://a.example ftp://b.example", "debuginfod"])
def test_no_server_or_no_http_is_told_with_the_remedy(urls, monkeypatch):
    monkeypatch.setenv("DEBUGINFOD_URLS", urls)
    with pytest.raises(UsageError, match="set DEBUGINFOD_URLS"):
        find_servers()


def test_limits_of_a_file_are_those_of_elfutils_variables(monkeypatch):
    assert Limits.of_environment(5, 1 << 40) == Limits(5, 1 << 40, 5, 512 << 20)
    monkeypatch.setenv("DEBUGINFOD_MAXTIME", "3")
    monkeypatch.setenv("DEBUGINFOD_MAXSIZE", "1000")
    assert Limits.of_environment(5, 1 << 40) == Limits(5, 1 << 40, 3, 1000)
    monkeypatch.setenv("DEBUGINFOD_MAXSIZE", "big")
    with pytest.raises(UsageError, match="DEBUGINFOD_MAXSIZE is 'big'"):
        Limits.of_environment(5, 1 << 40)


def test_the_cache_is_elfutils_own(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_cache() == tmp_path / ".cache" / "debuginfod_client"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert find_cache() == tmp_path / "debuginfod_client"
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "mine"))
    assert find_cache() == tmp_path / "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory away: needs root")
def test_under_sudo_the_cache_is_not_in_the_callers_home(monkeypatch, tmp_path):
    os.chown(tmp_path, 65534, 65534)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert not find_cache().is_relative_to(tmp_path)
    assert find_cache().name == "debuginfod_client"


def test_a_report_says_why_files_are_missing():
    outcomes = Counter({"fetched": 3, "unknown to the servers": 2, "too large": 1})
    report = Report(6, outcomes, 12_000_000, 1.23)
    assert str(report) == "debuginfod: 3 of 6 debug files in 1.2 s (11.4 MiB); 2 unknown to the servers, 1 too large"


def test_what_is_no_elf_file_has_no_build_id(tmp_path):
    assert _native.build_id("/proc/self/maps") == ""
    assert _native.build_id(str(tmp_path / "none")) == ""
    os.mkfifo(tmp_path / "pipe")
    assert _native.build_id(str(tmp_path / "pipe")) == ""
