"""Files that are whole or not there: a temporary file beside the target, fsync, rename, fsync of the directory."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from stackhound.errors import OutputError, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator

REMEDIES = {
    errno.ENOSPC: "free some space, or write to another disk",
    errno.EDQUOT: "free some space, or write to another disk",
    errno.EACCES: "choose a directory that you may write to",
    errno.EPERM: "choose a directory that you may write to",
    errno.EROFS: "choose a directory that you may write to",
    errno.EISDIR: "name a file, not a directory",
    errno.ENOENT: "create its directory first",
    errno.ENOTDIR: "create its directory first",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EFBIG: "choose a file system that holds larger files",
}


@contextmanager
def open_output(
    path: str | Path, *, keep_old: bool = False, mode: int = 0o666, owner: tuple[int, int] | None = None
) -> Iterator[BinaryIO]:
    """Open a file to write. It appears under its name when the block ends, and not at all when the block fails.

    What is not a regular file (a pipe, ``/dev/stdout``) is written to directly. A symbolic link is replaced, never
    followed: in a directory that others may write to, it could point anywhere.

    Args:
        path: where.
        keep_old: keep what is there as ``PATH.old``.
        mode: permissions of a new file, before the umask; a file that is there keeps its own.
        owner: (uid, gid) that the file is given to; None leaves it to the process.

    Raises:
        OutputError: it cannot be written. Nothing of it is left behind.
    """
    target = Path(path)
    try:
        if _is_replaceable(target):
            with _replacement(target, keep_old, mode, owner) as out:
                yield out
        else:
            with target.open("wb") as out:
                yield out
    except OSError as error:
        raise OutputError(f"cannot write {target}: {reason_of(error)}", REMEDIES.get(error.errno or 0, "")) from error


@contextmanager
def _replacement(target: Path, keep_old: bool, mode: int, owner: tuple[int, int] | None) -> Iterator[BinaryIO]:
    temporary = target.with_name(f".stackhound-{secrets.token_hex(8)}.tmp")
    old_mode = _mode_of(target)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as out:
            if old_mode is not None:
                os.fchmod(descriptor, old_mode)
            if owner is not None:
                os.fchown(descriptor, *owner)
            yield out
            out.flush()
            os.fsync(descriptor)
        if keep_old and old_mode is not None:
            target.replace(f"{target}.old")
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def _is_replaceable(target: Path) -> bool:
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    whole = target.absolute()
    if str(whole) in {"/dev/stdout", "/dev/stderr"} or any(whole.is_relative_to(at) for at in ("/proc", "/dev/fd")):
        return False  # links to whatever this process has open
    return target.is_file() or not target.exists()


def _mode_of(target: Path) -> int | None:
    """The permissions of a regular file that is there."""
    try:
        found = target.lstat().st_mode
    except FileNotFoundError:
        return None
    return stat.S_IMODE(found) if stat.S_ISREG(found) else None


def _sync_directory(directory: Path) -> None:
    """Make the rename durable. Some network file systems cannot (EINVAL); the file itself is safe there."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
