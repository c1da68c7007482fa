"""What the kernel has, as the core finds it."""

from __future__ import annotations

from functools import cache

import pytest

from stackhound import _native


@cache
def _found() -> dict[str, tuple[str, str]]:
    return {name: (state, detail) for name, state, detail in _native.probe()}


def needs(name: str) -> None:
    """Skip the test where ``stackhound doctor`` does not say ok to this."""
    state, detail = _found()[name]
    if state != "ok":
        pytest.skip(f"{name}: {detail}")
