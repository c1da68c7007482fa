"""The CPython interpreters of this machine: the system's, pyenv's, and those that scripts/interpreters.sh fetched."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

WHICH = (
    "import sys, sysconfig; "
    "print('%d.%d' % sys.version_info[:2] + 't' * bool(sysconfig.get_config_var('Py_GIL_DISABLED')))"
)


def interpreters() -> dict[str, Path]:
    """By what to call them: where they are from, and their version."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    fetched = cache / "stackhound-tests" / "interpreters"  # as scripts/interpreters.sh has it
    places = {"system": (Path("/usr/bin"), "python3.[0-9]*"), "pyenv": (pyenv, "*/bin/python3.[0-9]*"),
              "fetched": (fetched, "*/python3.[0-9]*")}  # fmt: skip
    found = {}
    for origin, (folder, pattern) in places.items():
        for path in sorted(folder.glob(pattern)):
            version = version_of(path)
            if version and int(version[2:].rstrip("t")) >= 9:
                found[f"{version} ({origin})"] = path
    return found


def version_of(path: Path) -> str:
    """Empty where it is no interpreter."""
    if "-" in path.name or not os.access(path, os.X_OK):
        return ""
    return subprocess.run((path, "-c", WHICH), capture_output=True, text=True, check=False).stdout.strip()
