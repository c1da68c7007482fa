"""What ``record`` and ``run`` are asked for: their options, and the request that these make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from stackhound.cli.output import Target, choose_target
from stackhound.cli.parameters import (
    Decorated,
    debug_dirs_option,
    event_option,
    flag,
    frequency_option,
    list_option,
    output_option,
    parse_duration,
    parse_size,
    pids_option,
    software_option,
    split_names,
)
from stackhound.errors import UsageError
from stackhound.recording.options import (
    DEBUGINFOD_BYTES,
    DEBUGINFOD_TIME_S,
    DEFAULT_HZ,
    HEAP_INTERVAL_BYTES,
    HEAP_MAX_SLOWDOWN_PERCENT,
    RecordOptions,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_WHAT: Final = (
    frequency_option(DEFAULT_HZ),
    click.option("-c", "--period", type=int, metavar="N", help="A sample each N events (of cpu: each N nanoseconds)."),
    pids_option,
    flag("-a", "whole_system", help="The whole machine: the default without -p or COMMAND."),
    list_option(
        "-e",
        "events",
        parse=split_names,
        default=("cpu",),
        metavar="EVENT,...",
        help="What to sample, see 'stackhound list'; all: where time goes; repeatable.  [default: cpu]",
    ),
    software_option,
    flag("-g", "call_graph", help="Accepted for perf's sake: stacks are always recorded."),
    click.option(
        "--call-graph",
        "unwind",
        type=click.Choice(("dwarf", "fp")),
        default="dwarf",
        callback=lambda _context, _option, mode: mode == "dwarf",
        help="How callers are found: by unwind tables, or by frame pointers alone.  [default: dwarf]",
    ),
    flag("--python/--no-python", default=True, help="Show Python's own frames.  [default: yes]"),
    flag("--async", "asyncio", help="Show which asyncio tasks await the one that runs (CPython 3.12 and newer)."),
    click.option(
        "-d", "--duration", "duration_s", type=parse_duration, metavar="TIME", help="End after 10, 500ms, 5m."
    ),
)

_WHICH: Final = (
    click.option("--comm", default="", help="Only threads of this name."),
    click.option("--cgroup", default="", metavar="PATH", help="Only this cgroup (v2)."),
    flag("--user-only", help="Leave out the kernel."),
    flag("--kernel-only", help="Leave out user space."),
    flag("--inherit/--no-inherit", default=True, help="Follow children.  [default: yes]"),
    flag("--include-self", help="Show stackhound itself, too."),
)

_OFF_CPU: Final = (
    click.option(
        "--min-us", "off_cpu_min_us", type=int, default=0, metavar="N", help="Of off-cpu: leave out shorter absences."
    ),
    click.option("--max-us", "off_cpu_max_us", type=int, metavar="N", help="Of off-cpu: leave out longer absences."),
    flag("--off-cpu-exact", help="Of off-cpu: record each absence, whatever that costs."),
    flag("--wakers", help="Of off-cpu: record who woke the thread, and where."),
    click.option("--off-cpu-at-departure", is_flag=True, hidden=True),  # for tests: as on kernels before 6.15
)

_HEAP: Final = (
    click.option(
        "--heap-interval",
        "heap_interval_bytes",
        type=parse_size,
        default=str(HEAP_INTERVAL_BYTES),
        metavar="SIZE",
        help="Of heap: a sample each so many bytes, at random.  [default: 512K]",
    ),
    flag("--heap-uprobes", help="Of heap: watch COMMAND as it is, by uprobes, as -p does."),
    click.option(
        "--heap-max-slowdown",
        "heap_max_slowdown_percent",
        type=float,
        default=HEAP_MAX_SLOWDOWN_PERCENT,
        metavar="PERCENT",
        help="Of heap with uprobes: how much slower they may make a thread.  [default: 5]",
    ),
)

_HOW: Final = (
    flag("--aggregate", help="Count equal stacks in the kernel: for high rates, for hours."),
    flag("--lines/--no-lines", default=True, help="Find lines and inlined functions.  [default: yes]"),
    debug_dirs_option,
    flag("--debuginfod", help="Fetch debug files that are not here from the servers of DEBUGINFOD_URLS, at the end."),
    click.option(
        "--debuginfod-time",
        "debuginfod_time_s",
        type=parse_duration,
        default=f"{DEBUGINFOD_TIME_S:g}s",
        metavar="TIME",
        help="How long that may take.  [default: 30s]",
    ),
    click.option(
        "--debuginfod-size",
        "debuginfod_bytes",
        type=parse_size,
        default=str(DEBUGINFOD_BYTES),
        metavar="SIZE",
        help="How much may be fetched.  [default: 1G]",
    ),
    click.option(
        "--ring-size",
        "ring_bytes",
        type=parse_size,
        default="0",
        metavar="SIZE",
        help="Of each CPU's ring of samples, for example 4M.",
    ),
    flag("--as-root", help="Under sudo, run COMMAND as root instead of as you."),
)

_WHERE: Final = (
    output_option,
    click.option("--format", "format_name", metavar="FORMAT", help="The format, whatever the suffix."),
    event_option,
)

#: Parameters that are attributes of `RecordOptions`.
_RECORD_OPTIONS: Final = (
    "pids",
    "events",
    "frequency_hz",
    "period",
    "software_only",
    "inherit",
    "comm",
    "cgroup",
    "user_only",
    "kernel_only",
    "unwind",
    "python",
    "asyncio",
    "include_self",
    "off_cpu_min_us",
    "off_cpu_max_us",
    "off_cpu_exact",
    "wakers",
    "off_cpu_at_departure",
    "heap_interval_bytes",
    "heap_max_slowdown_percent",
    "aggregate",
    "lines",
    "ring_bytes",
    "debug_dirs",
    "debuginfod",
    "debuginfod_time_s",
    "debuginfod_bytes",
)


def record_options(command: Decorated) -> Decorated:
    """Everything that says what to record, how, and where to."""
    options: tuple[Callable[[Decorated], Decorated], ...] = (*_WHAT, *_WHICH, *_OFF_CPU, *_HEAP, *_HOW, *_WHERE)
    for option in reversed(options):
        command = option(command)
    return command


class Request(NamedTuple):
    """One call of ``record``."""

    options: RecordOptions
    command: tuple[str, ...]
    whole_system: bool
    duration_s: float | None
    target: Target
    event: str | None
    as_root: bool
    heap_uprobes: bool = False

    @classmethod
    def parse(cls, given: dict[str, Any], log_level: int) -> Request:
        """The request that the parameters of a command line make.

        Raises:
            UsageError: they make no sense together.
        """
        if given["whole_system"] and given["pids"]:
            raise UsageError("-a and -p exclude each other", "drop one of them")
        options = RecordOptions(log_level=log_level, **{name: given[name] for name in _RECORD_OPTIONS})
        target = choose_target(given["output"], given["format_name"])
        _check_event(options, target, given["event"])
        if options.records_heap and not (given["pids"] or (given["command"] and not given["whole_system"])):
            raise UsageError("allocations are followed in processes of your choice", "give -p PID or -- COMMAND")
        return cls(
            options=options,
            command=given["command"],
            whole_system=given["whole_system"],
            duration_s=given["duration_s"],
            target=target,
            event=given["event"],
            as_root=given["as_root"],
            heap_uprobes=given["heap_uprobes"],
        )


def _check_event(options: RecordOptions, target: Target, event: str | None) -> None:
    """See that the output can be drawn: after the recording it would be too late."""
    names = [source.name for source in options.sources]
    if event is None and target.format.single_event and len(names) > 1:
        shown = f"{target.format.name} shows one of the events {', '.join(names)}"
        raise UsageError(shown, "choose one with --event NAME")
    if event is not None and event not in names:
        raise UsageError(f"no event {event!r} is recorded", f"choose one of {', '.join(names)}")
