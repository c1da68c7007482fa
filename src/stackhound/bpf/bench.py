"""What one run of a program takes: loaded anew and anew, since the same program is faster or slower by where it lies.

A load of a program with branches differs from the next one by 14%, with loops by 48%, and stays so while it is loaded.
So the answer is the median over loads, each of them the middle of short batches, less what running an empty program
of the same kind takes in the same batches. Loads are added until the interval is narrow enough.
"""

from __future__ import annotations

import random
import statistics
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from stackhound import _native
from stackhound.bpf.aside import Aside
from stackhound.bpf.estimate import Interval, median_interval
from stackhound.bpf.monitor import Monitor, Rate
from stackhound.bpf.rings import open_rings
from stackhound.bpf.verify import Contained, Figures, choose_contents, read_figures, read_refusal
from stackhound.errors import RecordingError, UsageError
from stackhound.profile.native_errors import native_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    #: Measures one load: ns of a run, and of an empty one; adds what the program returned.
    Runner = Callable[["Loaded", "Plan", set[int]], tuple[float, float]]

#: Types that the kernel runs many times a call, with a packet; by what a program of theirs returns to be harmless.
PACKET_TYPES: Final = {
    "xdp": 2,
    "sched_cls": 0,
    "sched_act": 0,
    "socket_filter": 0,
    "cgroup_skb": 1,
    "flow_dissector": 0,
    "lwt_in": 0,
    "lwt_out": 0,
    "lwt_xmit": 0,
}
#: Types that it runs once a call, with a context.
CONTEXT_TYPES: Final = frozenset({"raw_tracepoint", "syscall"})

#: What cannot be told apart: half of a clock cycle, about.
FINEST_NS: Final = 0.25
XDP: Final = "xdp"
#: What follows in the sections of those that device and CPU maps run.
OF_MAPS: Final = frozenset({"cpumap", "devmap"})
TRIAL_RUNS: Final = 1_000
#: After which a measurement may end, when its time is over.
LEAST_LOADS: Final = 2
BATCH_S: Final = 0.001
CALLS_A_LOAD: Final = 2_000  # where each run is a call
MOST_REPEATS: Final = 1_000_000
PLACE_BATCH_S: Final = 0.05


@dataclass(frozen=True)
class Plan:
    """How to measure.

    Attributes:
        packet: that the program is run with, in bytes; 14 or more.
        context: that the program is run with, where its type takes one from the caller.
        expected: what it must return; None: always the same.
        maps: by map the elements to write first, (key, value).
        loads, most_loads: of the program: so many at least and at most.
        most_s: seconds after which it is not loaded any more, also where that makes fewer than ``loads``; two at least.
        batches: a load.
        spread: the interval's width that is narrow enough, as a part of the value.
        place: makes what the program is attached to happen, for so many seconds; None: the kernel runs the program.
        interface: of the network, that an XDP program is attached to in its place.
    """

    packet: bytes = bytes(64)
    context: bytes = b""
    expected: int | None = None
    maps: Mapping[str, list[tuple[bytes, bytes]]] = field(default_factory=dict)
    loads: int = 8
    most_loads: int = 256
    most_s: float = 120.0
    batches: int = 20
    spread: float = 0.02
    place: Callable[[float], None] | None = None
    interface: str = ""


@dataclass(frozen=True)
class Result:
    """What one run takes.

    Attributes:
        ns_per_run: without what running takes, median over loads.
        empty_ns: what an empty program takes in its stead, median; in place as the statistics count it.
        loads: the loads' own medians, ns.
        load_spread: from the fastest load to the slowest, as a part of ``ns_per_run`` (of 1 ns at least).
        is_conclusive: whether the interval is as narrow as was asked for.
        return_value: of the runs; None in place, where nobody sees it.
        instructions, jited_bytes: of the program after the verifier.
        figures: what the verifier had to do.
        way: ``test run`` or ``in place``.
    """

    program: str
    type: str
    ns_per_run: Interval
    empty_ns: float
    loads: tuple[float, ...]
    load_spread: float
    is_conclusive: bool
    return_value: int | None
    instructions: int
    jited_bytes: int
    figures: Figures | None
    way: str


class Loaded:
    """The program, loaded once."""

    def __init__(self, path: Path, contained: Contained, plan: Plan) -> None:
        program = contained.name
        with native_errors():
            self.native = _native.BpfObject(str(path), [program], False)
            log, reason = self.native.verified()[program]
            if not self.native.is_loaded():
                refusal = read_refusal(log, reason)
                raise RecordingError(f"the kernel refuses {program}: {refusal.message}", "see 'stackhound bpf verify'")
            for name, elements in plan.maps.items():
                for key, value in elements:
                    self.native.update(name, key, value)
        self.program = program
        self.type = contained.type
        self.section = contained.section
        self.figures = read_figures(log)


