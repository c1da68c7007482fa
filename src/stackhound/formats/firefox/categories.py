"""What kinds of code there are, in the front-end's colours."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from stackhound.profile.schema import KERNEL_KINDS


class Category(NamedTuple):
    """A kind of code. The front-end knows these colours: ``CategoryColor`` in its src/types/profile.ts."""

    name: str
    color: str


#: The first grey one is what a frame without a category gets. None is called ``Idle``: the front-end hides that one,
#: and with it whatever slept in it.
CATEGORIES: Final = (
    Category("Other", "grey"),
    Category("Kernel", "orange"),
    Category("Native", "blue"),
    Category("Native, inlined", "lightblue"),
    Category("Python", "green"),
    Category("Awaiting", "yellow"),
    Category("JIT", "magenta"),
    Category("BPF", "purple"),
    Category("Waker", "lightred"),
)
_BY_NAME: Final = {category.name: number for number, category in enumerate(CATEGORIES)}


def category_of(kind: str, inlined: bool) -> int:
    """The category of a frame in an object of ``kind``: index into `CATEGORIES`."""
    named = {"python": "Python", "task": "Awaiting", "jit": "JIT", "bpf": "BPF", "waker": "Waker"}.get(kind)
    if named:
        return _BY_NAME[named]
    if kind in KERNEL_KINDS:
        return _BY_NAME["Kernel"]
    if kind == "unknown":
        return _BY_NAME["Other"]
    return _BY_NAME["Native, inlined" if inlined else "Native"]


def as_rows() -> list[dict[str, Any]]:
    """The categories as the format has them."""
    return [{**category._asdict(), "subcategories": ["Other"]} for category in CATEGORIES]
