"""What a process has of the kernel's BPF and perf objects, and whether they outlive it."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# include/uapi/linux/bpf.h, enum bpf_cmd: an id to a descriptor
_GET_FD_BY_ID: Final = {"prog_id": 13, "map_id": 14, "link_id": 30}
_BPF_CALL: Final = {"x86_64": 321, "aarch64": 280}[platform.machine()]
_BPF_ATTRIBUTE_BYTES: Final = 128

BpfId = tuple[str, int]


def descriptors(pid: int | str = "self") -> list[str]:
    """What each open descriptor of a process is, sorted."""
    names = []
    for one in Path(f"/proc/{pid}/fd").iterdir():
        try:
            names.append(str(one.readlink()))
        except FileNotFoundError:
            continue  # closed meanwhile, such as the one that reads the directory
    return sorted(names)


def _facts(pid: int | str) -> Iterator[tuple[str, str]]:
    """What the kernel says of each open descriptor of a process: name and value, line by line."""
    for one in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            text = one.read_text()
        except FileNotFoundError:
            continue  # closed meanwhile
        for line in text.splitlines():
            name, _, value = line.partition(":")
            yield name, value.strip()


def bpf_ids(pid: int) -> set[BpfId]:
    """The programs, maps and links that a process holds: (``prog_id`` | ``map_id`` | ``link_id``, number)."""
    return {(name, int(value)) for name, value in _facts(pid) if name in _GET_FD_BY_ID}


def attached_events(pid: int | str = "self") -> int:
    """On how many perf events a process has BPF programs: for ``cpu`` one a CPU, for a tracepoint one."""
    return sum(fact == ("link_type", "perf") for fact in _facts(pid))


def lives(identity: BpfId) -> bool:
    """Whether the kernel still has it."""
    kind, number = identity
    attributes = ctypes.create_string_buffer(struct.pack("I", number), _BPF_ATTRIBUTE_BYTES)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(_BPF_CALL, _GET_FD_BY_ID[kind], attributes, _BPF_ATTRIBUTE_BYTES)
    if fd >= 0:
        os.close(fd)
    return fd >= 0
