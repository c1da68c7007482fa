"""Block devices of a test's own, and what the kernel counts of them."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from stackhound.recording.cgroups import cgroup_mount
from support_workloads import BUILT, require

if TYPE_CHECKING:
    from collections.abc import Iterator

SECTOR_BYTES = 512


class DiskCounts(NamedTuple):
    """What the kernel has counted of a device (Documentation/admin-guide/iostats.rst). Times are in milliseconds."""

    reads: int
    read_bytes: int
    read_ms: int
    writes: int
    write_bytes: int
    write_ms: int
    flushes: int

    def __sub__(self, other: DiskCounts) -> DiskCounts:
        return DiskCounts(*(now - before for now, before in zip(self, other, strict=True)))


def disk_counts(device: str) -> DiskCounts:
    """Until now. A request is in them a moment after whoever waits for it has gone on."""
    numbers = [int(word) for word in Path("/sys/block", device, "stat").read_text().split()]
    reads, _, read_sectors, read_ms, writes, _, write_sectors, write_ms = numbers[:8]
    flushes = numbers[15] if len(numbers) > 15 else 0
    sizes = (read_sectors * SECTOR_BYTES, write_sectors * SECTOR_BYTES)
    return DiskCounts(reads, sizes[0], read_ms, writes, sizes[1], write_ms, flushes)


def needs_direct_reads() -> None:
    """Skip the test where workloads cannot have a file beside them whose blocks they read from a disk."""
    BUILT.mkdir(parents=True, exist_ok=True)
    if os.major(BUILT.stat().st_dev) == 0:
        pytest.skip(f"{BUILT} is on no block device")
    try:
        os.close(os.open(BUILT, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600))
    except OSError as error:
        pytest.skip(f"no file in {BUILT} for reads past the page cache: {error.strerror}")


def needs_site(name: str) -> None:
    """Skip the test where the workload ``absences.c`` cannot do this."""
    if name == "wait_for_page" and not Path("/proc/sys/vm/unprivileged_userfaultfd").exists():
        pytest.skip("needs userfaultfd(2)")
    if name in ("read_disk", "touch_file"):
        needs_direct_reads()


@contextmanager
def control_group(*controllers: str) -> Iterator[Path]:
    """A control group (version 2) that accounts for these."""
    mount = cgroup_mount()
    if mount is None or not {*controllers} <= {*(mount / "cgroup.controllers").read_text().split()}:
        pytest.skip(f"needs cgroup v2 with the controllers {', '.join(controllers)}")
    group = mount / f"stackhound-{os.getpid()}"
    switches = mount / "cgroup.subtree_control"
    before = {*switches.read_text().split()}
    switches.write_text(" ".join(f"+{name}" for name in controllers))
    group.mkdir()
    try:
        yield group
    finally:
        group.rmdir()
        switches.write_text(" ".join(f"-{name}" for name in controllers if name not in before))


@contextmanager
def loop_device(directory: Path, size_bytes: int = 64 << 20) -> Iterator[Path]:
    """A block device that nobody else uses, on a file."""
    image = directory / "image"
    with image.open("wb") as file:
        file.write(bytes(size_bytes))  # with holes, reads would not reach the disk below
    made = subprocess.run([require("losetup"), "--find", "--show", image], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"needs a loop device: {made.stderr.strip()}")
    device = Path(made.stdout.strip())
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
