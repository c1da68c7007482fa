"""A file system with one file whose contents do not come: who reads there waits, until it is taken down.

Source of the numbers: include/uapi/linux/fuse.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from contextlib import contextmanager
from threading import Event, Thread, Timer
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE_BYTES: Final = 1 << 16
ROOT, FILE = 1, 2

LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, INTERRUPT = 1, 2, 3, 14, 15, 18, 25, 26, 36
UNANSWERED: Final = {FORGET, INTERRUPT}

REQUEST: Final = struct.Struct("=IIQQIIIHH")
VERSION: Final = (7, 31)
LARGEST_REQUEST: Final = 1 << 17
MNT_DETACH: Final = 2

#: A reader in the kernel may hold up others on this machine: by then it is let go, whatever becomes of the test.
LONGEST_WAIT_S: Final = 10.0


class SilentFile:
    """The file, and who was made to wait by it."""

    def __init__(self, path: Path, device: int) -> None:
        self.path = path
        self.readers = Event()
        self._device = device
        self._waiting: list[int] = []
        self._is_over = False
        self._server = Thread(target=self._serve)
        self._server.start()
        self._watchdog = Timer(LONGEST_WAIT_S, self.let_go)
        self._watchdog.start()

    def let_go(self) -> None:
        """Readers have an error instead of contents, from now on."""
        self._is_over = True
        while self._waiting:
            self._reply(self._waiting.pop(), errno.EIO)

    def join(self) -> None:
        """Wait for the end of the mount."""
        self._watchdog.cancel()
        self._server.join()

    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._device, LARGEST_REQUEST)
            except OSError:  # it is not mounted any more
                return
            _, operation, unique, node, *_ = REQUEST.unpack_from(request)
            if operation == READ and not self._is_over:
                self._waiting.append(unique)
                self.readers.set()
            elif operation not in UNANSWERED:
                answer = _answer(operation, node)
                self._reply(unique, 0 if answer is not None else errno.EIO, answer or b"")

    def _reply(self, unique: int, error: int, answer: bytes = b"") -> None:
        os.write(self._device, struct.pack("=IiQ", 16 + len(answer), -error, unique) + answer)


@contextmanager
def silent_file(directory: Path) -> Iterator[SilentFile]:
    """Mount the file system there. The test is skipped where this kernel or user cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"no /dev/fuse: {error}")
    options = f"fd={device},rootmode=40755,user_id=0,group_id=0".encode()
    if libc.mount(b"silent", os.fsencode(directory), b"fuse", 0, options):
        os.close(device)
        pytest.skip(f"fuse cannot be mounted: {os.strerror(ctypes.get_errno())}")
    silent = SilentFile(directory / "silent", device)
    try:
        yield silent
    finally:
        silent.let_go()
        libc.umount2(os.fsencode(directory), MNT_DETACH)
        silent.join()
        os.close(device)


def _answer(operation: int, node: int) -> bytes | None:
    if operation == INIT:
        return struct.pack("=IIIIHHIIHHI28x", *VERSION, 0, 0, 0, 0, 4096, 1, 1, 0, 0)
    if operation == LOOKUP:
        return struct.pack("=QQQQII", FILE, 0, 60, 60, 0, 0) + _attributes(FILE)
    if operation == GETATTR:
        return struct.pack("=QII", 60, 0, 0) + _attributes(node)
    if operation == OPEN:
        return struct.pack("=QII", 0, 0, 0)
    return b"" if operation in {RELEASE, FLUSH} else None


def _attributes(node: int) -> bytes:
    mode = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o644
    return struct.pack("=6Q10I", node, FILE_BYTES, 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
