"""Text of profiled processes made harmless for a terminal."""

from __future__ import annotations


def printable(text: str, limit: int | None = None) -> str:
    r"""``text`` with everything escaped that a terminal would act on or that would mislead a reader.

    Escaped as Python writes it (``\x1b``): controls, line breaks, marks that turn the direction of writing, and all
    else that `str.isprintable` refuses. Longer than ``limit`` characters, it is cut and ends in ``…``.
    """
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
