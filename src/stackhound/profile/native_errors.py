"""Errors of the Rust module as the exceptions that the user sees."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from stackhound import _native
from stackhound.errors import from_native

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def native_errors() -> Iterator[None]:
    """Turn a `_native.NativeError` into what `stackhound.errors` has for it."""
    try:
        yield
    except _native.NativeError as error:
        raise from_native(error) from error
