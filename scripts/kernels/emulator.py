"""QEMU, and a guest in it."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Final, NamedTuple

from debian import Suite, Unavailable, cache

if TYPE_CHECKING:
    from pathlib import Path

#: Older ones crash while they emulate newer kernels: Debian 12's 7.2 in 17 of 28 boots of 6.12.
OLDEST: Final = (10, 0, 2)
#: Debian 13 has 10.0.
SUITE: Final = "trixie"
CPUS: Final = 2
MEMORY_MIB: Final = 3072


class Guest(NamedTuple):
    """What a guest is made of, and where what it says goes."""

    kernel: Path
    initramfs: Path
    disk: Path
    console: Path
    status: Path
    checkout: Path
    accelerator: str


def find() -> list[str]:
    """The command of a QEMU that is new enough: the system's, or Debian's in the user's cache."""
    own = shutil.which("qemu-system-x86_64")
    if own and _version([own]) >= OLDEST:
        return [own]
    folder = cache() / "qemu"
    if not folder.is_dir():
        _fetch(folder)
    command = _unpacked(folder)
    if _version(command) < OLDEST:
        raise Unavailable(f"QEMU {'.'.join(map(str, OLDEST))} or newer is needed")
    return command


def run(emulator: list[str], guest: Guest, timeout_s: float) -> int:
    """Boots it and waits until its command has ended. What that prints goes to our standard output.

    Returns:
        The command's exit status.

    Raises:
        Unavailable: it took too long, or never told its status.
    """
    with subprocess.Popen([*emulator, *_options(guest)], stdin=subprocess.DEVNULL) as machine:
        try:
            machine.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"the guest was ended after {timeout_s:.0f} s") from error
        finally:
            machine.kill()
    status = guest.status.read_text().strip() if guest.status.exists() else ""
    if not status.isdecimal():
        raise Unavailable("the guest ended before its tests did")
    return int(status)


def _fetch(folder: Path) -> None:
    """With all that it needs: it runs on any release."""
    print(f"kernels: fetching QEMU of Debian {SUITE} into {folder} (100 MB, once)", flush=True)
    fresh = folder.with_name("qemu.new")
    shutil.rmtree(fresh, ignore_errors=True)
    with Suite(SUITE) as suite:
        suite.unpack_all("qemu-system-x86", fresh)
    fresh.rename(folder)


def _unpacked(folder: Path) -> list[str]:
    """Started by the loader of its own C library, with firmware of its own."""
    usr = folder / "usr"
    loader = next(usr.rglob("ld-linux-x86-64.so.2"))
    libraries = str(usr / "lib/x86_64-linux-gnu")
    firmware = [option for name in ("qemu", "seabios") for option in ("-L", str(usr / "share" / name))]
    return [str(loader), "--library-path", libraries, str(usr / "bin/qemu-system-x86_64"), *firmware]


def _version(command: list[str]) -> tuple[int, ...]:
    text = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"version (\d+)\.(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else ()


def _options(guest: Guest) -> list[str]:
    accelerator = {"kvm": ["-accel", "kvm", "-cpu", "host"], "tcg": ["-accel", "tcg,thread=multi", "-cpu", "max"]}
    words = f"console=ttyS0 quiet panic=-1 checkout={guest.checkout}"
    share = "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"
    return [
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-machine", "q35", *accelerator[guest.accelerator], "-smp", str(CPUS), "-m", str(MEMORY_MIB)),
        *("-kernel", str(guest.kernel), "-initrd", str(guest.initramfs), "-append", words),
        *("-serial", f"file:{guest.console}", "-serial", "stdio", "-serial", f"file:{guest.status}"),
        *("-drive", f"file={guest.disk},format=raw,if=virtio"),
        *("-fsdev", share, "-device", "virtio-9p-pci,fsdev=host,mount_tag=host"),
    ]