def bench(path: Path, program: str, plan: Plan) -> Result:
    """Measure one program of an object file.

    Raises:
        UsageError: there is no such program, or its type is measured otherwise.
        RecordingError: the kernel refuses it, or it returns what it should not.
    """
    (contained,) = choose_contents(path, [program])
    with ExitStack() as opened:
        return _measure(path, contained, plan, _runner(contained, plan, opened))


def _measure(path: Path, contained: Contained, plan: Plan, runner: Runner) -> Result:
    medians: list[float] = []
    empties: list[float] = []
    values: set[int] = set()
    begun_s = time.monotonic()
    while True:
        waiting = [Loaded(path, contained, plan) for _ in range(plan.loads)]
        random.shuffle(waiting)
        for loaded in waiting:
            own_ns, empty_ns = runner(loaded, plan, values)
            medians.append(max(0.0, own_ns - empty_ns))
            empties.append(empty_ns)
            is_late = time.monotonic() - begun_s >= plan.most_s
            if is_late and len(medians) >= LEAST_LOADS:
                break
        interval = median_interval(medians)
        is_narrow = interval.high - interval.low <= max(plan.spread * interval.value, 2 * FINEST_NS)
        is_conclusive = is_narrow and len(medians) >= plan.loads
        if is_conclusive or is_late or len(medians) + plan.loads > plan.most_loads:
            break
        for loaded in waiting:
            loaded.native.close()
    sizes = waiting[0].native.sizes(contained.name)
    _check_values(contained.name, values, plan.expected)
    return Result(
        contained.name,
        contained.type,
        interval,
        statistics.median(empties),
        tuple(medians),
        (max(medians) - min(medians)) / max(interval.value, 1.0),
        is_conclusive,
        min(values, default=None),
        *sizes,
        waiting[0].figures,
        "in place" if plan.place else "test run",
    )


def _runner(contained: Contained, plan: Plan, opened: ExitStack) -> Runner:
    type_ = contained.type
    if contained.section.partition("/")[2] in OF_MAPS:
        raise UsageError(
            f"the kernel runs programs of maps ({contained.section}) neither by themselves nor on an interface",
            "measure the same function in the section xdp",
        )
    if plan.place is not None:
        if type_ == XDP and not plan.interface:
            raise UsageError("an XDP program is attached to a network interface", "name it with --interface")
        return _run_in_place
    if type_ in PACKET_TYPES:
        if len(plan.packet) < 14:
            raise UsageError("a packet has 14 bytes or more", "give a longer one")
        if type_ == XDP:
            places = opened.enter_context(closing(Aside())), opened.enter_context(closing(Aside()))
            return partial(_run_aside, places)
        return _run_packets
    if type_ in CONTEXT_TYPES:
        return _run_calls
    raise UsageError(
        f"the kernel runs programs of type {type_!r} only where they are attached", "add --in-place COMMAND"
    )


def _run_aside(places: tuple[Aside, Aside], loaded: Loaded, plan: Plan, values: set[int]) -> tuple[float, float]:
    """As `_run_packets`, of programs that have to be attached to be run fast: it and an empty one, to a place each."""
    program = loaded.program
    with native_errors():
        nothing = _native.BpfObject.nothing(loaded.section, PACKET_TYPES[loaded.type])

    def run_empty(repeat: int, _: int) -> float:
        return nothing.run(nothing.NOTHING, plan.packet, b"", repeat)[1] / repeat

    with places[0].attached(loaded.native, program), places[1].attached(nothing, nothing.NOTHING):
        found = _run_both(loaded, plan, values, run_empty)
    nothing.close()
    return found


def _run_packets(loaded: Loaded, plan: Plan, values: set[int]) -> tuple[float, float]:
    """Ns of a run, and of an empty one, batch by batch in turn."""

    def run_empty(repeat: int, value: int) -> float:
        return loaded.native.run_empty(loaded.program, plan.packet, b"", repeat, value)[1] / repeat

    return _run_both(loaded, plan, values, run_empty)


