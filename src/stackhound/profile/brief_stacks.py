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
#: How Python's threads begin: ``threading.py``. They say nothing of what a thread does.
THREAD_STARTS: Final = frozenset(f"threading.Thread.{name}" for name in ("run", "_bootstrap_inner", "_bootstrap"))
ARROW: Final = " ← "
NO_STACK: Final = "[no stack]"
#: What the kernel leaves a CPU by, from whatever it waits in, what looks at that, what wakes a thread, and how the
#: kernel was entered. Names of Linux 5.10 to 6.18.
_COMMON: Final = re.compile(
    r"""(
    _*(\w+_)?schedule(_\w+)?|\w*preempt_schedule\w*|finish_task_switch|do_wait_for_common|\w*wait_for_common
    |\w*irqentry_exit\w*|\w*exit_to_user_mode\w*|(asm_)?sysvec_\w+|asm_\w+|do_syscall_64|x64_sys_call|entry_SYSCALL\w*
    |try_to_wake_up|wake_up_\w+|__wake_up\w*|\w*wake_function|__traceiter_\w+|bpf_trace_run\d+
    |el0t?_\w+|invoke_syscall|do_el0_svc|ret_from_fork\w*
    )(\.\w+)*""",
    re.VERBOSE,
)
#: Of these the function that was called is shown, not what that is made of: base names of files.
_C_LIBRARY: Final = re.compile(
    r"(libc|libpthread|librt|ld-linux|ld-musl|libc\.musl)([-.].*)?\.so.*|ld(64)?\.so.*|\[vdso\]"
)
#: What compilers put behind the name of a function that they split or specialized.
_SUFFIXES: Final = re.compile(r"(\.(constprop|isra|part|cold|llvm)(\.\d+)?)+$")


class BriefStack(NamedTuple):
    """A stack in a few words, each part from the leaf on; ``kernel`` is empty where nothing of it is to be said."""

    kernel: str
    native: tuple[str, ...]
    python: tuple[str, ...]

    @property
    def frames(self) -> tuple[str, ...]:
        """All of it, from the leaf on."""
        return (*([self.kernel] if self.kernel else []), *self.native, *self.python)


class _Parts(NamedTuple):
    """Names of a stack's functions by what they are of, each from the leaf on.

    Attributes:
        library: of the C library, up to where it was called; ``native``: the others.
        nameless: labels of files.
    """

    kernel: list[str]
    library: list[str]
    native: list[str]
    python: list[str]
    nameless: list[str]


class BriefStacks:
    """The stacks of a profile, each looked at when it is asked for. Names are unescaped."""

    def __init__(self, profile: Profile) -> None:
        frames = profile.frames.reversed()
        self._names, self._kinds, self._reasons = frames.name, frames.kind, frames.reason
        is_c_library = [
            bool(_C_LIBRARY.fullmatch(path.rpartition("/")[2])) for path in profile.texts("objects", "path")
        ]
        self._is_c_library = [is_c_library[one] for one in frames.object.tolist()]
        self._starts, self._frames = frames.offsets.tolist(), frames.frames.tolist()
        self._parents, self._locations = (profile.numbers("stacks", name).tolist() for name in ("parent", "location"))

    def brief(self, stack: int) -> BriefStack:
        """The function of the kernel that a stack runs or waits in, and functions of user space from the leaf on.

        Native ones up to the first of Python, and then Python's own; those without a name only where no other is there.
        Without user space, the kernel's callers stand for native functions.
        """
        parts = _Parts([], [], [], [], [])
        for frame in self._leaf_first(stack):
            self._sort(frame, parts)
        kernel, *callers = parts.kernel or [""]
        called = parts.library[-1:] if parts.native or parts.python else parts.library[:NATIVE_FRAMES]
        native = (*called, *parts.native)
        if not native and not parts.python:
            native = tuple(parts.nameless[:1] or callers[:NATIVE_FRAMES])
        if not native and not parts.python and not kernel:
            native = (NO_STACK,)
        return BriefStack(kernel, native, tuple(parts.python))

    def _sort(self, frame: int, parts: _Parts) -> None:
        name, kind = self._names[frame], self._kinds[frame]
        if kind == "kernel":
            if not _COMMON.fullmatch(name):
                parts.kernel.append(_SUFFIXES.sub("", name))
        elif self._reasons[frame] is not None:
            parts.nameless.append(name)
        elif kind == "python":
            if not parts.python or name not in THREAD_STARTS:
                _append(parts.python, name, PYTHON_FRAMES)
        elif kind != "bpf" and not parts.python:
            if not self._is_c_library[frame]:
                _append(parts.native, _SUFFIXES.sub("", name), NATIVE_FRAMES)
            elif not parts.native:
                parts.library.append(_SUFFIXES.sub("", name))

    def _leaf_first(self, stack: int) -> Iterator[int]:
        while stack:
            at = self._locations[stack]
            yield from self._frames[self._starts[at] : self._starts[at + 1]]
            stack = self._parents[stack]


def _append(names: list[str], name: str, most: int) -> None:
    """Add a name unless there are enough, or the last one is the same: it called itself."""
    if len(names) < most and names[-1:] != [name]:
        names.append(name)
