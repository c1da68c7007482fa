"""Texts that the tables of a profile refer to by number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackhound.profile.escape import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Characters of a text. C++ has longer names, which nobody reads to their end.
LONGEST = 4096


class Strings:
    """Each text once, printable.

    Attributes:
        texts: all of them; the others are row numbers.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._ids: dict[str, int] = {}

    def intern(self, text: str) -> int:
        """The number of ``text``, made printable."""
        known = self._ids.get(text)
        if known is None:
            known = self._ids[text] = self._add(printable(text, LONGEST))
        return known

    def intern_all(self, texts: Iterable[str]) -> list[int]:
        """The number of each of ``texts``."""
        return [self.intern(text) for text in texts]

    def _add(self, text: str) -> int:
        known = self._ids.setdefault(text, len(self.texts))
        if known == len(self.texts):
            self.texts.append(text)
        return known