def _run_both(
    loaded: Loaded, plan: Plan, values: set[int], run_empty: Callable[[int, int], float]
) -> tuple[float, float]:
    native, program = loaded.native, loaded.program
    with native_errors(), open_rings(native.id(program)) as rings:
        rings.empty()
        native.run(program, plan.packet, b"", 1)
        fitting = rings.runs_that_fit() or MOST_REPEATS
        rings.empty()
        trial = min(TRIAL_RUNS, fitting)
        each_ns = native.run(program, plan.packet, b"", trial)[1] / trial
        repeat = min(fitting, max(TRIAL_RUNS, min(MOST_REPEATS, int(BATCH_S * 1e9 / max(1.0, each_ns)))))
        own, empty = [], []
        for _ in range(plan.batches):
            rings.empty()
            value, elapsed_ns = native.run(program, plan.packet, b"", repeat)
            values.add(value)
            own.append(elapsed_ns / repeat)
            empty.append(run_empty(repeat, value))
    return _middle(own), _middle(empty)


def _middle(values: list[float]) -> float:
    """The mean of the middle half: whole numbers of ns have no better median."""
    ordered = sorted(values)
    cut = len(ordered) // 4
    return statistics.fmean(ordered[cut : len(ordered) - cut])


def _run_calls(loaded: Loaded, plan: Plan, values: set[int]) -> tuple[float, float]:
    """The same where the kernel's statistics have to tell, since a call is one run."""
    native, program = loaded.native, loaded.program
    own, empty = [], []
    with native_errors():
        ids = native.id(program), native.empty_id(program, 0)
    with Monitor() as monitor, native_errors(), open_rings(ids[0]) as rings:
        calls = max(1, CALLS_A_LOAD // plan.batches)
        for _ in range(plan.batches):
            rings.empty()
            for _ in range(calls):
                values.add(native.run(program, b"", plan.context, 1)[0])
                native.run_empty(program, b"", plan.context, 1, 0)
            rates = monitor.read().rates
            own.append(_ns_of_calls(rates.get(ids[0]), calls, program))
            empty.append(_ns_of_calls(rates.get(ids[1]), calls, "an empty program"))
    return _middle(own), _middle(empty)


def _ns_of_calls(rate: Rate | None, calls: int, program: str) -> float:
    """Of a run, where the statistics have them all: without any it would seem to take no time."""
    runs = rate.runs if rate else 0
    if rate is None or runs < calls:
        raise RecordingError(
            f"the kernel's statistics have {runs:,} of {calls:,} runs of {program}",
            "see that nobody switches them off meanwhile (kernel.bpf_stats_enabled)",
        )
    return rate.ns_per_run


def _run_in_place(loaded: Loaded, plan: Plan, values: set[int]) -> tuple[float, float]:  # noqa: ARG001 - nobody sees what it returns
    """The same under a load, the program and an empty one attached in turn: there the statistics themselves take two
    or three times of what they take of a program that runs again and again, since the load has the caches.
    """
    own, empty = [], []
    with native_errors():
        nothing = _native.BpfObject.nothing(loaded.section, PACKET_TYPES.get(loaded.type, 0))
        id_ = loaded.native.id(loaded.program)
    with Monitor() as monitor, open_rings(id_) as rings, rings.kept_empty():
        for _ in range(plan.batches):
            own += _counted_in_place(monitor, loaded.native, loaded.program, plan)
            empty += _counted_in_place(monitor, nothing, nothing.NOTHING, plan)
    nothing.close()
    if not own or not empty:
        raise RecordingError(f"{loaded.program} did not run", "choose a load that makes its event happen")
    return _middle(own), _middle(empty)


def _counted_in_place(monitor: Monitor, native: _native.BpfObject, program: str, plan: Plan) -> list[float]:
    """Ns of a run under the load, as the statistics count it; none when it did not run."""
    place = plan.place or time.sleep
    with native_errors():
        id_ = native.id(program)
        native.attach(program, plan.interface)
    monitor.read()
    try:
        place(PLACE_BATCH_S)
        rate = monitor.read().rates.get(id_)
    finally:
        with native_errors():
            native.detach(program)
    return [rate.ns_per_run + monitor.overhead.counted_ns] if rate and rate.runs else []


def _check_values(program: str, values: set[int], expected: int | None) -> None:
    if len(values) > 1 and expected is None:
        shown = ", ".join(map(str, sorted(values)[:5]))
        raise RecordingError(f"{program} returned different values: {shown}", "say which is right with --expect")
    if expected is not None and values - {expected}:
        wrong = next(iter(values - {expected}))
        raise RecordingError(f"{program} returned {wrong}, not {expected}", "give it the input that it is made for")
