"""The first root of a guest: busybox, `init.sh`, and the kernel's modules without which there is no second one."""

from __future__ import annotations

import lzma
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Whatever of it is no module of this kernel is in it. ext4 asks for checksums by name, not by its dependencies.
WANTED: Final = ("virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "9pnet_virtio", "9p")

INIT: Final = Path(__file__).with_name("init.sh")


def write_tools(path: Path, kernel: Path, busybox: Path) -> None:
    """All but the first program, of an unpacked package of a kernel."""
    modules = list(_in_order(WANTED, _modules(kernel)))
    with path.open("wb") as out:
        for folder in ("bin", "dev", "modules", "proc", "root", "sys"):
            out.write(_entry(folder, stat.S_IFDIR | 0o755))
        out.write(_entry("bin/busybox", stat.S_IFREG | 0o755, busybox.read_bytes()))
        for number, module in enumerate(modules):
            out.write(_entry(f"modules/{number:02}.ko", stat.S_IFREG | 0o644, _read(module)))
        out.write(_entry("TRAILER!!!", 0))


def write(path: Path, tools: Path) -> None:
    """The whole: the kernel unpacks archives one after the other."""
    init = _entry("init", stat.S_IFREG | 0o755, INIT.read_bytes())
    path.write_bytes(tools.read_bytes() + init + _entry("TRAILER!!!", 0))


def _modules(kernel: Path) -> dict[str, Path]:
    found = (kernel / "lib").rglob("*.ko*") if (kernel / "lib").is_dir() else (kernel / "usr/lib").rglob("*.ko*")
    return {path.name.partition(".")[0].replace("-", "_"): path for path in found}


def _in_order(names: Iterable[str], modules: dict[str, Path]) -> Iterable[Path]:
    """Each behind those that it depends on."""
    done: dict[str, Path] = {}

    def add(name: str) -> None:
        path = modules.get(name.replace("-", "_"))
        if path is None or name in done:
            return
        for one in _dependencies(_read(path)):
            add(one)
        done[name] = path

    for name in names:
        add(name)
    return done.values()


def _dependencies(module: bytes) -> list[str]:
    """As the module's section .modinfo has them."""
    found = re.search(rb"\0depends=([^\0]*)\0", module)
    return [name for name in found[1].decode().split(",") if name] if found else []


def _read(module: Path) -> bytes:
    data = module.read_bytes()
    return lzma.decompress(data) if module.suffix == ".xz" else data


def _entry(name: str, mode: int, data: bytes = b"") -> bytes:
    """A file of a cpio archive in the format `newc` (Documentation/driver-api/early-userspace/buffer-format.rst)."""
    encoded = name.encode() + b"\0"
    # inode, mode, uid, gid, links, mtime, size, device, device of a device file, length of the name, checksum
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
    header = b"070701" + b"".join(b"%08x" % field for field in fields)
    return _padded(header + encoded) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
