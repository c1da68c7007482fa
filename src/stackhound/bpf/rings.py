"""Ring buffers of a program that is measured, emptied between batches as its reader would: full ones refuse records.

    page 0        how far the reader is, which user space writes
    page 1        how far the writer is
    page 2 …      the records

Source: Linux kernel/bpf/ringbuf.c, struct bpf_ringbuf.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from stackhound.bpf.programs import list_maps, list_programs
from stackhound.errors import RecordingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RING: Final = "ringbuf"
BPF_CALL: Final = {"x86_64": 321, "aarch64": 280}
MAP_GET_FD_BY_ID: Final = 14  # enum bpf_cmd, include/uapi/linux/bpf.h
ATTRIBUTE_BYTES: Final = 128
READER_S: Final = 0.001  # a ring of 64 KiB holds 4,096 records of 8 bytes: 4 M runs a second
POSITION: Final = struct.Struct("=Q")


class _Ring(NamedTuple):
    """One ring buffer: its size, and the pages with both positions."""

    size_bytes: int
    reader: mmap.mmap
    writer: mmap.mmap


class Rings:
    """All ring buffers of a program; `open_rings` gives them."""

    def __init__(self, rings: Sequence[_Ring]) -> None:
        self._rings = rings

    def empty(self) -> None:
        """Let go of all records, also of one that is being written: nobody reads them."""
        for ring in self._rings:
            ring.reader[: POSITION.size] = ring.writer[: POSITION.size]

    @contextmanager
    def kept_empty(self) -> Iterator[None]:
        """Empty them as a reader would, each millisecond, while the program runs on its own."""
        ended = threading.Event()

        def keep_empty() -> None:
            while not ended.wait(READER_S):
                self.empty()

        reader = threading.Thread(target=keep_empty, name="reader of ring buffers")
        if self._rings:
            reader.start()
        try:
            yield
        finally:
            ended.set()
            if self._rings:
                reader.join()

    def runs_that_fit(self) -> int | None:
        """How many runs like the only one since `empty` fit into what it has written to; None: any number.

        A ring that is full to its last byte would look like an empty one, so it never is.
        """
        fitting = [(ring.size_bytes - 1) // written for ring in self._rings if (written := _written_bytes(ring))]
        return min(fitting, default=None)


@contextmanager
def open_rings(program_id: int) -> Iterator[Rings]:
    """The ring buffers that a loaded program uses, until the block ends.

    Raises:
        RecordingError: one cannot be opened.
    """
    ids = next((one.map_ids for one in list_programs() if one.id == program_id), ())
    with ExitStack() as opened:
        rings = [_open(one.id, one.max_entries, opened) for one in list_maps(ids) if one.type == RING]
        yield Rings(rings)


def _open(map_id: int, size_bytes: int, opened: ExitStack) -> _Ring:
    descriptor = _descriptor(map_id)
    try:
        reader = mmap.mmap(descriptor, mmap.PAGESIZE, offset=0)
        opened.callback(reader.close)
        writer = mmap.mmap(descriptor, mmap.PAGESIZE, prot=mmap.PROT_READ, offset=mmap.PAGESIZE)
        opened.callback(writer.close)
    finally:
        os.close(descriptor)
    return _Ring(size_bytes, reader, writer)


def _descriptor(map_id: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = ctypes.create_string_buffer(struct.pack("=I", map_id), ATTRIBUTE_BYTES)
    found: int = libc.syscall(BPF_CALL[platform.machine()], MAP_GET_FD_BY_ID, attributes, ATTRIBUTE_BYTES)
    if found < 0:
        raise RecordingError(f"cannot open ring buffer {map_id}: {os.strerror(ctypes.get_errno()).lower()}")
    return found


def _written_bytes(ring: _Ring) -> int:
    (read,), (written,) = (POSITION.unpack_from(page) for page in (ring.reader, ring.writer))
    return int(written - read)
