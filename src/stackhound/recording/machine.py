"""What this kernel, this process and its limits are: read, never changed, never judged."""

from __future__ import annotations

import os
import re
import resource
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Final

#: Capabilities by their bit, include/uapi/linux/capability.h.
CAPABILITIES: Final = {
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
    "CAP_CHECKPOINT_RESTORE": 40,
}
#: CAP_SYS_ADMIN has what was split off from it, so that older set-ups keep working.
SPLIT_FROM_SYS_ADMIN: Final = frozenset({"CAP_SYSLOG", "CAP_PERFMON", "CAP_BPF", "CAP_CHECKPOINT_RESTORE"})

# Inode numbers of the initial namespaces, include/linux/proc_ns.h
INITIAL_USER_NAMESPACE: Final = 0xEFFFFFFD
INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC

#: Kernel addresses of 64-bit machines have their highest bit set.
KERNEL_HALF: Final = 1 << 63


@dataclass(frozen=True)
class Machine:
    """The machine as seen below ``root``; another root is for tests."""

    root: Path = Path("/")

    def path(self, path: str) -> Path:
        """Where an absolute path is below the root."""
        return self.root / path.lstrip("/")

    def read(self, path: str) -> str | None:
        """The text of a file without its last newline; None when it cannot be read."""
        try:
            return self.path(path).read_text(errors="replace").strip()
        except OSError:
            return None

    def sysctl(self, name: str) -> int | None:
        """A number from /proc/sys/kernel."""
        text = self.read(f"/proc/sys/kernel/{name}")
        return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None

    @cached_property
    def release(self) -> str:
        """As ``uname -r`` says it."""
        return self.read("/proc/sys/kernel/osrelease") or os.uname().release

    @property
    def version(self) -> tuple[int, int]:
        """The kernel's version, major and minor; (0, 0) for a release that does not begin with them."""
        found = re.match(r"(\d+)\.(\d+)", self.release)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    @cached_property
    def capabilities(self) -> frozenset[str]:
        """Those of `CAPABILITIES` that this process has in effect."""
        bits = int(self._status_line("CapEff") or "0", 16)
        held = {name for name, bit in CAPABILITIES.items() if bits >> bit & 1}
        return frozenset(held | SPLIT_FROM_SYS_ADMIN if "CAP_SYS_ADMIN" in held else held)

    def in_initial_namespace(self, kind: str, inode: int) -> bool:
        """Whether this process is in the namespace of ``kind`` (``pid``, ``user``) that the kernel began with."""
        try:
            return self.path(f"/proc/self/ns/{kind}").stat().st_ino == inode
        except OSError:
            return False

    def mounted(self, kind: str) -> str | None:
        """Where the first file system of a kind is mounted."""
        lines = (self.read("/proc/self/mounts") or "").splitlines()
        return next((words[1] for words in map(str.split, lines) if words[2] == kind), None)

    def kernel_addresses_shown(self) -> bool:
        """Whether /proc/kallsyms says addresses, not zeros.

        Per-CPU symbols come first and are near zero; there are some hundreds.
        """
        try:
            with self.path("/proc/kallsyms").open() as symbols:
                return any(int(line.partition(" ")[0], 16) >= KERNEL_HALF for line in islice(symbols, 5_000))
        except (OSError, ValueError):
            return False

    def open_files_limit(self) -> tuple[int, int]:
        """RLIMIT_NOFILE, soft and hard; -1 means none."""
        return resource.getrlimit(resource.RLIMIT_NOFILE)

    def locked_bytes_limit(self) -> int:
        """RLIMIT_MEMLOCK, soft; -1 means none."""
        return resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]

    def free_bytes(self, path: Path) -> int:
        """Space for this user on the file system of a directory."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def _status_line(self, key: str) -> str | None:
        lines = (self.read("/proc/self/status") or "").splitlines()
        return next((line.split()[1] for line in lines if line.startswith(f"{key}:")), None)
