"""cgroups, by the directory that people or ``/proc/PID/cgroup`` name."""

from __future__ import annotations

from pathlib import Path

from stackhound.errors import UsageError
from stackhound.recording.machine import Machine


def cgroup_mount() -> Path | None:
    """Where the cgroup v2 hierarchy is mounted; None when it is not."""
    where = Machine().mounted("cgroup2")
    return Path(where) if where else None


def find_cgroup(name: str) -> Path:
    """The directory of a cgroup, given as a path or as its name below the mount (as in ``0::/user.slice``).

    Raises:
        UsageError: there is no such cgroup, or the directory is not one of cgroup v2.
    """
    mount = cgroup_mount()
    if mount is None:
        raise UsageError("no cgroup v2 hierarchy is mounted", "sudo mount -t cgroup2 none /sys/fs/cgroup")
    for candidate in (Path(name).absolute(), mount / name.lstrip("/")):
        if candidate.is_relative_to(mount) and (candidate / "cgroup.controllers").is_file():
            return candidate
    raise UsageError(f"there is no cgroup {name!r} below {mount}", "'cat /proc/PID/cgroup' names a process's own")
