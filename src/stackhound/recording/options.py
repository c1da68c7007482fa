"""What a recording is asked to do, checked before anything is touched."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from stackhound.errors import EventUnavailable, NoSuchProcess, PermissionMissing, UsageError
from stackhound.recording.events import (
    ALL,
    BLOCK_IO,
    HEAP,
    NAMED,
    OFF_CPU,
    TRACEPOINT,
    WHERE_TIME_GOES,
    EventSource,
    find_event,
)

DEFAULT_HZ: Final = 99  # not 100: it must not beat in time with timers that fire 100 times a second
OFF_CPU_PERIOD_NS: Final = 1_000_000
HEAP_INTERVAL_BYTES: Final = 512 * 1024  # as Go, tcmalloc and jemalloc have it
HEAP_MAX_SLOWDOWN_PERCENT: Final = 5.0
MAX_HEAP_INTERVAL_BYTES: Final = 2**40
MAX_OFF_CPU_US: Final = 2**53  # three centuries
MAX_PERIOD: Final = 2**63 - 1  # perf_event_open refuses a period with its highest bit set
MIN_RING_BYTES: Final = 8192  # of pages, and with room for the longest sample
MAX_RING_BYTES: Final = 2**30  # holds minutes of 9,999 Hz

DEBUGINFOD_TIME_S: Final = 30.0
DEBUGINFOD_BYTES: Final = 2**30

MAX_SAMPLE_RATE: Final = Path("/proc/sys/kernel/perf_event_max_sample_rate")


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """What to record.

    Attributes:
        pids: processes, with all their threads; empty means the whole system.
        held_pids: those of ``pids`` that are recorded from their next exec on (COMMAND, until it is released).
        events: by the names of `stackhound.recording.events`.
        frequency_hz: samples a second and CPU; None means 99 (a tracepoint: each time it is hit).
        period: a sample each time an event has counted this many; for ``cpu`` in nanoseconds of CPU time.
        off_cpu_period_ns: of ``off-cpu``: absences at least so long make a sample each, shorter ones one together
            for each so much time; the core makes it longer while there are more than 1,000 samples a second and CPU.
        off_cpu_exact: of ``off-cpu``: a sample for each absence, whatever that costs.
        off_cpu_min_us: of ``off-cpu``: leave out shorter absences.
        off_cpu_max_us: of ``off-cpu``: leave out longer ones; None leaves out none.
        wakers: of ``off-cpu``: record who woke the thread, with the stack that did it.
        off_cpu_at_departure: of ``off-cpu``: look at threads when they leave a CPU, even where the kernel tells when
            they come back (since Linux 6.15). It takes more, and may confuse callers that wait at one place.
        heap_interval_bytes: of ``heap``: of so many bytes allocated one is a sample, on average.
        heap_library: of ``heap``: the library that the programs were started with (`heap_library.install`).
            Without one, the allocators of the processes are watched by uprobes: from now on, and as they are.
        heap_files: of that: what the command will have mapped, watched from its first instruction on (`Executable`).
        heap_max_slowdown_percent: of that: how much slower traps may make one thread; they are taken off meanwhile.
        heap_note: why there is no library, to be said at the end.
        software_only: use cpu-clock even where there is a cycle counter.
        inherit: follow children of ``pids``.
        comm: only threads that are called so (the kernel keeps 15 bytes).
        cgroup: only this cgroup: a directory, or a name below the cgroup v2 mount.
        user_only: leave out the kernel.
        kernel_only: leave out user space.
        unwind: find callers by what programs say of their code (``.eh_frame``); otherwise by frame pointers alone.
        kernel_walk: of kernel stacks, where they begin with an interrupt: by the kernel's ``tables`` (ORC), read by us;
            by the ``kernel`` itself; or ``compared``, by both, which counts where they differ. The first needs
            ``unwind``, and finds nothing else: where it does not come to the end, the kernel is asked.
        python: show Python's own frames in programs that run it; needs ``unwind``.
        asyncio: show the asyncio tasks that await the one that runs; needs ``python``, and CPython 3.12 in the program.
        include_self: show the collector, too.
        aggregate: count equal stacks in the kernel, for high rates and long recordings.
        lines: look up source lines and inlined functions, not only names.
        ring_bytes: size of each CPU's ring of samples, a power of two; 0 lets the core choose.
        raw_addresses: keep the addresses behind each sample (``stream``).
        drain_interval_ms: how often the collector looks into the buffer; 0 lets the core choose.
        debug_dirs: where separate debug files are, besides /usr/lib/debug.
        debuginfod: at the end, ask the servers of DEBUGINFOD_URLS for debug files that this machine lacks.
        debuginfod_time_s: how long that may take.
        debuginfod_bytes: how much may be fetched.
        log_level: 3 (debug) lets libbpf speak on stderr, 4 (trace) say all that it has.

    Raises:
        UsageError: the options make no sense, alone or together.
    """

    pids: tuple[int, ...] = ()
    held_pids: tuple[int, ...] = ()
    events: tuple[str, ...] = ("cpu",)
    frequency_hz: int | None = None
    period: int | None = None
    off_cpu_period_ns: int = OFF_CPU_PERIOD_NS
    off_cpu_exact: bool = False
    off_cpu_min_us: int = 0
    off_cpu_max_us: int | None = None
    wakers: bool = False
    off_cpu_at_departure: bool = False
    heap_interval_bytes: int = HEAP_INTERVAL_BYTES
    heap_library: Path | None = None
    heap_files: tuple[Path, ...] = ()
    heap_max_slowdown_percent: float = HEAP_MAX_SLOWDOWN_PERCENT
    heap_note: str = ""
    software_only: bool = False
    inherit: bool = True
    comm: str = ""
    cgroup: str = ""
    user_only: bool = False
    kernel_only: bool = False
    unwind: bool = True
    kernel_walk: Literal["tables", "kernel", "compared"] = "tables"
    python: bool = True
    asyncio: bool = False
    include_self: bool = False
    aggregate: bool = False
    lines: bool = True
    ring_bytes: int = 0
    raw_addresses: bool = False
    drain_interval_ms: int = 0
    debug_dirs: tuple[Path, ...] = ()
    debuginfod: bool = False
    debuginfod_time_s: float = DEBUGINFOD_TIME_S
    debuginfod_bytes: int = DEBUGINFOD_BYTES
    log_level: int = 0

    def __post_init__(self) -> None:
        self._check_targets()
        self._check_rate()
        self._check_off_cpu()
        self._check_heap()
        self._check_ring()

    def native(self) -> dict[str, Any]:
        """The dict that `_native.Session` wants.

        Raises:
            UsageError: an event or a cgroup has no such name.
            EventUnavailable: a tracepoint, and tracefs cannot be read.
        """
        return {
            "events": [self._native_event(source) for source in self.sources],
            "software_only": self.software_only,
            "pids": list(dict.fromkeys(self.pids)),
            "held_pids": list(self.held_pids),
            "inherit": self.inherit,
            "comm": self.comm,
            "cgroup": self._cgroup_directory(),
            "user_only": self.user_only,
            "kernel_only": self.kernel_only,
            "unwind": self.unwind,
            "kernel_walk": self.kernel_walk,
            "python": self.python,
            "asyncio": self.asyncio,
            "include_self": self.include_self,
            "aggregate": self.aggregate,
            "off_cpu_min_us": self.off_cpu_min_us,
            "off_cpu_max_us": MAX_OFF_CPU_US if self.off_cpu_max_us is None else self.off_cpu_max_us,
            "off_cpu_exact": self.off_cpu_exact,
            "wakers": self.wakers,
            "off_cpu_at_departure": self.off_cpu_at_departure,
            "heap_library": str(self.heap_library or ""),
            "heap_uprobes": self.records_heap and self.heap_library is None,
            "heap_files": [str(path) for path in self.heap_files],
            "heap_max_slowdown_percent": self.heap_max_slowdown_percent,
            "ring_bytes": self.ring_bytes,
            "raw_addresses": self.raw_addresses,
            "drain_interval_ms": self.drain_interval_ms,
            "debug_dirs": [str(directory) for directory in self.debug_dirs],
            "debuginfod_cache": self._debuginfod_cache(),
            "log_level": self.log_level,
        }

    def check_machine(self) -> None:
        """Compare with what is there now: events, processes, directories, the kernel's limit of the frequency.

        Raises:
            NoSuchProcess, PermissionMissing, EventUnavailable, UsageError: what is asked for is not to be had.
        """
        self.native()
        for pid in self.pids:
            check_process(pid)
        for directory in self.debug_dirs:
            if not directory.is_dir():
                raise UsageError(f"the debug directory {str(directory)!r} is not there", "name an existing directory")
        if self.debuginfod:
            from stackhound.recording.debuginfod import Limits, find_servers

            find_servers()
            Limits.of_environment(self.debuginfod_time_s, self.debuginfod_bytes)
        if self.period is None:
            _check_sample_rate(self.frequency_hz or DEFAULT_HZ)

    @cached_property
    def sources(self) -> list[EventSource]:
        """The events without repetition, whatever alias named them, but those that this machine does not have.

        Raises:
            UsageError: an event has no such name.
            EventUnavailable: tracepoints alone, and tracefs cannot be read.
        """
        return list(self._found[0].values())

    @cached_property
    def missing(self) -> dict[str, str]:
        """The events that this machine does not have, and why: those of ``all``, and tracepoints among others.

        What shows only when programs are loaded is in the notes of the recording itself.
        """
        return self._found[1]

    @cached_property
    def _found(self) -> tuple[dict[str, EventSource], dict[str, str]]:
        found: dict[str, EventSource] = {}
        missing: dict[str, str] = {}
        refused: EventUnavailable | None = None
        for name in self.events:
            if name == ALL:
                missing |= _missing_of_all()
                found |= {one: NAMED[one] for one in WHERE_TIME_GOES if one not in missing}
                continue
            try:
                source = find_event(name)
            except EventUnavailable as error:
                refused = error
                missing[name] = str(error)
            else:
                found[source.name] = source
        if refused and not found:
            raise refused
        return found, missing

    @property
    def records_heap(self) -> bool:
        """Whether allocations are among the events."""
        return any(source.type == HEAP for source in self.sources)

    def notes(self) -> list[str]:
        """What is to be said of a recording before it begins."""
        missing = [f"{name} is not recorded: {reason}" for name, reason in self.missing.items()]
        return [*missing, *([self.heap_note] if self.heap_note else [])]

    def _native_event(self, source: EventSource) -> dict[str, Any]:
        if source.type == OFF_CPU:
            return source.native("period", self.off_cpu_period_ns)
        if source.type == BLOCK_IO:
            return source.native("period", 1)  # the core makes it longer while there are many requests
        if source.type == HEAP:
            return source.native("period", self.heap_interval_bytes)
        if self.period is not None:
            return source.native("period", self.period)
        if source.type == TRACEPOINT and self.frequency_hz is None:
            return source.native("period", 1)
        return source.native("frequency", self.frequency_hz or DEFAULT_HZ)

    def _cgroup_directory(self) -> str:
        if not self.cgroup:
            return ""
        from stackhound.recording.cgroups import find_cgroup

        return str(find_cgroup(self.cgroup))

    def _debuginfod_cache(self) -> str:
        if not self.debuginfod:
            return ""
        from stackhound.recording.debuginfod import find_cache

        return str(find_cache())

    def _check_targets(self) -> None:
        for pid in self.pids:
            if pid <= 0:
                raise UsageError(f"{pid} is not a process id", "ids are positive numbers, see 'ps'")
        if not self.events:
            raise UsageError("no event to record", "name one, for example cpu")
        if self.user_only and self.kernel_only:
            raise UsageError("user only and kernel only exclude each other", "drop one of them")
        if self.asyncio and not (self.python and self.unwind):
            raise UsageError("tasks are shown with Python's frames", "drop --no-python and --call-graph fp, or --async")

    def _check_rate(self) -> None:
        if self.frequency_hz is not None and self.period is not None:
            raise UsageError("a frequency and a period exclude each other", "give -F or -c, not both")
        if self.frequency_hz is not None and self.frequency_hz < 1:
            raise UsageError(f"a frequency of {self.frequency_hz} Hz records nothing", "use 1 or more, for example 99")
        if self.period is not None and not 1 <= self.period <= MAX_PERIOD:
            raise UsageError(f"a period of {self.period} is out of range", f"use 1 to {MAX_PERIOD}")

    def _check_off_cpu(self) -> None:
        if not 1 <= self.off_cpu_period_ns <= MAX_PERIOD:
            raise UsageError(
                f"a period of {self.off_cpu_period_ns} ns off the CPU is out of range", "use 1000000, a millisecond"
            )
        shortest = self.off_cpu_min_us
        longest = MAX_OFF_CPU_US if self.off_cpu_max_us is None else self.off_cpu_max_us
        for given in (shortest, longest):
            if not 0 <= given <= MAX_OFF_CPU_US:
                raise UsageError(f"no absence is {given} µs long", f"use 0 to {MAX_OFF_CPU_US}")
        if shortest > longest:
            raise UsageError(
                f"no absence is both {shortest} µs or longer and {longest} µs or shorter",
                "give --min-us at most what --max-us has",
            )
        if self.wakers and all(source.type != OFF_CPU for source in self.sources):
            raise UsageError("wakers are told with time off the CPU", "add -e off-cpu, or drop --wakers")
        if self.wakers and self.aggregate:
            raise UsageError("what is combined has no waker of its own", "drop --aggregate or --wakers")

    def _check_heap(self) -> None:
        if not 0 < self.heap_max_slowdown_percent <= 100:
            raise UsageError(
                f"a slowdown of at most {self.heap_max_slowdown_percent:g}% is out of range", "use for example 5"
            )
        if not 1 <= self.heap_interval_bytes <= MAX_HEAP_INTERVAL_BYTES:
            raise UsageError(
                f"a sample each {self.heap_interval_bytes} bytes is out of range",
                f"use 1 to {MAX_HEAP_INTERVAL_BYTES}, for example 512K",
            )

    def _check_ring(self) -> None:
        size = self.ring_bytes
        if size and not (MIN_RING_BYTES <= size <= MAX_RING_BYTES and size.bit_count() == 1):
            raise UsageError(
                f"a ring of {size} bytes is not possible",
                f"use a power of two from {MIN_RING_BYTES} to {MAX_RING_BYTES}, for example 4M",
            )


def _missing_of_all() -> dict[str, str]:
    from stackhound.recording.catalogue import why_missing

    reasons = {name: why_missing(NAMED[name]) for name in WHERE_TIME_GOES}
    return {name: reason for name, reason in reasons.items() if reason}


def check_process(pid: int) -> None:
    """See that the process is there and that its memory map may be read.

    Raises:
        NoSuchProcess, PermissionMissing.
        UsageError: it is a thread of another process.
    """
    directory = Path("/proc", str(pid))
    try:
        status = (directory / "status").read_bytes()
        _check_is_process(pid, status)
        # Opening it is what the kernel guards (ptrace_may_access); it may be empty (a kernel thread, a zombie).
        (directory / "maps").open("rb").close()
    except (FileNotFoundError, ProcessLookupError):
        raise NoSuchProcess(f"there is no process {pid}", "'ps -e' or 'pgrep NAME' shows what runs") from None
    except PermissionError:
        raise PermissionMissing(
            f"no permission to look into process {pid}", "run with sudo, or give stackhound CAP_SYS_PTRACE"
        ) from None


def _check_is_process(pid: int, status: bytes) -> None:
    tgid = next(int(line[5:]) for line in status.splitlines() if line.startswith(b"Tgid:"))
    if tgid != pid:
        raise UsageError(f"{pid} is a thread of process {tgid}", f"record the process: -p {tgid}")


def _check_sample_rate(frequency_hz: int) -> None:
    try:
        limit_hz = int(MAX_SAMPLE_RATE.read_text())
    except OSError:
        return  # without the file (a container may hide it) perf_event_open says so itself
    if frequency_hz > limit_hz:
        raise UsageError(
            f"this kernel takes at most {limit_hz} samples a second, not {frequency_hz}",
            f"use -F {limit_hz}, or 'sudo sysctl kernel.perf_event_max_sample_rate={frequency_hz}'",
        )
