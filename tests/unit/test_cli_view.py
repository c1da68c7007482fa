"""``stackhound view``: the flame graph in a file, or a server for the Firefox Profiler."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname, urlopen

import pytest

from fixtures.examples import two_events, web_server
from stackhound.cli.main import main


@pytest.fixture(autouse=True)
def profile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    web_server().save("stackhound.hound")


@pytest.fixture
def opened(monkeypatch):
    """What a browser was asked to open."""
    urls = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", urls.append)
    return urls


@pytest.fixture
def serving():
    """``stackhound view --firefox …`` of its own, and the link that it prints."""
    running = []

    def start(*arguments):
        command = (sys.executable, "-m", "stackhound", "view", "--firefox", *arguments)
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.append(server)
        return server, server.stdout.readline().strip()

    yield start
    for server in running:
        server.kill()
        server.communicate()


def test_it_shows_the_flame_graph(opened, capsys):
    assert main(["view"]) == 0
    (url,) = opened
    assert capsys.readouterr().out == f"{url}\n"
    assert "vfs_read" in Path(url2pathname(urlsplit(url).path)).read_text()


@pytest.mark.parametrize("arguments", [["--no-browser"], []], ids=["not wanted", "no screen"])
def test_without_a_browser_it_says_what_to_open(opened, monkeypatch, capsys, arguments):
    if not arguments:
        monkeypatch.delenv("DISPLAY")
    assert main(["view", *arguments]) == 0
    assert not opened
    assert re.fullmatch(r"file:///\S+/flame\.html\n", capsys.readouterr().out)


def test_a_profile_of_several_events_asks_which_one_to_draw(capsys):
    two_events().save("two.hound")
    assert main(["view", "two.hound"]) == 2
    assert "--event" in capsys.readouterr().err
    assert main(["view", "two.hound", "--event", "page-faults"]) == 0


def test_it_serves_the_profile_to_the_firefox_profiler_until_ctrl_c(serving):
    server, link = serving()
    assert link.startswith("https://profiler.firefox.com/from-url/http%3A%2F%2F127.0.0.1%3A")
    profile, symbols = map(
        unquote, link.removeprefix("https://profiler.firefox.com/from-url/").split("/?symbolServer=")
    )
    with urlopen(profile, timeout=20) as answer:
        assert b"vfs_read" in answer.read()
    assert profile == f"{symbols}/profile.json"
    server.send_signal(signal.SIGINT)
    _, errors = server.communicate(timeout=20)
    assert (server.returncode, errors) == (0, "Ctrl-C ends it\n")


def test_the_front_end_may_be_a_copy(serving):
    assert serving("--origin", "http://localhost:4242/")[1].startswith("http://localhost:4242/from-url/")


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["--port", "1234"], "add --firefox"),
        (["--source-map", "/a=/b"], "add --firefox"),
        (["--firefox", "--source-map", "/a"], "--source-map /build"),
        (["--firefox", "--source-map", "=/a"], "--source-map /build"),
        (["--firefox", "--source-map", "/a="], "--source-map /build"),
        (["--firefox", "--origin", "nowhere"], "origin"),
        (["--firefox", "--inverted"], "--inverted"),
        (["--firefox", "--port", "99999"], "65535"),
    ],
)
def test_what_makes_no_sense_is_one_line(capsys, arguments, remedy):
    assert main(["view", *arguments]) == 2
    errors = capsys.readouterr().err
    assert remedy in errors
    assert errors.count("\n") == 1
