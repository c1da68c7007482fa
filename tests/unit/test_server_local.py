"""The local server: who may ask what, and how much."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import contextmanager

import pytest

from fixtures.front_end import serving
from stackhound.errors import OutputError, UsageError
from stackhound.server import local
from stackhound.server.firefox import read_origin
from stackhound.server.local import LocalServer
from stackhound.server.refusal import Refused

ORIGIN = "https://front-end.example"
PROFILE = b'{"a":"profile"}'


def refuse(_):
    raise Refused("nothing is known")


@contextmanager
def running(**options):
    answers = {"/echo/v1": lambda request: {"asked": request}, "/refuse/v1": refuse}
    with serving(LocalServer(PROFILE, answers, origin=ORIGIN, **options)) as server:
        yield server


@pytest.fixture
def server():
    with running() as server:
        yield server


def ask(server, path, body=None, *, method=None, headers=()):
    """(status, headers, body) of a request below the token; ``path`` None leaves the token out."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    target = f"/{server.token}{path}" if path is not None else "/"
    connection.request(method or ("GET" if body is None else "POST"), target, body, {"Origin": ORIGIN, **dict(headers)})
    answer = connection.getresponse()
    found = (answer.status, dict(answer.getheaders()), answer.read())
    connection.close()
    return found


def test_the_front_end_gets_the_profile_and_may_read_it(server):
    status, headers, body = ask(server, "/profile.json")
    assert (status, body) == (200, PROFILE)
    assert headers["Access-Control-Allow-Origin"] == ORIGIN
    assert headers["Cache-Control"] == "no-store"


def test_a_question_is_answered_as_json(server):
    status, headers, body = ask(server, "/echo/v1", b'{"x": 1}')
    assert (status, json.loads(body)) == (200, {"asked": {"x": 1}})
    assert headers["Content-Type"] == "application/json"


def test_the_link_opens_the_profile_with_this_symbol_server(server):
    base = f"http%3A%2F%2F127.0.0.1%3A{server.server_port}%2F{server.token}"
    assert server.link == f"{ORIGIN}/from-url/{base}%2Fprofile.json/?symbolServer={base}"


def test_a_program_without_a_page_is_answered_when_it_knows_the_path(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request("GET", f"/{server.token}/profile.json")
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.getheader("Access-Control-Allow-Origin") is None
    connection.close()


@pytest.mark.parametrize("token", ["", "wrong", "w" * 32])
def test_without_the_token_there_is_nothing(server, token):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request("GET", f"/{token}/profile.json")
    answer = connection.getresponse()
    assert answer.status == 404
    assert PROFILE not in answer.read()
    connection.close()


def test_every_server_has_a_path_of_its_own():
    with running() as one, running() as other:
        assert one.token != other.token
        assert len(one.token) >= 32


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://front-end.example", f"{ORIGIN}.evil.example"]
)
@pytest.mark.parametrize(("path", "body"), [("/profile.json", None), ("/echo/v1", b"{}")])
def test_pages_of_others_are_refused(server, origin, path, body):
    status, headers, found = ask(server, path, body, headers={"Origin": origin})
    assert status == 403
    assert "Access-Control-Allow-Origin" not in headers
    assert PROFILE not in found


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", ""])
def test_names_that_lead_here_from_elsewhere_are_refused(server, host):
    host = host.format(port=server.server_port)
    status, _, found = ask(server, "/profile.json", headers={"Host": host})
    assert status == 421
    assert PROFILE not in found


def test_localhost_is_a_name_of_this_server(server):
    assert ask(server, "/profile.json", headers={"Host": f"localhost:{server.server_port}"})[0] == 200


@pytest.mark.parametrize("path", ["/", "/profile.json/../../etc/passwd", "//etc/passwd", "/nothing/v1", "/echo/v1"])
def test_there_is_nothing_else_to_get(server, path):
    assert ask(server, path)[0] == 404


def test_the_profile_is_no_question(server):
    assert ask(server, "/profile.json", b"{}")[0] == 404


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b"\xff", b"[" * 100_000, b'{"a": NaN}'])
def test_malformed_json_is_refused_and_said_to_be(server, body):
    status, _, found = ask(server, "/echo/v1", body)
    assert status == 400
    assert "malformed" in json.loads(found)["error"]


def test_a_refusal_is_an_answer_that_the_front_end_shows(server):
    status, _, body = ask(server, "/refuse/v1", b"{}")
    assert (status, json.loads(body)) == (200, {"error": "nothing is known"})


@pytest.mark.parametrize("length", [str(local.MAX_REQUEST_BYTES + 1), "9" * 400])
def test_requests_that_are_too_large_are_refused_before_they_are_read(server, length):
    assert ask(server, "/echo/v1", b"{}", headers={"Content-Length": length})[0] == 413


@pytest.mark.parametrize("length", ["-1", "x", "", "²"])
def test_requests_must_say_how_large_they_are(server, length):
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        head = f"POST /{server.token}/echo/v1 HTTP/1.0\r\nHost: 127.0.0.1:{server.server_port}\r\n"
        connection.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode())
        assert b" 411 " in connection.makefile("rb").readline()


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "CONNECT"])
def test_other_methods_are_refused(server, method):
    assert ask(server, "/profile.json", method=method)[0] == 501


def test_a_browser_is_told_that_this_page_may_ask_a_private_network(server):
    status, headers, _ = ask(server, "/echo/v1", method="OPTIONS", headers={"Access-Control-Request-Method": "POST"})
    assert status == 204
    assert headers["Access-Control-Allow-Origin"] == ORIGIN
    assert headers["Access-Control-Allow-Private-Network"] == "true"


def test_a_browser_is_told_nothing_for_other_pages(server):
    status, headers, _ = ask(server, "/echo/v1", method="OPTIONS", headers={"Origin": "https://evil.example"})
    assert status == 403
    assert not [name for name in headers if name.startswith("Access-Control")]


def test_it_listens_on_this_machine_alone(server):
    assert server.socket.getsockname()[0] == "127.0.0.1"


def test_who_sends_nothing_or_a_byte_now_and_then_is_cut_off(monkeypatch):
    monkeypatch.setattr(local, "DEADLINE_S", 0.2)
    with running() as server, socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as slow:
        slow.sendall(b"GET ")
        assert slow.recv(100) == b""


def test_more_connections_than_it_can_serve_are_closed(monkeypatch):
    monkeypatch.setattr(local, "MAX_CONNECTIONS", 1)
    with running() as server, socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as first:
        first.sendall(b"GET ")
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as second:
            assert second.recv(100) == b""


def test_a_port_that_is_taken_is_one_line_with_a_remedy(server):
    with pytest.raises(OutputError, match=r"port \d+.*in use.*--port"):
        LocalServer(PROFILE, {}, origin=ORIGIN, port=server.server_port)


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://profiler.firefox.com", "https://profiler.firefox.com"),
        ("https://profiler.firefox.com:443/", "https://profiler.firefox.com"),
        ("http://localhost:4242", "http://localhost:4242"),
        ("http://[::1]:4242/", "http://[::1]:4242"),
        ("HTTP://LOCALHOST", "http://localhost"),
    ],
)
def test_an_origin_is_what_browsers_send(url, origin):
    assert read_origin(url) == origin


@pytest.mark.parametrize("url", ["profiler.firefox.com", "file:///x", "https://", "https://x/y", "http://x:99999", "*"])
def test_what_is_no_origin_is_refused(url):
    with pytest.raises(UsageError, match="origin"):
        read_origin(url)
