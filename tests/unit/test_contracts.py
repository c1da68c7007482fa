"""What two files say of one thing, they say alike."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from stackhound import errors
from stackhound.cli.main import SUBCOMMANDS

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "THIRD-PARTY.md"]

#: Documents name these, and a build or a recording makes them.
MADE = {"flame.html", "stackhound.hound", "docs/flame.png"}


def paths_in(document: str) -> list[str]:
    """Every ``path/or/file.suffix`` in backticks; ``a/{b,c}.rs`` is two; placeholders and absolute paths are none."""
    text = (ROOT / document).read_text()
    found = []
    for quoted in re.findall(r"`([\w./{},-]+)`", text):
        if (
            quoted.startswith(("/", ".", "-"))
            or "NAME" in quoted
            or not re.search(r"/|\.(md|toml|py|rs|h|c|sh|txt|json)$", quoted)
        ):
            continue
        found += expand(quoted)
    return sorted(set(found) - MADE)


def expand(path: str) -> list[str]:
    if not (braces := re.search(r"\{([^}]*)\}", path)):
        return [path]
    return [path[: braces.start()] + part + path[braces.end() :] for part in braces[1].split(",")]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_that_a_document_names_is_there(document: str) -> None:
    paths = paths_in(document)
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert not missing


def test_the_architecture_names_many_files() -> None:
    assert len(paths_in("ARCHITECTURE.md")) > 10, "the pattern of paths_in finds nothing"


def test_every_command_in_the_readme_exists() -> None:
    named = set(re.findall(r"`(?:sudo )?stackhound (\w+)", (ROOT / "README.md").read_text()))
    assert named
    assert named <= set(SUBCOMMANDS)


def test_every_kind_of_error_in_rust_has_an_exception_in_python() -> None:
    rust = (ROOT / "crates/python/src/errors.rs").read_text()
    kinds = set(re.findall(r'=>\s*\(?"([a-z-]+)"', rust)) | set(re.findall(r'native\("([a-z-]+)"', rust))
    assert kinds
    assert kinds <= set(errors.NATIVE_KINDS)


def test_the_tree_of_exceptions_is_drawn_as_it_is() -> None:
    drawn = set(re.findall(r"─ (\w+)", errors.__doc__ or "")) | {"StackhoundError"}
    defined = {
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert drawn == defined


def test_the_package_has_the_version_of_the_workspace() -> None:
    workspace = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert workspace
    shown = subprocess.run(
        [sys.executable, "-m", "stackhound", "--version"], capture_output=True, text=True, check=True
    )
    assert shown.stdout == f"stackhound {workspace[1]}\n"


def test_the_oldest_rust_in_the_readme_is_the_one_in_cargo_toml() -> None:
    wanted = re.search(r'^rust-version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert wanted
    assert f"Rust ≥ {wanted[1]}" in (ROOT / "README.md").read_text()
