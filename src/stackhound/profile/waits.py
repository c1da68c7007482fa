"""What a thread waits for, by the functions of its stack."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackhound.profile.threads import ThreadFrame

#: Functions in which a thread sleeps until it has Python's lock. ``take_gil`` and ``drop_gil``, which waits for another
#: to take it, are all that it needs; the others are exported, and so known of a stripped interpreter (3.9 to 3.14,
#: ``Python/ceval_gil.c``, ``Python/pystate.c``).
TAKES_LOCK: Final = frozenset(
    {"take_gil", "drop_gil", "PyEval_RestoreThread", "PyEval_AcquireThread", "PyEval_AcquireLock", "PyGILState_Ensure"}
)
#: What of the C library ``take_gil`` and ``drop_gil`` call; nothing else in the interpreter does, whose other locks are
#: semaphores (``Python/thread_pthread.h``, ``Python/parking_lot.c``).
LOCK_CALL: Final = re.compile(r"(__GI_)?_*pthread_(mutex_(un)?lock|cond_(\w*wait|signal))\w*")
#: Executes Python code. Exported by every interpreter: its file is one.
EVALUATION: Final = "_PyEval_EvalFrameDefault"

#: Entries of system calls: x86-64's, its 32-bit ones, arm64's (``SYSCALL_DEFINEx`` of the kernel), and what they call.
_ENTRY: Final = re.compile(r"__(?:x64|ia32|arm64)(?:_compat)?_sys_(\w+)|(?:__do_sys_|__se_sys_|ksys_)(\w+)")
PAGE_FAULT: Final = re.compile(r"(asm_)?exc_page_fault|do_user_addr_fault|do_page_fault")

#: By system call, what ends the sleep in it; a call that is not here names itself.
WAITS_FOR: Final = {
    **dict.fromkeys(("futex", "futex_wait", "futex_waitv"), "a lock or a condition"),
    **dict.fromkeys(
        ("read", "readv", "pread64", "preadv", "preadv2", "recvfrom", "recvmsg", "recvmmsg", "getrandom"), "input"
    ),
    **dict.fromkeys(
        ("write", "writev", "pwrite64", "pwritev", "pwritev2", "sendto", "sendmsg", "sendmmsg", "sendfile64", "splice"),
        "room for its output",
    ),
    **dict.fromkeys(
        (
            *("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"),
            *("io_uring_enter", "io_getevents", "io_pgetevents"),
        ),
        "events",
    ),
    **dict.fromkeys(("nanosleep", "clock_nanosleep"), "a timer"),
    **dict.fromkeys(("wait4", "waitid"), "a child process"),
    **dict.fromkeys(("accept", "accept4", "connect"), "a connection"),
    **dict.fromkeys(("pause", "rt_sigsuspend", "rt_sigtimedwait"), "a signal"),
    **dict.fromkeys(("flock", "fcntl"), "a file's lock"),
    **dict.fromkeys(("fsync", "fdatasync", "sync", "syncfs", "msync", "sync_file_range"), "the disk"),
    **dict.fromkeys(("semop", "semtimedop", "mq_timedreceive", "mq_timedsend", "msgrcv", "msgsnd"), "another process"),
    **dict.fromkeys(("vfork", "clone", "clone3"), "its child"),
    "page fault": "a page of memory",
}


def find_system_call(frames: Sequence[ThreadFrame]) -> str | None:
    """The system call that a stack, leaf first, is in; ``page fault`` in the handling of one; None for neither."""
    found = None
    for frame in frames:
        if frame.kind != "kernel":
            break
        if entry := _ENTRY.fullmatch(frame.name):
            found = entry[1] or entry[2]
        elif PAGE_FAULT.fullmatch(frame.name):
            found = "page fault"
    return found


def waits_for_lock(frames: Sequence[ThreadFrame]) -> bool:
    """Whether a stack, leaf first, waits for Python's lock: above its innermost Python function."""
    interpreters = {frame.object for frame in frames if frame.name == EVALUATION}
    for frame, caller in pairwise(frames):
        if frame.kind == "python":
            return False
        if frame.name in TAKES_LOCK:
            return True
        if caller.object in interpreters and LOCK_CALL.fullmatch(frame.name):
            return True
    return False
