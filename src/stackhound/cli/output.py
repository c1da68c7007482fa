"""Where a profile goes: a file by its suffix, or stdout; checked before anything is recorded, rescued when it fails."""

from __future__ import annotations

import errno
import gc
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from stackhound import formats
from stackhound.cli.parameters import DEFAULT_PATH
from stackhound.errors import OutputError, UsageError, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.formats import Format
    from stackhound.profile import Profile
    from stackhound.recording.invoker import Invoker

STDOUT: Final = "-"


class Target(NamedTuple):
    """Where a profile goes, and in which format. ``path`` is None for stdout."""

    path: Path | None
    format: Format

    def check(self) -> None:
        """See that it can be written, by doing so with an empty file beside it.

        Raises:
            OutputError: it cannot.
            UsageError: the format does not fit there.
        """
        if self.path is not None:
            _check_path(self.path, self.format)
        elif self.format.directory:
            raise UsageError(f"{self.format.name} is a directory of files", "name a directory with -o DIR")
        elif self.format.binary and sys.stdout.isatty():
            raise UsageError(f"{self.format.name} is not for a terminal", "name a file with -o, or use a pipe")

    def write(
        self, profile: Profile, event: str | None = None, *, keep_old: bool = False, owner: Invoker | None = None
    ) -> None:
        """Write the profile there.

        Raises:
            OutputError: it cannot be written.
            UsageError, EmptyProfile: the format cannot show this profile.
        """
        with _no_garbage_collection():
            if self.path is None:
                self.format.write(profile, sys.stdout.buffer, event=event)
                sys.stdout.buffer.flush()
            elif self.format.directory:
                self.format.write_directory(profile, self.path)
                if owner:
                    owner.own_directory(self.path)
            else:
                self._write_file(self.path, profile, event, keep_old, owner)

    def _write_file(
        self, path: Path, profile: Profile, event: str | None, keep_old: bool, owner: Invoker | None
    ) -> None:
        from stackhound.profile.output import open_output

        keep_old = keep_old and self.format.name == "hound"
        ids = (owner.uid, owner.gid) if owner else None
        with open_output(path, keep_old=keep_old, mode=self.format.file_mode, owner=ids) as out:
            self.format.write(profile, out, event=event)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """To look for cycles among all the texts of a picture takes a fifth of the time that the picture takes."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def choose_target(output: str | None, format_name: str | None) -> Target:
    """The target that ``-o`` and ``--format`` ask for. Without ``-o`` it is a file called ``stackhound.…``.

    Raises:
        UsageError: no such format or suffix.
        OutputError: it is a directory, whose name cannot say a format.
    """
    if output == STDOUT:
        return Target(None, formats.by_name(format_name or "hound"))
    if output and format_name is None and Path(output).is_dir():
        raise OutputError(f"cannot write {output}: is a directory", "name a file in it")
    if format_name is None:
        path = Path(output or DEFAULT_PATH)
        return Target(path, formats.by_path(path))
    chosen = formats.by_name(format_name)
    suffix = chosen.suffixes[0] if chosen.suffixes else f".{chosen.name}"
    return Target(Path(output or f"stackhound{suffix}"), chosen)


def write_recording(profile: Profile, target: Target, event: str | None, owner: Invoker | None) -> None:
    """Write a profile that exists nowhere else: when that fails it goes to the temporary directory.

    Raises:
        OutputError, UsageError, EmptyProfile: see `Target.write`; by then stderr says where the recording is.
    """
    try:
        target.write(profile, event, keep_old=True, owner=owner)
    except BrokenPipeError:
        raise  # its reader did not want it
    except BaseException:
        _rescue(profile, owner)
        raise


def _rescue(profile: Profile, owner: Invoker | None) -> None:
    import tempfile  # costs 15 ms, which only a failure pays

    path = Path(tempfile.gettempdir(), f"stackhound-{os.getpid()}.hound")
    try:
        Target(path, formats.by_name("hound")).write(profile, keep_old=True, owner=owner)
    except OutputError as error:
        click.echo(f"stackhound: the recording is lost, it fits nowhere else either: {error}", err=True)
    else:
        click.echo(f"stackhound: the recording is kept in {path}", err=True)


def _check_path(path: Path, chosen: Format) -> None:
    try:
        if path.is_dir() and not chosen.directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not path.is_file():  # a pipe, /dev/null: opening it may wait for its reader
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        probe = path.with_name(f".stackhound-{os.getpid()}.check")
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        probe.unlink()
    except OSError as error:
        from stackhound.profile.output import REMEDIES

        raise OutputError(f"cannot write {path}: {reason_of(error)}", REMEDIES.get(error.errno or 0, "")) from error
