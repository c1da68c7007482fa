"""Stacks in a few words: what they wait in, and who asked for it.

futex_wait_queue ← pthread_cond_wait ← Queue::pop ← worker
do_nanosleep ← clock_nanosleep ← time_sleep ← app.wait ← app.main
└the kernel's  └native, leaf first            └Python, leaf first
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.profile.profile import Profile

#: Functions of each kind that are shown: those nearest to the leaf.
NATIVE_FRAMES: Final = 3
PYTHON_FRAMES: Final = 3
ARROW: Final = " ← "
NO_STACK: Final = "[no stack]"
#: What the kernel leaves a CPU by, from whatever it waits in, what looks at that, what wakes a thread, and how the
#: kernel was entered. Names of Linux 5.10 to 6.18.
_COMMON: Final = re.compile(
    r"""(
    _*(io_)?schedule(_\w+)?|\w*preempt_schedule\w*|finish_task_switch|do_wait_for_common|\w*wait_for_common
    |\w*irqentry_exit\w*|\w*exit_to_user_mode\w*|(asm_)?sysvec_\w+|asm_\w+|do_syscall_64|x64_sys_call|entry_SYSCALL\w*
    |try_to_wake_up|wake_up_\w+|__wake_up\w*|\w*wake_function|__traceiter_\w+|bpf_trace_run\d+|el0t?_\w+|invoke_syscall|do_el0_svc|ret_from_fork\w*
    )(\.\w+)*""",
    re.VERBOSE,
)


class BriefStack(NamedTuple):
    """A stack in a few words, each part from the leaf on; ``kernel`` is empty where nothing of it is to be said."""

    kernel: str
    native: tuple[str, ...]
    python: tuple[str, ...]

    @property
    def frames(self) -> tuple[str, ...]:
        """All of it, from the leaf on."""
        return (*([self.kernel] if self.kernel else []), *self.native, *self.python)


class BriefStacks:
    """The stacks of a profile, each looked at when it is asked for. Names are unescaped."""

    def __init__(self, profile: Profile) -> None:
        frames = profile.frames.reversed()
        self._names, self._kinds, self._reasons = frames.name, frames.kind, frames.reason
        self._starts, self._frames = frames.offsets.tolist(), frames.frames.tolist()
        self._parents, self._locations = (profile.numbers("stacks", name).tolist() for name in ("parent", "location"))

    def brief(self, stack: int) -> BriefStack:
        """The function of the kernel that a stack runs or waits in, and functions of user space from the leaf on.

        Native ones up to the first of Python, and then Python's own; those without a name only where no other is there.
        Without user space, the kernel's callers stand for native functions.
        """
        kernel: list[str] = []
        native: list[str] = []
        python: list[str] = []
        label = ""
        for frame in self._leaf_first(stack):
            name, kind = self._names[frame], self._kinds[frame]
            if kind == "kernel":
                if not _COMMON.fullmatch(name):
                    kernel.append(name)
            elif self._reasons[frame] is not None:
                label = label or name
            elif kind == "python":
                _append(python, name, PYTHON_FRAMES)
            elif kind != "bpf" and not python:
                _append(native, name, NATIVE_FRAMES)
        if not native and not python:
            native = [label] if label else kernel[1 : 1 + NATIVE_FRAMES]
        if not native and not python and not kernel:
            native = [NO_STACK]
        return BriefStack(kernel[0] if kernel else "", tuple(native), tuple(python))

    def _leaf_first(self, stack: int) -> Iterator[int]:
        while stack:
            at = self._locations[stack]
            yield from self._frames[self._starts[at] : self._starts[at + 1]]
            stack = self._parents[stack]


def _append(names: list[str], name: str, most: int) -> None:
    """Add a name unless there are enough, or the last one is the same: it called itself."""
    if len(names) < most and names[-1:] != [name]:
        names.append(name)
