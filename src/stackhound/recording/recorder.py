"""A recording from Python: what the command line uses, and what programs use to watch themselves."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from stackhound import _native
from stackhound.errors import RecordingError, UsageError
from stackhound.profile.native_errors import native_errors
from stackhound.recording.notebook import find_cells
from stackhound.recording.options import (
    DEBUGINFOD_BYTES,
    DEBUGINFOD_TIME_S,
    HEAP_INTERVAL_BYTES,
    HEAP_MAX_SLOWDOWN_PERCENT,
    RecordOptions,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from arro3.core import Table
    from typing_extensions import Self

    from stackhound.profile import Profile


#: Enough to call the core. A thread that imports keeps Python's lock for 5 ms at a time, and the core would wait.
HEAD_START_S: Final = 0.001


class Status(NamedTuple):
    """How a recording goes, since its start. The names are those of `_native.Session.status`."""

    samples: int
    lost: int
    entries: int
    bpf_ns: int
    bpf_runs: int
    collector_cpu_ns: int
    resident_bytes: int
    elapsed_ns: int


class Recorder:
    """One recording of this machine: started, stopped, and then a profile. Works once.

    Needs root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE.
    """

    def __init__(self, options: RecordOptions, *, hides_itself: bool = False) -> None:
        """Check the options against this machine; nothing is loaded yet.

        Args:
            options: what to record.
            hides_itself: leave out of the profile what stackhound does in this process.

        Raises:
            UsageError, NoSuchProcess, PermissionMissing, EventUnavailable: what is asked for cannot be had.
        """
        options.check_machine()
        if options.records_heap and not options.pids:
            raise UsageError("allocations are followed in processes of your choice", "name them: -p PID, pids=[PID]")
        if os.getpid() in options.pids:
            options = replace(options, include_self=True)
        self.options = options
        self.hides_itself = hides_itself
        self._profile: Profile | None = None
        with native_errors():
            self._session = _native.Session(options.native())

    @property
    def profile(self) -> Profile:
        """What was recorded.

        Raises:
            RecordingError: the recording has not been stopped.
        """
        if self._profile is None:
            raise RecordingError("there is no profile before the recording has ended", "call stop() first")
        return self._profile

    def start(self) -> None:
        """Load and attach the BPF programs and begin to sample.

        Raises:
            RecordingError: it could not begin; nothing is left behind.
        """
        with native_errors():
            self._session.start()

    def wait(self, timeout_s: float) -> str:
        """Wait until something ends: ``timeout``, ``targets-exited`` or ``failed``. 0 only looks."""
        with native_errors():
            return self._session.wait(timeout_s)

    def status(self) -> Status:
        """How it goes."""
        with native_errors():
            return Status(**self._session.status())  # type: ignore[arg-type]

    def take(self) -> dict[str, Table]:
        """The rows of all tables that are new since the last call."""
        from arro3.core import Table

        with native_errors():
            tables = self._session.take(self.options.lines)
        return {name: Table.from_arrow(tables.take(name)) for name in tables.names()}

    def stop(self) -> Profile:
        """End the recording and put names to its addresses. A second call gives the same profile.

        Raises:
            RecordingError: it broke off.
        """
        if self._profile is None:
            # numpy and Arrow take 130 ms to import, which is too long before the first sample. Now the core is busy.
            imports = import_meanwhile("stackhound.profile.profile")
            notes = [*self.options.notes(), *(self._fetch_debug_files() if self.options.debuginfod else [])]
            with native_errors():
                tables, metadata = self._session.finish(self.options.lines)
            imports.join()
            from stackhound.profile import Profile

            profile = Profile.from_native(tables, metadata, notes)
            if self.hides_itself:
                profile = profile.without_recorder(os.getpid(), [imports.native_id or 0])
            if os.getpid() in self.options.pids or not self.options.pids:
                profile = profile.name_cells(find_cells(profile.texts("functions", "file")))
            self._profile = profile
        return self._profile

    def _fetch_debug_files(self) -> list[str]:
        """End the sampling, and fetch what its names could be found in. Returns what is to be said of it."""
        from stackhound.recording.debuginfod import Debuginfod, Limits, find_cache, find_servers

        with native_errors():
            missing = self._session.stop(self.options.lines)
        if not missing:
            return []
        limits = Limits.of_environment(self.options.debuginfod_time_s, self.options.debuginfod_bytes)
        report = Debuginfod(find_servers(), find_cache(), limits).fetch([build_id for build_id, _ in missing])
        return [str(report)]

    def close(self) -> None:
        """End the recording and throw it away, unless it was stopped."""
        self._session.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Also after an exception: what led to it is what one wants to see.
        try:
            self.stop()
        finally:
            self.close()


def import_meanwhile(*modules: str) -> threading.Thread:
    """Import modules in a thread, while this one is about to wait for the core."""

    def import_all() -> None:
        time.sleep(HEAD_START_S)
        for module in modules:
            import_module(module)

    imports = threading.Thread(target=import_all)
    imports.start()
    return imports


def record(
    *,
    pids: Sequence[int] = (),
    whole_system: bool = False,
    events: Sequence[str] = ("cpu",),
    frequency_hz: int | None = None,
    period: int | None = None,
    off_cpu_exact: bool = False,
    off_cpu_min_us: int = 0,
    off_cpu_max_us: int | None = None,
    wakers: bool = False,
    heap_interval_bytes: int = HEAP_INTERVAL_BYTES,
    heap_max_slowdown_percent: float = HEAP_MAX_SLOWDOWN_PERCENT,
    software_only: bool = False,
    inherit: bool = True,
    comm: str = "",
    cgroup: str = "",
    user_only: bool = False,
    kernel_only: bool = False,
    unwind: bool = True,
    python: bool = True,
    asyncio: bool = False,
    include_self: bool = False,
    aggregate: bool = False,
    lines: bool = True,
    debug_dirs: Sequence[str | Path] = (),
    debuginfod: bool = False,
    debuginfod_time_s: float = DEBUGINFOD_TIME_S,
    debuginfod_bytes: int = DEBUGINFOD_BYTES,
) -> Recorder:
    """Record while a ``with`` block runs; afterwards ``.profile`` is there.

    Without ``pids``, ``comm``, ``cgroup`` and ``whole_system`` it records this process, all its threads and the
    children that it starts meanwhile: in a script or a notebook it is the block's own work that one wants to see.

    Args:
        pids: these processes instead; the id of this one may be among them.
        whole_system: everything that runs on the machine, this process too.
        include_self: show also what stackhound does in this process: its threads, the recording's start and end.

    The others are attributes of `RecordOptions`.

    Raises:
        UsageError: the arguments exclude each other.
        StackhoundError: see `Recorder`.

    Examples:
        >>> with stackhound.record() as recording:  # doctest: +SKIP
        ...     work()
        >>> recording.profile.top(10)  # doctest: +SKIP
    """
    if whole_system and pids:
        raise UsageError("the whole system and some of its processes exclude each other", "drop one of them")
    if not (pids or comm or cgroup or whole_system):
        pids = (os.getpid(),)
    options = RecordOptions(
        pids=tuple(pids),
        events=tuple(events),
        frequency_hz=frequency_hz,
        period=period,
        off_cpu_exact=off_cpu_exact,
        off_cpu_min_us=off_cpu_min_us,
        off_cpu_max_us=off_cpu_max_us,
        wakers=wakers,
        heap_interval_bytes=heap_interval_bytes,
        heap_max_slowdown_percent=heap_max_slowdown_percent,
        software_only=software_only,
        inherit=inherit,
        comm=comm,
        cgroup=cgroup,
        user_only=user_only,
        kernel_only=kernel_only,
        unwind=unwind,
        python=python,
        asyncio=asyncio,
        include_self=True,
        aggregate=aggregate,
        lines=lines,
        debug_dirs=tuple(Path(directory) for directory in debug_dirs),
        debuginfod=debuginfod,
        debuginfod_time_s=debuginfod_time_s,
        debuginfod_bytes=debuginfod_bytes,
    )
    return Recorder(options, hides_itself=not include_self)
