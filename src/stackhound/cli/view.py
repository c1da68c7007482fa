"""``stackhound view``: a profile in the browser."""

from __future__ import annotations

import os
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from stackhound.cli.examples import ExampleCommand
from stackhound.cli.parameters import debug_dirs_option, event_option, flag, input_argument
from stackhound.cli.selection import Selection, selection_options
from stackhound.cli.signals import held_signals
from stackhound.cli.verbosity import verbose_option
from stackhound.errors import UsageError

if TYPE_CHECKING:
    from stackhound.profile import Profile
    from stackhound.server.local import LocalServer

EXAMPLES: Final = (
    ("the flame graph", "stackhound view"),
    ("threads over time, with source and assembly", "stackhound view --firefox night.hound"),
    ("sources that were compiled elsewhere", "stackhound view --firefox --source-map /build/app=$HOME/app"),
    ("a copy of the front-end of your own", "stackhound view --firefox --origin http://localhost:4242"),
)
WAKE_UP_S: Final = 3600.0  # nothing but a signal is waited for
SERVER_OPTIONS: Final = ("--origin", "--port", "--source-map", "--debug-dir")


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@input_argument
@flag("--firefox", help="Serve it to the Firefox Profiler, until Ctrl-C, with source and assembly of this machine.")
@flag("--no-browser", help="Only say what to open.")
@click.option("--origin", metavar="URL", help="Where the front-end is.  [default: https://profiler.firefox.com]")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="To serve at.  [default: any that is free]")
@click.option(
    "--source-map",
    "source_maps",
    multiple=True,
    metavar="FROM=TO",
    help="Sources that were compiled in FROM are in TO; repeatable.",
)
@debug_dirs_option
@event_option
@selection_options
@click.pass_context
@verbose_option
def command(
    context: click.Context,
    /,
    profile_path: Path,
    firefox: bool,
    no_browser: bool,
    event: str | None,
    origin: str | None,
    port: int,
    source_maps: tuple[str, ...],
    debug_dirs: tuple[Path, ...],
    **_: object,
) -> None:
    """Show INPUT, by default stackhound.hound, in the browser.

    Nothing leaves this machine: the flame graph is a file, and the Firefox Profiler's page fetches the profile from
    here and keeps it in the browser.
    """
    given = [
        option for option, value in zip(SERVER_OPTIONS, (origin, port, source_maps, debug_dirs), strict=True) if value
    ]
    if given and not firefox:
        raise UsageError(f"{given[0]} is of the server for the Firefox Profiler", "add --firefox")
    maps = [_read_source_map(text) for text in source_maps]
    from stackhound.profile import load  # numpy and Arrow: a mistake above should not wait for them

    profile = Selection.parse(context.params).apply(load(profile_path))
    if not firefox:
        url = _write_flame_graph(profile, event).as_uri()
        click.echo(url)
        if not no_browser:
            _open(url)
        return
    from stackhound.server.firefox import ORIGIN, make_server

    server = make_server(
        profile, event=event, origin=origin or ORIGIN, port=port, debug_dirs=debug_dirs, source_maps=maps
    )
    with server:
        _serve(server, browse=not no_browser)


def _serve(server: LocalServer, *, browse: bool) -> None:
    """Until we are asked to end."""
    if browse:
        _open(server.link)  # it listens already; signals must not be held back yet, which the browser would inherit
    with held_signals() as signals:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        click.echo(server.link)
        click.echo("Ctrl-C ends it", err=True)
        while not signals.wait(WAKE_UP_S, None):
            pass
        server.shutdown()
        thread.join()


def _read_source_map(text: str) -> tuple[str, str]:
    """Read ``FROM=TO``."""
    before, equals, here = text.partition("=")
    if not (before and equals and here):
        raise UsageError(f"{text!r} is no source map", "use for example --source-map /build/app=/home/me/app")
    return before, here


def _write_flame_graph(profile: Profile, event: str | None) -> Path:
    """A file that stays, for the browser to read when it has started."""
    import tempfile

    from stackhound import formats

    path = Path(tempfile.mkdtemp(prefix="stackhound-"), "flame.html")
    with path.open("wb") as out:
        formats.by_name("html").write(profile, out, event=event)
    return path


def _open(url: str) -> None:
    """Open it where there is a screen: a browser in the terminal would take that over."""
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)
