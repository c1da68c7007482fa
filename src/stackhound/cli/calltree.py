"""A call tree as text.

     total     self
    100.0%     0.0%  all
     66.7%     0.0%  main
                     work
     33.3%    33.3%  ├─ add
     33.3%    33.3%  └─ parse

A call that is its caller's only one stands below it without another indent: real stacks are deep, and most of their
frames fork nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackhound.profile.escape import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.profile import CallTree


def draw(tree: CallTree, least_percent: float) -> Iterator[str]:
    """The lines of the tree, without what has less than ``least_percent`` of all."""
    whole = max(1, int(tree.total_value[0]))
    least = whole * least_percent / 100
    yield f"{'total':>7}  {'self':>7}"
    # (node, what stands before its name, what stands before its callees'): a stack of our own, for deep trees
    waiting = [(0, "", "")]
    while waiting:
        node, before, below = waiting.pop()
        total, own = 100 * int(tree.total_value[node]) / whole, 100 * int(tree.self_value[node]) / whole
        yield f"{total:6.1f}%  {own:6.1f}%  {before}{printable(tree.name(node))}"
        callees = [callee for callee in tree.children(node).tolist() if tree.total_value[callee] >= max(least, 1)]
        waiting += reversed(list(_branches(callees, below)))


def _branches(callees: list[int], below: str) -> Iterator[tuple[int, str, str]]:
    for position, callee in enumerate(callees):
        if len(callees) == 1:
            yield callee, below, below
        elif position < len(callees) - 1:
            yield callee, f"{below}├─ ", f"{below}│  "
        else:
            yield callee, f"{below}└─ ", f"{below}   "
