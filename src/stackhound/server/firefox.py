"""Opens a profile in the Firefox Profiler."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from stackhound.errors import UsageError
from stackhound.formats import by_name
from stackhound.server.api import SymbolApi
from stackhound.server.local import LocalServer
from stackhound.server.modules import Modules
from stackhound.server.sources import Sources

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from stackhound.profile import Profile

ORIGIN: Final = "https://profiler.firefox.com"


def make_server(
    profile: Profile,
    *,
    event: str | None = None,
    origin: str = ORIGIN,
    port: int = 0,
    debug_dirs: Sequence[Path] = (),
    source_maps: Sequence[tuple[str, str]] = (),
) -> LocalServer:
    """A server that listens, with the profile in it; `LocalServer.link` opens it.

    Args:
        profile: what to show.
        event: the only one to show; None shows all.
        origin: of the front-end: its scheme, host and port.
        port: to listen at; 0 takes one that is free.
        debug_dirs: where else separate debug files are.
        source_maps: see `Sources`.

    Raises:
        EmptyProfile, UsageError: see `stackhound.formats.firefox.write`; or the origin is none.
        OutputError: it cannot listen there.
    """
    document = io.BytesIO()
    by_name("firefox").write(profile, document, event=event)
    api = SymbolApi(Modules(profile.shown, debug_dirs), Sources(source_maps))
    return LocalServer(document.getvalue(), api.paths, origin=read_origin(origin), port=port)


def read_origin(url: str) -> str:
    """The origin of a front-end's address, as browsers send it.

    Raises:
        UsageError: it is no address of a web page.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{url!r} is no origin: {error}", f"use for example {ORIGIN}") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/") or parts.query:
        raise UsageError(f"{url!r} is no origin", f"use for example {ORIGIN} or http://localhost:4242")
    usual = {"http": 80, "https": 443}[parts.scheme]
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" if port in (None, usual) else f"{parts.scheme}://{host}:{port}"
