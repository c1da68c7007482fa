"""A block device that nobody else uses, and what the kernel counts of it."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.build import OUTPUT

if TYPE_CHECKING:
    from collections.abc import Iterator

SECTOR_BYTES = 512
DEVICE_BYTES = 64 << 20


class DiskCounts(NamedTuple):
    """Documentation/admin-guide/iostats.rst; the kernel calls a flush a write of nothing."""

    reads: int
    read_bytes: int
    read_ms: int
    writes: int
    write_bytes: int
    write_ms: int

    def since(self, before: DiskCounts) -> DiskCounts:
        return DiskCounts(*(now - then for now, then in zip(self, before, strict=True)))


def disk_counts(device: Path) -> DiskCounts:
    """Until now."""
    numbers = [int(word) for word in Path("/sys/block", device.name, "stat").read_text().split()]
    reads, _, read_sectors, read_ms, writes, _, write_sectors, write_ms = numbers[:8]
    return DiskCounts(reads, read_sectors * SECTOR_BYTES, read_ms, writes, write_sectors * SECTOR_BYTES, write_ms)


@contextmanager
def loop_device(*, direct: bool) -> Iterator[Path]:
    """On a file, whose disk answers each request when ``direct``, otherwise the page cache."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=OUTPUT) as image:
        image.write(bytes(DEVICE_BYTES))
        image.flush()
        way = "on" if direct else "off"
        command = ("losetup", "--find", "--show", f"--direct-io={way}", image.name)
        device = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
        try:
            yield device
        finally:
            subprocess.run(("losetup", "--detach", device), check=True)
