"""What can go wrong, as the user sees it.

    StackhoundError                 the user's request failed; ``remedy`` says what to do
    ├── UsageError                  the request makes no sense                             exit 2
    ├── RecordingError              nothing could be recorded, or a recording broke off
    │   ├── PermissionMissing       a capability or a sysctl is in the way
    │   ├── KernelUnsupported       this kernel lacks what is needed
    │   ├── EventUnavailable        this machine has no such event
    │   ├── NoSuchProcess           a process to record is not there
    │   └── CommandNotRun           COMMAND could not be started
    ├── ProfileError                a file cannot be read as a profile
    │   ├── NotAProfile             it is something else
    │   ├── DamagedProfile          it is truncated or corrupted
    │   └── NewerProfile            a later version wrote it
    ├── EmptyProfile                no sample was recorded, or none is left
    ├── OutputError                 a result cannot be written
    ├── BenchmarkError              a benchmark failed, or what it gave makes no sense
    │   ├── TooNoisy                this machine cannot tell what is asked
    │   └── HistoryError            the file of earlier results cannot be used
    └── FreeThreadedPython          an ImportError, too: this Python cannot load the native module

A frame without a name is no exception: its reason travels in the data. Neither is a lost sample: it is counted.
"""

from __future__ import annotations


class StackhoundError(Exception):
    """A failed request. ``str()`` is one line; ``remedy`` (may be empty) is what to do about it."""

    exit_code = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}: {self.remedy}" if self.remedy else self.message


class UsageError(StackhoundError):
    exit_code = 2


class RecordingError(StackhoundError):
    pass


class PermissionMissing(RecordingError):
    pass


class KernelUnsupported(RecordingError):
    pass


class EventUnavailable(RecordingError):
    pass


class NoSuchProcess(RecordingError):
    pass


class CommandNotRun(RecordingError):
    pass


class ProfileError(StackhoundError):
    pass


class NotAProfile(ProfileError):
    pass


class DamagedProfile(ProfileError):
    pass


class NewerProfile(ProfileError):
    pass


class EmptyProfile(StackhoundError):
    pass


class OutputError(StackhoundError):
    pass


class BenchmarkError(StackhoundError):
    pass


class TooNoisy(BenchmarkError):
    pass


class HistoryError(BenchmarkError):
    pass


class FreeThreadedPython(StackhoundError, ImportError):
    pass


def reason_of(error: OSError) -> str:
    """What the system says went wrong, to stand in a sentence."""
    return (error.strerror or str(error)).lower()


#: The one map from the Rust module's error kinds (``crates/python/src/errors.rs``) to exceptions.
NATIVE_KINDS: dict[str, type[StackhoundError]] = {
    "usage": UsageError,
    "recording": RecordingError,
    "permission": PermissionMissing,
    "kernel": KernelUnsupported,
    "event": EventUnavailable,
    "no-process": NoSuchProcess,
    "damaged": DamagedProfile,
    "output": OutputError,
}


def from_native(error: Exception) -> StackhoundError:
    """The exception for a `_native.NativeError`, whose ``args`` are (kind, message, remedy)."""
    kind, message, remedy = error.args
    return NATIVE_KINDS[kind](message, remedy)
