"""Profile in, profile out: pure functions, one subject a file.

Each one keeps the losses and the metadata, and adds a line to ``metadata["transforms"]`` that says what was done.
Tables that this version does not know are kept; one with a column ``sample`` loses the rows of dropped samples.
"""

from stackhound.transform.allocators import fold_allocators, keep_live
from stackhound.transform.cells import name_cells
from stackhound.transform.compact import compact
from stackhound.transform.diff import Difference, diff
from stackhound.transform.filter import filter_samples
from stackhound.transform.focus import focus, ignore, show_from, without_callers
from stackhound.transform.inlines import drop_inlined
from stackhound.transform.interpreter import fold_interpreter
from stackhound.transform.invert import invert
from stackhound.transform.merge import merge
from stackhound.transform.off_wake import show_wakers
from stackhound.transform.recorder import without_recorder
from stackhound.transform.recursion import collapse_recursion
from stackhound.transform.scheduler import fold_scheduler
from stackhound.transform.threads import merge_threads
from stackhound.transform.weights import weigh_by_count, weigh_by_time

__all__ = [
    "Difference",
    "collapse_recursion",
    "compact",
    "diff",
    "drop_inlined",
    "filter_samples",
    "focus",
    "fold_allocators",
    "fold_interpreter",
    "fold_scheduler",
    "ignore",
    "invert",
    "keep_live",
    "merge",
    "merge_threads",
    "name_cells",
    "show_from",
    "show_wakers",
    "weigh_by_count",
    "weigh_by_time",
    "without_callers",
    "without_recorder",
]
