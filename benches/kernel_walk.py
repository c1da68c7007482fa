"""What a walk of a kernel stack takes: by the kernel's tables, read by our programs, beside the kernel's own walk.

    .venv/bin/python benches/kernel_walk.py [--check]

Programs read files, write archives and start others, on both CPUs. Samples of the kernel part alone are taken by one
way and the other, in turns (ABBA), at 99 Hz, where caches are cold, and at 1,999 Hz. The figure is the whole of a
sample in the program, by its own clock.

Then both ways are asked for each stack, and where they differ is counted.

Control: a sample with both walks takes longer than one with the kernel's alone.
"""

from __future__ import annotations

import argparse
import random
import signal
import time
from typing import TYPE_CHECKING, Literal

from harness.estimate import estimate
from harness.load import real_mix
from harness.report import Report
from stackhound.recording import Recorder, RecordOptions

if TYPE_CHECKING:
    from stackhound import Profile

    KernelWalk = Literal["tables", "kernel", "compared"]

#: Of each way, in ns.
Cost = dict[str, float]

RATES_HZ = (99, 1_999)
WINDOW_S = 5.0
COMPARED_S = 20.0
TARGET_RATIO = 0.6
WAYS: dict[str, KernelWalk] = {"by tables": "tables", "by the kernel": "kernel", "both": "compared"}
TABLES, KERNEL, BOTH = WAYS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=6, help="pairs of rounds")
    parser.add_argument("--check", action="store_true", help="one pair, to see that it runs")
    options = parser.parse_args()
    pairs, window_s = (1, 1.0) if options.check else (options.pairs, WINDOW_S)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    report = Report("kernel_walk", {"pairs": pairs, "window_s": window_s})
    with real_mix():
        costs = {hz: measure(hz, pairs, window_s) for hz in RATES_HZ}
        compared = record(BOTH, max(RATES_HZ), window_s if options.check else COMPARED_S)
    show(report, costs)
    judge(report, costs, compared.metadata["counters"])
    report.finish()


def measure(hz: int, pairs: int, window_s: float) -> list[Cost]:
    chance = random.Random(1)
    rounds: list[Cost] = []
    for _ in range(pairs):
        order = chance.sample(list(WAYS), len(WAYS))
        rounds.extend({way: cost_of_a_sample(way, hz, window_s) for way in turn} for turn in (order, order[::-1]))
    return rounds


def cost_of_a_sample(way: str, hz: int, seconds: float) -> float:
    """In the program: ns, the mean of the runs that timed themselves."""
    return float(record(way, hz, seconds).metadata["cost"]["bpf_ns_per_run"])


def record(way: str, hz: int, seconds: float) -> Profile:
    options = RecordOptions(frequency_hz=hz, kernel_only=True, kernel_walk=WAYS[way], lines=False)
    with Recorder(options) as recorder:
        time.sleep(seconds)
    return recorder.profile


def show(report: Report, costs: dict[int, list[Cost]]) -> None:
    found = {hz: {way: estimate([one[way] for one in rounds]) for way in WAYS} for hz, rounds in costs.items()}
    rows = [(way, *(found[hz][way].written(0) for hz in RATES_HZ)) for way in WAYS]
    columns = ("walk", *(f"{hz:,} Hz, ns" for hz in RATES_HZ))
    report.table(
        "a sample of the kernel part of a stack, in the program (trimmed mean, 95% interval)", columns, rows, found
    )


def judge(report: Report, costs: dict[int, list[Cost]], counters: dict[str, int]) -> None:
    for hz, rounds in costs.items():
        ratio = estimate([one[TABLES] / one[KERNEL] for one in rounds])
        got = f"{ratio.written()} ×"
        report.target(f"by tables to by the kernel, {hz:,} Hz", f"≤ {TARGET_RATIO} ×", got, ratio.mean <= TARGET_RATIO)
        both = estimate([one[BOTH] / one[KERNEL] for one in rounds])
        report.control(f"both take longer than one, {hz:,} Hz", f"{both.written()} ×", both.low > 1)
    walks, failed, differ = (counters[f"kernel_walks{kind}"] for kind in ("", "_failed", "_differ"))
    report.target("stacks that differ from the kernel's", "0", f"{differ} of {walks:,}", differ == 0 and walks > 0)
    report.note(f"the kernel was asked after all for {failed:,} of {walks + failed:,}")


if __name__ == "__main__":
    main()
