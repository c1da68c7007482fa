"""Time off the CPU without the scheduler's own functions, which each such stack ends in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stackhound.profile.schema import KERNEL_KINDS
from stackhound.transform.leaves import end_before
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
    if profile.inverted or all(event.name != "off-cpu" for event in profile.events):
        return profile
    is_scheduler = outermost(profile, functions_named(profile, SCHEDULER, KERNEL_KINDS))
    return end_before(profile, "off-cpu", is_scheduler, "fold-scheduler")
