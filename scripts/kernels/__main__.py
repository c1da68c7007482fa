"""Runs tests on another kernel: boots one of Debian's under QEMU, with this checkout and its .venv in it.

The guest has the host's root, read-only, at the same paths, so nothing is installed for it; `target/` is a disk of its
own, which is gone afterwards. It is four to seven times as slow as the machine.

    python scripts/kernels 6.1                                          tests marked kernel_guest
    python scripts/kernels 6.12 tests/integration/test_faults.py -v     what pytest is told
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import emulator
import initramfs
from debian import Suite, Unavailable, cache

#: Where Debian has which kernel. Backports move on, and so does this list.
SUITES: Final = {"5.10": "bullseye", "6.1": "bookworm", "6.12": "trixie", "6.18": "trixie-backports"}
CHECKOUT: Final = Path(__file__).parents[2]
MARK: Final = "kernel_guest"
#: The disk is sparse.
DISK_BYTES: Final = 2 << 30
TIMEOUT_S: Final = 1800
CONSOLE_LINES: Final = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernel", choices=SUITES, help="its version")
    parser.add_argument("--accel", choices=("tcg", "kvm"), default="tcg", help="how QEMU runs it")
    options, arguments = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("kernels: ended"))  # not without the guest
    try:
        sys.exit(run(options.kernel, options.accel, arguments or ["-m", MARK, *marked_files()]))
    except Unavailable as error:
        sys.exit(f"kernels: {error}")


def marked_files() -> list[str]:
    """Those with such tests: a guest takes minutes to read all."""
    files = sorted((CHECKOUT / "tests/integration").glob("test_*.py"))
    return [str(path.relative_to(CHECKOUT)) for path in files if MARK in path.read_text()]


def run(version: str, accelerator: str, arguments: list[str]) -> int:
    """Boots it, and gives back pytest's exit status."""
    if CHECKOUT.is_relative_to("/tmp"):  # noqa: S108
        raise Unavailable("a guest has a /tmp of its own: move the checkout elsewhere")
    command = emulator.find()
    kernel = fetch_kernel(version)
    target = CHECKOUT / "target"
    target.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kernel-", dir=target) as temporary:
        folder = Path(temporary)
        initramfs.write(folder / "initramfs", kernel / "tools")
        guest = emulator.Guest(
            kernel=kernel / "vmlinuz",
            initramfs=folder / "initramfs",
            disk=make_disk(folder, arguments),
            console=folder / "console",
            status=folder / "status",
            checkout=CHECKOUT,
            accelerator=accelerator,
        )
        try:
            return emulator.run(command, guest, TIMEOUT_S)
        except Unavailable as error:
            said = guest.console.read_text(errors="replace").splitlines() if guest.console.exists() else []
            raise Unavailable("\n".join([*said[-CONSOLE_LINES:], str(error)])) from error


def fetch_kernel(version: str) -> Path:
    """A folder with `vmlinuz` and `tools`, in the user's cache."""
    folder = cache() / version
    if folder.is_dir():
        return folder
    fresh = folder.with_name(f"{version}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    with Suite(SUITES[version]) as suite, tempfile.TemporaryDirectory(prefix="stackhound-kernel-") as temporary:
        package = kernel_package(suite, version)
        print(f"kernels: fetching {package} of Debian {suite.name} into {folder} (100 MB, once)", flush=True)
        unpacked = Path(temporary)
        suite.unpack(package, unpacked / "kernel")
        suite.unpack("busybox-static", unpacked / "busybox")
        (image,) = (unpacked / "kernel/boot").glob("vmlinuz-*")
        shutil.copyfile(image, fresh / "vmlinuz")
        busybox = next((unpacked / "busybox").rglob("bin/busybox"))
        initramfs.write_tools(fresh / "tools", unpacked / "kernel", busybox)
    fresh.rename(folder)
    return folder


def kernel_package(suite: Suite, version: str) -> str:
    """The newest of this version, whose name ends in its architecture."""
    prefix = f"linux-image-{version}."
    found = [name for name in suite.packages(prefix) if name.endswith("-amd64") and name.count("-") <= 4]
    plain = [name for name in found if not any(word in name for word in ("-cloud-", "-rt-", "-dbg"))]
    if not plain:
        raise Unavailable(f"Debian {suite.name} has no Linux {version} any more")
    return max(plain, key=sortable)


def sortable(name: str) -> list[int]:
    """The numbers in it."""
    return [int(word) for word in "".join(one if one.isdigit() else " " for one in name).split()]


def make_disk(folder: Path, arguments: list[str]) -> Path:
    """A file system with the programs of tests as far as they are compiled, and what the guest is to do."""
    content = folder / "content"
    content.mkdir()
    workloads = CHECKOUT / "target/workloads"
    if workloads.is_dir():
        shutil.copytree(workloads, content / "workloads", copy_function=os.link)
    (content / "command").write_text(guest_command(arguments))
    disk = folder / "disk"
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", content, disk], check=True)
    return disk


def guest_command(arguments: list[str]) -> str:
    environment = {
        "HOME": "/tmp",  # noqa: S108
        "HYPOTHESIS_STORAGE_DIRECTORY": "/tmp/hypothesis",  # noqa: S108
        "PATH": os.environ["PATH"],
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(CHECKOUT / "src"),  # whatever their directory is
        "TERM": os.environ.get("TERM", "dumb"),
    }
    color = f"--color={'yes' if sys.stdout.isatty() else 'no'}"
    pytest = [".venv/bin/python", "-m", "pytest", "-p", "no:cacheprovider", color, *arguments]
    words = ["env", "-i", *(f"{name}={value}" for name, value in environment.items()), *pytest]
    return f"cd {shlex.quote(str(CHECKOUT))} && exec {shlex.join(words)}\n"


if __name__ == "__main__":
    main()
