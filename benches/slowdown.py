"""How much slower a busy machine gets while it is sampled, at 999 Hz and at 99 Hz.

    .venv/bin/python benches/slowdown.py [--check]

A worker on each CPU; windows of a second with a sampler alternate with windows without one (ABBA). The slowdown is
what the workers do less per second of their own CPU time (harness/speed.py), plus the CPU time that the sampler's own
processes take of the machine.

Controls: windows without a sampler against windows without a sampler must show no difference, and the empty program at
9,999 Hz must show one.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from harness.load import workers
from harness.report import Report
from harness.samplers import LONG_SETTLING_S, Design, Nothing, Perf, Stackhound
from harness.speed import own_share, whole_slowdown
from harness.windows import measure_rounds

if TYPE_CHECKING:
    from harness.estimate import Estimate
    from harness.windows import Round

HZ = 999
CONTROL_HZ = 9_999
WINDOW_S = 1.0
SLOW_HZ = 99
BASE, CONTROL, EMPTY = "nothing", "nothing again", "empty program"
OURS, FRAME_POINTERS, TUTORIAL, PERF = "stackhound", "stackhound --call-graph fp", "tutorial", Perf.name
#: Of frame pointers, at 999 Hz.
TARGET_TIMES = 1.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=12, help="pairs of rounds")
    parser.add_argument("--check", action="store_true", help="one pair, to see that it runs")
    options = parser.parse_args()
    pairs = 1 if options.check else options.pairs
    report = Report("slowdown", {"hz": HZ, "pairs": pairs, "window_s": WINDOW_S})
    empty, tutorial = Design("empty", EMPTY), Design("tutorial", TUTORIAL)
    tables, pointers = Stackhound(name=OURS), Stackhound("--call-graph", "fp", name=FRAME_POINTERS)
    samplers = [Nothing(BASE), Nothing(CONTROL), empty, tables, pointers, tutorial, Perf()]
    with workers() as load:
        rounds = measure_rounds(samplers, HZ, load, pairs, WINDOW_S, LONG_SETTLING_S)
        slow_rounds = measure_rounds([Nothing(BASE), tables, pointers], SLOW_HZ, load, pairs, WINDOW_S, LONG_SETTLING_S)
        fast_rounds = measure_rounds([Nothing(BASE), empty], CONTROL_HZ, load, max(1, pairs // 3), WINDOW_S)
    slowdowns = {sampler.name: whole_slowdown(sampler.name, BASE, rounds) for sampler in samplers[1:]}
    show(report, slowdowns, rounds)
    judge(report, slowdowns, rounds, whole_slowdown(EMPTY, BASE, fast_rounds))
    judge_tables(report, slowdowns, slow_rounds)
    report.finish()


def show(report: Report, slowdowns: dict[str, Estimate], rounds: list[Round]) -> None:
    collectors = {name: own_share(name, rounds) for name in slowdowns}
    rows = [(name, whole.written(), collectors[name].written()) for name, whole in slowdowns.items()]
    report.table(
        f"slowdown of a busy machine at {HZ} Hz (95% interval)",
        ("sampler", "slowdown, %", "of it its own processes, %"),
        rows,
        {"slowdown_percent": slowdowns, "collector_percent": collectors},
    )


def judge(report: Report, slowdowns: dict[str, Estimate], rounds: list[Round], fast_empty: Estimate) -> None:
    difference = whole_slowdown(OURS, PERF, rounds)
    got = f"{difference.written()} points beside perf"
    report.target("slowdown at 999 Hz", "below perf's (the interval below 0)", got, difference.high < 0)
    control = slowdowns[CONTROL]
    report.control("nothing against nothing differs by nothing", control.written(), control.low <= 0 <= control.high)
    report.control(f"the empty program is seen at {CONTROL_HZ:,} Hz", fast_empty.written(), fast_empty.low > 1)


def judge_tables(report: Report, slowdowns: dict[str, Estimate], slow_rounds: list[Round]) -> None:
    """Tables beside frame pointers."""
    times = slowdowns[OURS].mean / slowdowns[FRAME_POINTERS].mean
    report.target(
        "tables beside frame pointers, 999 Hz", f"≤ {TARGET_TIMES} ×", f"{times:.2f} ×", times <= TARGET_TIMES
    )
    difference = whole_slowdown(OURS, FRAME_POINTERS, slow_rounds)
    got = f"{difference.written()} points"
    report.target("tables beside frame pointers, 99 Hz", "no difference (0 in the interval, or above it)", got,
                  difference.low <= 0)  # fmt: skip


if __name__ == "__main__":
    main()
