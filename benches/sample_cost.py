"""What a sample costs: 24 frames deep, 9,999 times a second on each CPU.

    .venv/bin/python benches/sample_cost.py [--check]

Every design runs in turn, in windows of half a second, loaded anew for each. Two figures:

- in the program: nanoseconds a run, by the kernel's own statistics of BPF programs;
- in all: the work that the sampled threads did less, per sample; the timer's interrupt is in it, and perf has it, too.

Controls: the empty program must be cheaper than the floor, and a second walk planted in the floor must be seen.
"""

from __future__ import annotations

import argparse

from harness.bpf_statistics import bpf_statistics
from harness.estimate import Estimate, estimate
from harness.load import DEPTH_FRAMES, workers
from harness.report import Report
from harness.samplers import Design, Nothing, Perf, Stackhound
from harness.windows import Round, measure_rounds

HZ = 9_999
TARGET_RATIO = 1.25
WINDOW_S = 0.5
BASE = "nothing"
DESIGNS = (
    "empty program",
    "floor: bpf_get_stack",
    "stackhound, frame pointers",
    "stackhound, tables",
    "tutorial",
    "planted: two walks",
)
EMPTY, FLOOR, FRAME_POINTERS, TABLES, TUTORIAL, PLANTED = DESIGNS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=12, help="pairs of rounds")
    parser.add_argument("--check", action="store_true", help="one pair, to see that it runs")
    options = parser.parse_args()
    pairs = 1 if options.check else options.pairs
    report = Report("sample_cost", {"hz": HZ, "depth_frames": DEPTH_FRAMES, "pairs": pairs, "window_s": WINDOW_S})
    with workers() as load, bpf_statistics():
        rounds = measure_rounds(make_samplers(), HZ, load, pairs, WINDOW_S, counts_runs=True)
    in_program = {name: estimate([one[name].ns_a_run for one in rounds]) for name in DESIGNS}
    in_all = {name: lost_ns_a_sample(name, rounds) for name in rounds[0] if name != BASE}
    ratios = {name: ratio_to_floor(name, rounds) for name in DESIGNS}
    show(report, in_program, in_all, ratios)
    judge(report, ratios)
    report.finish()


def make_samplers() -> list[Design | Nothing | Perf | Stackhound]:
    return [
        Nothing(BASE),
        Design("empty", EMPTY),
        Design("floor", FLOOR),
        Stackhound("--call-graph", "fp", name=FRAME_POINTERS),
        Stackhound(name=TABLES),
        Design("tutorial", TUTORIAL),
        Design("planted", PLANTED),
        Perf(),
    ]


def ratio_to_floor(name: str, rounds: list[Round]) -> Estimate:
    return estimate([one[name].ns_a_run / one[FLOOR].ns_a_run for one in rounds])


def lost_ns_a_sample(name: str, rounds: list[Round]) -> Estimate:
    """A thread is sampled HZ times in a second of its CPU time, and works less by what those samples take."""
    return estimate([(1 - one[name].work.rate / one[BASE].work.rate) / HZ * 1e9 for one in rounds])


def show(
    report: Report, in_program: dict[str, Estimate], in_all: dict[str, Estimate], ratios: dict[str, Estimate]
) -> None:
    rows = [
        (
            name,
            in_program[name].written(0) if name in in_program else "–",
            ratios[name].written() if name in ratios else "–",
            lost.written(0),
        )
        for name, lost in in_all.items()
    ]
    data = {"in_program_ns": in_program, "in_all_ns": in_all, "to_floor": ratios}
    report.table(
        f"a sample at {HZ:,} Hz, {DEPTH_FRAMES} frames deep (trimmed mean, 95% interval)",
        ("design", "in the program, ns", "× floor", "in all, ns"),
        rows,
        data,
    )


def judge(report: Report, ratios: dict[str, Estimate]) -> None:
    for name in (FRAME_POINTERS, TABLES):
        ours = ratios[name]
        what = f"cost of a sample to the floor: {name}"
        report.target(what, f"≤ {TARGET_RATIO}", ours.written(), ours.mean <= TARGET_RATIO)
    report.control("the empty program is cheaper than the floor", ratios[EMPTY].written(), ratios[EMPTY].high < 1)
    report.control("a planted second walk is seen", ratios[PLANTED].written(), ratios[PLANTED].low > TARGET_RATIO)


if __name__ == "__main__":
    main()
