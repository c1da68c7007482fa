"""A profile in the Firefox Profiler's own code, with the symbol server beside it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stackhound.server.firefox import make_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fixtures.front_end import FrontEnd
    from stackhound import Profile
    from stackhound.server.local import LocalServer


@contextmanager
def serving(profile: Profile) -> Iterator[LocalServer]:
    with make_server(profile) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def annotate(front_end: FrontEnd, server: LocalServer, name: str) -> dict[str, Any]:
    """A function of the chosen thread: its source and its assembly, with samples beside their lines."""
    functions = front_end.ask("thread", "functions")["functions"]
    handle = next(function["functionHandle"] for function in functions if function["name"] == name)
    found: dict[str, Any] = front_end.ask(
        "function", "annotate", handle, "--mode", "all", "--context", "file", "--symbol-server", server.base
    )
    return found
