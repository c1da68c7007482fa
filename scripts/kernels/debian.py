"""Debian packages of any release, unpacked into a folder. Nothing is installed; the system's sources stay as they are.

The mirror and the keys are those that the system has for its own packages.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


class Unavailable(Exception):
    """Something cannot be had here; the message says what."""


class Suite:
    """A release, as apt sees it that knows of nothing else and has nothing installed; a context manager."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._temporary = tempfile.TemporaryDirectory(prefix="stackhound-apt-")
        self._folder = Path(self._temporary.name)

    def __enter__(self) -> Self:
        for folder in ("lists/partial", "archives/partial"):
            (self._folder / folder).mkdir(parents=True)
        (self._folder / "status").touch()
        mirror, suites = _mirror(), {self.name, self.name.removesuffix("-backports")}  # those are not whole
        (self._folder / "sources.list").write_text("".join(f"deb {mirror} {name} main\n" for name in suites))
        self._apt("get", "update")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._temporary.cleanup()

    def packages(self, prefix: str) -> list[str]:
        """Those whose names begin so."""
        return self._apt("cache", "pkgnames", prefix).split()

    def unpack(self, package: str, folder: Path) -> None:
        """A package alone."""
        self._apt("get", "download", package)
        self._extract(folder)

    def unpack_all(self, package: str, folder: Path) -> None:
        """A package and all that it depends on, down to the C library."""
        self._apt("get", "install", "--download-only", "--no-install-recommends", "--yes", package)
        self._extract(folder)

    def _extract(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for package in self._folder.rglob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
            package.unlink()

    def _apt(self, tool: str, *arguments: str) -> str:
        settings = {
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::sourcelist": self._folder / "sources.list",
            "Dir::State::lists": self._folder / "lists",
            "Dir::State::status": self._folder / "status",
            "Dir::Cache": self._folder,
            "Dir::Cache::archives": self._folder / "archives",
        }
        options = [f"--option={name}={value}" for name, value in settings.items()]
        command = [f"apt-{tool}", "-qq", *options, *arguments]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"apt-{tool} {' '.join(arguments)} of Debian {self.name}: {done.stderr.strip()}")
        return done.stdout


def _mirror() -> str:
    """Where the system has its own packages from."""
    command = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)", "Created-By: Packages"]
    try:
        targets = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable("no apt here: kernels come from Debian's packages") from error
    for target in targets:
        origin, _, address = target.partition(" ")
        if origin == "Debian" and "security" not in address:
            return address
    raise Unavailable("apt knows no mirror of Debian (if it should: sudo apt-get update)")


def cache() -> Path:
    """Where what was fetched is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "stackhound-tests", "kernels")
