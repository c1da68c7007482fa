"""What measuring BPF programs costs and how well it repeats.

    .venv/bin/python benches/bpf_programs.py [--check]

A hundred programs are loaded, and `stackhound bpf top` looks at them every two seconds: its own CPU time is what it
says itself, without its start. Then the same programs are measured twice by `stackhound.bpf.bench`, again and again,
one of them with `bpf_loop`, whose loads differ most. Last they are measured by test runs and in place: on a virtual
cable, with packets as fast as the other end can make them, the same as those of the test runs; what computes by itself,
and what writes to a ring buffer, whose memory a load takes out of the caches: a target each.

Control: another program, which does more, must not seem to take as long.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build import OUTPUT, REPOSITORY, STACKHOUND, compile_fixture
from harness.estimate import estimate
from harness.report import Report
from stackhound import _native
from stackhound.bpf.bench import Plan, bench
from stackhound.bpf.estimate import Interval

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.bpf.bench import Result

PROGRAMS = 100
READINGS = 6
TARGET_PERCENT = 0.1
TARGET_RATIO = 1.02
TARGET_IN_PLACE = 1.1
PAIRS = 5
MOST_S = 45.0  # of a measurement: 20 of them in a quarter of an hour at most
REPEATED = ("add_up", "add_in_loop")
#: What is measured in place by what it does; the example's own program comes from another file.
PLACED = {"compute": ("add_up", "add_in_loop"), "write to a ring": ("report", "log_source")}
EXAMPLE = REPOSITORY / "examples" / "xdp_source_logger"
#: What examples/xdp_source_logger/flood.c sends: Ethernet, and IPv4 from 192.0.2.1.
PACKET = bytes.fromhex("ffffffffffff00000000000008004500002e0000000040fd0000c0000201c6336401") + bytes(26)
SENDER, RECEIVER = "hound-send", "hound-receive"
SOURCE = REPOSITORY / "tests" / "fixtures" / "workloads" / "measured.bpf.c"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="little of all, to see that it runs")
    is_check = parser.parse_args().check
    report = Report("bpf_programs", {"programs": PROGRAMS, "pairs": PAIRS})
    path = compile_fixture(SOURCE)
    example = compile_fixture(EXAMPLE / "xdp_source_logger.bpf.c", with_libbpf=True)
    look(report, path, 2 if is_check else READINGS)
    plan = Plan(loads=2, most_loads=2, batches=4) if is_check else Plan(most_s=MOST_S)
    repeat(report, path, 1 if is_check else PAIRS, plan)
    paths = {program: example if program == "log_source" else path for kind in PLACED.values() for program in kind}
    compare_places(report, paths, replace(plan, most_loads=min(plan.most_loads, 32)))
    report.finish()


def look(report: Report, path: Path, readings: int) -> None:
    loaded = [_native.BpfObject(str(path), ["let_pass"], False) for _ in range(PROGRAMS)]
    command = (STACKHOUND, "bpf", "top", "-n", str(readings), "--json")
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    for one in loaded:
        one.close()
    documents = [json.loads(line) for line in done.stdout.splitlines()][1:]  # the first has what it looks up once
    percents = [one["own_cpu_percent"] for one in documents]
    seen = min(len(one["programs"]) for one in documents)
    own = estimate(percents)
    report.table("CPU time of bpf top", ("", "% of a CPU"), [(f"{seen} programs", own.written())], percents)
    report.control("it sees them all", str(seen), seen >= PROGRAMS)
    met = own.mean <= TARGET_PERCENT
    report.target("bpf top at 100 programs", f"≤ {TARGET_PERCENT} % of a CPU", f"{own.written()} %", met)


def repeat(report: Report, path: Path, pairs: int, plan: Plan) -> None:
    rows, data = [], {}
    for program in REPEATED:
        results = [tuple(bench(path, program, plan) for _ in range(2)) for _ in range(pairs)]
        conclusive = [pair for pair in results if all(one.is_conclusive for one in pair)]
        ratios = [ratio_of(*pair) for pair in conclusive]
        data[program] = [[one.ns_per_run.value for one in pair] for pair in results]
        rows.append((program, str(pairs - len(conclusive)), f"{max(ratios, default=1):.3f}"))
        met = all(ratio <= TARGET_RATIO for ratio in ratios)
        got = f"{max(ratios, default=1):.3f}, {len(conclusive)} of {pairs} conclusive"
        report.target(f"bpf bench twice: {program}", f"≤ {TARGET_RATIO}, or inconclusive", got, met)
    report.table(
        f"the same program measured twice, {pairs} pairs: the larger by the smaller",
        ("", "inconclusive", "worst ratio"),
        rows,
        data,
    )
    less, more = (bench(path, program, plan).ns_per_run for program in ("let_pass", "add_up"))
    report.control("less work is seen", f"{less.value:.1f} ns, {more.value:.1f} ns", less.high < more.low)


def ratio_of(one: Result, other: Result) -> float:
    smaller, larger = sorted((one.ns_per_run.value, other.ns_per_run.value))
    return larger / smaller


def compare_places(report: Report, paths: dict[str, Path], plan: Plan) -> None:
    alone = {program: bench(path, program, replace(plan, packet=PACKET)) for program, path in paths.items()}
    placed = replace(plan, place=time.sleep, interface=RECEIVER)
    with flooded_cable():
        in_place = {program: bench(path, program, placed) for program, path in paths.items()}
    rows, ratios = [], {}
    for program in paths:
        results = (alone[program], in_place[program])
        ratios[program] = (*(one.ns_per_run for one in results), ratio := divided(*results))
        empties = (f"{one.empty_ns:.1f}" for one in results)
        rows.append((program, *(f"{one.ns_per_run.value:.1f}" for one in results), written(ratio), *empties))
    columns = ("ns a run", "test run", "in place", "ratio", "empty, test run", "empty, in place")
    report.table("programs by test runs, and on a cable with a flood of packets", columns, rows, ratios)
    for kind, programs in PLACED.items():
        found = {program: ratios[program][-1] for program in programs}
        met = all(1 / TARGET_IN_PLACE <= ratio.value <= TARGET_IN_PLACE for ratio in found.values())
        got = ", ".join(f"{program} {written(ratio)}" for program, ratio in found.items())
        report.target(f"bpf bench against in place: programs that {kind}", "within 10 %", got, met)


def divided(alone: Result, in_place: Result) -> Interval:
    """How many times as long it takes in place; at most so wide as both intervals allow."""
    under, over = alone.ns_per_run, in_place.ns_per_run
    return Interval(over.value / under.value, over.low / under.high, over.high / under.low)


def written(ratio: Interval) -> str:
    return f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


@contextmanager
def flooded_cable() -> Iterator[None]:
    """A virtual cable with packets at one end, as fast as the other end sends them."""
    flood = OUTPUT / "flood"
    subprocess.run(("gcc", "-O2", "-D_GNU_SOURCE", EXAMPLE / "flood.c", "-o", flood), check=True)
    subprocess.run(("ip", "link", "add", SENDER, "type", "veth", "peer", "name", RECEIVER), check=True)
    try:
        for end in (SENDER, RECEIVER):
            subprocess.run(("ip", "link", "set", end, "up"), check=True)
        with subprocess.Popen((flood, SENDER, "3600"), stdout=subprocess.DEVNULL) as sender:
            try:
                wait_for_packets(sender)
                yield
            finally:
                sender.terminate()
    finally:
        subprocess.run(("ip", "link", "delete", SENDER), check=True)


def wait_for_packets(sender: subprocess.Popen[bytes]) -> None:
    arrived = Path(f"/sys/class/net/{RECEIVER}/statistics/rx_packets")
    while sender.poll() is None and arrived.read_text() == "0\n":
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
