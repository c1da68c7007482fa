"""The CPython interpreters that are on this machine, and what our reader says of their processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

REPOSITORY: Final = Path(__file__).parents[2]
#: Where scripts/interpreters.sh puts those of other Debian releases.
FETCHED: Final = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "stackhound-tests", "interpreters")
#: Where pyenv puts its own.
PYENV: Final = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
#: What is read, and proven here where there is one; `t` is free-threaded.
WANTED: Final = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.13t", "3.14", "3.14t")

#: Prints which version it is of, in those words.
WHICH: Final = (
    "import platform, sys, sysconfig; platform.python_implementation() == 'CPython' or sys.exit(1);"
    "print('%d.%d' % sys.version_info[:2] + 't' * bool(sysconfig.get_config_var('Py_GIL_DISABLED')))"
)


@dataclass(frozen=True)
class Interpreter:
    """An executable, and the version that it says it is."""

    version: str
    path: Path

    def __str__(self) -> str:
        return f"{self.version}:{self.path}"

    @property
    def minor(self) -> int:
        return int(re.sub(r"\D", "", self.version.partition(".")[2]))


def interpreters() -> list[Any]:
    """Parameters for a test: every interpreter that is found, and a skip for each version that is not."""
    found = find_interpreters()
    missing = [version for version in WANTED if version not in {one.version for one in found}]
    skips = [
        pytest.param(None, id=version, marks=pytest.mark.skip(reason=f"no CPython {version}: scripts/interpreters.sh"))
        for version in missing
    ]
    return [pytest.param(one, id=str(one)) for one in found] + skips


@cache
def find_interpreters() -> list[Interpreter]:
    """Those of versions that are read."""
    found = [(version_of(path), path) for path in find_all()]
    return [Interpreter(version, path) for version, path in found if version in WANTED]


def find_all() -> list[Path]:
    """The system's, pyenv's, and those that were fetched."""
    places = [(Path("/usr/bin"), "python3.[0-9]*"), (PYENV, "*/bin/python3.[0-9]*"), (FETCHED, "*/python3.*")]
    return [path for folder, pattern in places for path in sorted(folder.glob(pattern)) if is_python(path)]


def find_version(version: str) -> Path:
    """One of any version, or the test is skipped."""
    places = [(Path("/usr/bin"), f"python{version}"), (PYENV, f"*/bin/python{version}")]
    found = next((path for folder, pattern in places for path in sorted(folder.glob(pattern))), None)
    return found or pytest.skip(f"needs CPython {version}")


def is_python(path: Path) -> bool:
    return re.fullmatch(r"python3\.\d+t?", path.name) is not None and os.access(path, os.X_OK)


def version_of(path: Path) -> str | None:
    asked = subprocess.run([path, "-c", WHICH], capture_output=True, text=True, check=False)
    return asked.stdout.strip() if asked.returncode == 0 else None


@cache
def reader() -> Path:
    """crates/core/examples/python.rs. Of the whole workspace, as all was built: other features would build anew."""
    command = ("cargo", "build", "--release", "--quiet", "--locked", "--workspace", "--example", "python")
    messages = subprocess.run(
        [*command, "--message-format=json"],
        cwd=REPOSITORY,
        env={**os.environ, "PYO3_PYTHON": sys.executable},
        check=True,
        stdout=subprocess.PIPE,
    )
    built = [json.loads(line) for line in messages.stdout.splitlines()]
    (program,) = {one["executable"] for one in built if one.get("target", {}).get("name") == "python"} - {None}
    return Path(program)


def read(*arguments: str | Path | int, text: str = "") -> list[Any]:
    """What the reader prints, a line each."""
    command = [reader(), *map(str, arguments)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
