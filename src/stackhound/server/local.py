"""An HTTP server for one front-end on this machine.

It listens on the loopback address alone, and answers below a path that cannot be guessed. Other programs' pages in the
same browser can reach that address, too: the name by which they do (Host) must be this machine's, which stops DNS
rebinding, and the page that asks (Origin) must be the front-end's.
"""

from __future__ import annotations

import logging
import secrets
import socket
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson

from stackhound.errors import OutputError, reason_of
from stackhound.server.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Answer = Callable[[dict[str, Any]], dict[str, Any]]

LOOPBACK: Final = "127.0.0.1"
#: A request that names 1 M addresses has 20 MB.
MAX_REQUEST_BYTES: Final = 32 << 20
#: From a connection's first byte to its last: the profile's download, or the slowest answer.
DEADLINE_S: Final = 60.0
#: Between two pieces of a request.
PATIENCE_S: Final = 10.0
MAX_CONNECTIONS: Final = 32
TOKEN_BYTES: Final = 24
HTTP_PORT: Final = 80

log = logging.getLogger(__name__)


class LocalServer(ThreadingHTTPServer):
    """Serves a profile, and answers the requests of one front-end about it."""

    daemon_threads = True

    def __init__(self, profile: bytes, answers: Mapping[str, Answer], *, origin: str, port: int = 0) -> None:
        """Listen.

        Args:
            profile: what the front-end loads.
            answers: what answers a POST request, by the path below the token.
            origin: of the front-end.
            port: to listen at; 0 takes one that is free.

        Raises:
            OutputError: the port is taken, or not ours to take.
        """
        self.profile = profile
        self.answers = answers
        self.origin = origin
        self.token = secrets.token_urlsafe(TOKEN_BYTES)
        self._places = threading.BoundedSemaphore(MAX_CONNECTIONS)
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else str(error)
            raise OutputError(f"cannot listen at port {port}: {reason}", "choose another --port, or none") from error

    @property
    def base(self) -> str:
        """The symbol server, for the front-end."""
        return f"http://{LOOPBACK}:{self.server_port}/{self.token}"

    @property
    def profile_url(self) -> str:
        """The profile, for the front-end."""
        return f"{self.base}/profile.json"

    @property
    def link(self) -> str:
        """What to open in a browser."""
        profile, symbols = (quote(url, safe="") for url in (self.profile_url, self.base))
        return f"{self.origin}/from-url/{profile}/?symbolServer={symbols}"

    @property
    def hosts(self) -> frozenset[str]:
        """The names that this server has."""
        names = (LOOPBACK, "localhost")
        usual = names if self.server_port == HTTP_PORT else ()  # which browsers leave out
        return frozenset((*usual, *(f"{name}:{self.server_port}" for name in names)))

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  socketserver's signature
        """Answer in a thread, unless there are too many."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Answer."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002
        """Called with an exception at hand: most often the other side has gone."""
        log.debug("a connection ended early", exc_info=sys.exc_info())


class _Handler(BaseHTTPRequestHandler):
    """One connection, which has one request (HTTP/1.0)."""

    server: LocalServer
    timeout = PATIENCE_S
    server_version = "stackhound"
    sys_version = ""

    def setup(self) -> None:
        """Begin: whoever sends a byte now and then is cut off in the end."""
        super().setup()
        self._deadline = threading.Timer(DEADLINE_S, self._cut_off)
        self._deadline.daemon = True
        self._deadline.start()

    def finish(self) -> None:
        """End."""
        self._deadline.cancel()
        super().finish()

    def do_GET(self) -> None:
        """The profile."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """A question about it."""
        self._answer(self._post)

    def do_OPTIONS(self) -> None:
        """Whether the front-end may ask, from a page of another address space too."""
        try:
            self._admit()
        except Refused as refused:
            self._refuse(refused)
            return
        self.send_response(HTTPStatus.NO_CONTENT)
        self._allow_origin()
        self.send_header("Access-Control-Allow-Methods", "GET, POST")
        self.send_header("Access-Control-Allow-Headers", "Content-Type")
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """For ``-v``."""
        log.debug(format, *args)

    def _answer(self, find: Callable[[str], bytes]) -> None:
        try:
            body = find(self._admit())
        except Refused as refused:
            self._refuse(refused)
        else:
            self._send(HTTPStatus.OK, body)

    def _admit(self) -> str:
        """The path below the token."""
        if self.headers.get("Host") not in self.server.hosts:
            raise Refused("this server has another name", HTTPStatus.MISDIRECTED_REQUEST)
        if self.headers.get("Origin", self.server.origin) != self.server.origin:
            raise Refused("this server answers to another page", HTTPStatus.FORBIDDEN)
        token, slash, path = self.path[1:].partition("/")
        if not secrets.compare_digest(token.encode(), self.server.token.encode()):
            raise Refused("not found", HTTPStatus.NOT_FOUND)
        return slash + path

    def _get(self, path: str) -> bytes:
        if path != "/profile.json":
            raise Refused("not found", HTTPStatus.NOT_FOUND)
        return self.server.profile

    def _post(self, path: str) -> bytes:
        answer = self.server.answers.get(path)
        if answer is None:
            raise Refused("not found", HTTPStatus.NOT_FOUND)
        try:
            request = orjson.loads(self._read_body())
        except orjson.JSONDecodeError as error:
            raise Refused(f"malformed JSON: {error}", HTTPStatus.BAD_REQUEST) from error
        if not isinstance(request, dict):
            raise Refused("malformed request: no object", HTTPStatus.BAD_REQUEST)
        return orjson.dumps(answer(request))

    def _read_body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            raise Refused("no length", HTTPStatus.LENGTH_REQUIRED)
        if len(length) > len(str(MAX_REQUEST_BYTES)) or int(length) > MAX_REQUEST_BYTES:
            raise Refused("too large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise Refused("cut off", HTTPStatus.BAD_REQUEST)
        return body

    def _refuse(self, refused: Refused) -> None:
        self._send(refused.status, orjson.dumps({"error": refused.reason}))

    def _send(self, status: HTTPStatus, body: bytes) -> None:
        self.send_response(status)
        self._allow_origin()
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def _allow_origin(self) -> None:
        """Let the front-end's page read the answer; no other one may."""
        self.send_header("Vary", "Origin")
        if self.headers.get("Origin") == self.server.origin:
            self.send_header("Access-Control-Allow-Origin", self.server.origin)

    def _cut_off(self) -> None:
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            log.debug("a connection had ended when its time was over", exc_info=True)
