"""Network interfaces that no packet ever passes, to attach XDP programs to while they are run for their own sake.

To run one that is attached nowhere the kernel patches its own code before and after each call, which takes some 15 ms
(``bpf_prog_change_xdp`` in ``bpf_prog_test_run_xdp``, Linux net/bpf/test_run.c); one that is attached it just runs.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from stackhound.errors import RecordingError
from stackhound.profile.native_errors import native_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound import _native

CLONE_NEWNET: Final = 0x4000_0000
OF_THIS_THREAD: Final = "/proc/thread-self/ns/net"
#: Each namespace has this one.
LOOPBACK: Final = "lo"


class Aside:
    """The loopback interface of a network namespace of its own.

    Raises:
        RecordingError: this process may not make one.
    """

    def __init__(self) -> None:
        with _returning():
            _call("unshare", CLONE_NEWNET)
            self._namespace = os.open(OF_THIS_THREAD, os.O_RDONLY)

    @contextmanager
    def attached(self, native: _native.BpfObject, program: str) -> Iterator[None]:
        """Have a program attached there until the block ends; the interface takes one at a time."""
        with _returning(), native_errors():
            _call("setns", self._namespace, CLONE_NEWNET)
            native.attach(program, LOOPBACK)
        try:
            yield
        finally:
            with native_errors():
                native.detach(program)

    def close(self) -> None:
        """Let the namespace go."""
        os.close(self._namespace)


@contextmanager
def _returning() -> Iterator[None]:
    """Back in its own network namespace when the block ends: this thread's, no other's is changed."""
    own = os.open(OF_THIS_THREAD, os.O_RDONLY)
    try:
        yield
    finally:
        try:
            _call("setns", own, CLONE_NEWNET)
        finally:
            os.close(own)


def _call(function: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments):
        reason = os.strerror(ctypes.get_errno()).lower()
        raise RecordingError(f"cannot measure XDP programs aside from the network: {function}: {reason}", "run as root")
