"""Holds the Python packages that users get with ours to the licence list of deny.toml."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageMetadata, distribution, metadata
from pathlib import Path
from typing import Any

from packaging.licenses import canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: How packages that predate licence expressions (PEP 639) say it.
OLD_NAMES = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Python Software Foundation License": "PSF-2.0",
}


def main() -> None:
    allowed = set(read_toml("deny.toml")["licenses"]["allow"])
    roots = [Requirement(text) for text in read_toml("pyproject.toml")["project"]["dependencies"]]
    wrong = {name: text for name in closure(roots) if not is_allowed(text := licence_of(metadata(name)), allowed)}
    for name, text in wrong.items():
        print(f"{name}: {text!r} is not on the list in deny.toml", file=sys.stderr)
    sys.exit(1 if wrong else 0)


def read_toml(path: str) -> dict[str, Any]:
    return tomllib.loads(Path(path).read_text())


def closure(requirements: list[Requirement]) -> list[str]:
    """The names of all packages that ``requirements`` bring, themselves included."""
    names: dict[str, None] = {}
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in names and applies(requirement):
            names[name] = None
            waiting += [Requirement(text) for text in distribution(name).requires or []]
    return sorted(names)


def applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def licence_of(package: PackageMetadata) -> str:
    """An SPDX expression, or what the package says in its place."""
    if expression := package.get("License-Expression"):
        return canonicalize_license_expression(expression)
    old = [OLD_NAMES.get(text, text) for text in package.get_all("Classifier", []) if text.startswith("License ::")]
    return " AND ".join(old) or package.get("License") or "none named"


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Whether every licence in ``expression`` is allowed; stricter than SPDX, which asks for one side of an OR."""
    return all(term.strip(" ()") in allowed for term in re.split(r" AND | OR ", expression))


if __name__ == "__main__":
    main()
