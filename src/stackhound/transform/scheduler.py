"""Time off the CPU without the scheduler's own functions, which each such stack ends in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from stackhound.profile.columns import with_columns
from stackhound.profile.schema import KERNEL_KINDS
from stackhound.transform.locations import functions_named, outermost

if TYPE_CHECKING:
    from stackhound.profile import Profile

#: What switches to another thread, and what does so for a while. Names of Linux 5.10 to 6.18, ``kernel/sched/core.c``,
#: ``kernel/time/sleep_timeout.c``.
SCHEDULER: Final = re.compile(
    r"""(
    __schedule|schedule(_timeout|_preempt_disabled|_rtlock|_user|_idle)?
    |schedule_timeout_(interruptible|uninterruptible|killable|idle)
    |schedule_hrtimeout(_range(_clock)?)?|io_schedule(_timeout)?
    |preempt_schedule(_common|_irq|_notrace|_thunk)?|(__|_|dynamic_)?cond_resched
    )(\.\w+)*""",
    re.VERBOSE,
)


def fold_scheduler(profile: Profile) -> Profile:
    """Let samples of ``off-cpu`` end in the function that waits, or was preempted, instead of in what it waits with.

    Samples of other events stay as they are: there, the scheduler's functions are what ran.
    """
    away = [event.id for event in profile.events if event.name == "off-cpu"]
    if not away or profile.inverted:
        return profile
    is_scheduler = outermost(profile, functions_named(profile, SCHEDULER, KERNEL_KINDS))
    location, parent = profile.numbers("stacks", "location"), profile.numbers("stacks", "parent")
    shown = np.arange(len(parent), dtype=np.uint32)
    is_left_out = is_scheduler[location] & (parent != 0)  # where there is nothing else, that is something
    is_left_out[0] = False
    for stack in np.flatnonzero(is_left_out).tolist():
        shown[stack] = shown[parent[stack]]  # parents come before their children
    stack = profile.numbers("samples", "stack")
    is_away = np.isin(profile.numbers("samples", "event"), away)
    samples = with_columns(profile.table("samples"), stack=np.where(is_away, shown[stack], stack))
    return profile.derive({"samples": samples}, "fold-scheduler")
