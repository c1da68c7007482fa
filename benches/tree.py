"""How long a call tree takes: 1 M samples with 200 k distinct stacks, from the tables to the merged tree.

    .venv/bin/python benches/tree.py [--check]

Target: ≤ 200 ms for ``profile.tree()`` of a profile that nothing was asked of before, names included. The tasks run in
turns, each on a profile of its own.

Control: every tree adds up to the samples.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING

import numpy as np
from arro3.core import Array, DataType, Table

from harness.report import Report
from stackhound.profile import Profile
from stackhound.profile.paths import build_stacks, make_stacks
from stackhound.profile.schema import FORMAT_VERSION, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable

TARGET_MS = 200
SAMPLES = 1_000_000
STACKS = 200_000
LOCATIONS = 40_000
FUNCTIONS = 15_000
PROCESSES = 50
THREADS = 8
TRUNKS = 60
TRUNK_FRAMES = 30
TAIL_FRAMES = 4
#: Shares of locations with no, one and two functions inlined there.
INLINED = (0.7, 0.2, 0.1)
#: A tail's frame is one of this many.
BRANCHES = 40
VALUE_NS = 1_001_001

TASKS: dict[str, Callable[[Profile], object]] = {
    "tree": lambda profile: profile.tree(),
    "tree, again": lambda profile: profile.tree(),
    "tree by process": lambda profile: profile.tree(root="process"),
    "tree with lines": lambda profile: profile.tree(lines=True),
    "tree inverted": lambda profile: profile.tree(inverted=True),
    "top 10": lambda profile: profile.top(10),
    "focus": lambda profile: profile.focus("^f12"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--check", action="store_true", help="a hundredth of the size, once")
    options = parser.parse_args()
    scale, turns = (100, 1) if options.check else (1, options.turns)
    tables = make_tables(SAMPLES // scale, STACKS // scale)
    shape = {name: tables[name].num_rows for name in ("samples", "stacks", "locations", "lines", "functions")}
    shape["distinct stacks of samples"] = len(np.unique(tables["samples"]["stack"].to_numpy()))
    report = Report("tree", {"turns": turns, **shape})
    times = measure(tables, turns)
    show(report, shape, times)
    check_totals(report, tables)
    if not options.check:
        judge(report, times)
    report.finish()


def measure(tables: dict[str, Table], turns: int) -> dict[str, list[tuple[float, float]]]:
    """By task: (wall, CPU) milliseconds of each turn."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in TASKS}
    for _ in range(turns):
        for name, task in TASKS.items():
            profile = Profile(tables, {"format_version": FORMAT_VERSION})
            if name == "tree, again":
                profile.tree()
            wall, cpu = time.perf_counter(), time.process_time()
            task(profile)
            times[name].append(((time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3))
    return times


def show(report: Report, shape: dict[str, int], times: dict[str, list[tuple[float, float]]]) -> None:
    rows = []
    for name, taken in times.items():
        walls, cpus = zip(*taken, strict=True)
        figures = (statistics.median(walls), min(walls), max(walls), statistics.median(cpus))
        rows.append((name, *(f"{figure:.1f}" for figure in figures)))
    title = f"milliseconds; {', '.join(f'{count:,} {name}' for name, count in shape.items())}"
    report.table(title, ("", "median", "least", "most", "CPU median"), rows, times)


def check_totals(report: Report, tables: dict[str, Table]) -> None:
    profile = Profile(tables, {"format_version": FORMAT_VERSION})
    samples = profile.table("samples").num_rows
    totals = {int(profile.tree(inverted=inverted).total_value[0]) for inverted in (False, True)}
    report.control("trees add up to the samples", str(totals), totals == {samples * VALUE_NS})


def judge(report: Report, times: dict[str, list[tuple[float, float]]]) -> None:
    median = statistics.median(wall for wall, _ in times["tree"])
    what = "tree of 1 M samples with 200 k stacks"
    report.target(what, f"≤ {TARGET_MS} ms", f"{median:.0f} ms", median <= TARGET_MS)


def make_tables(samples: int, stacks: int) -> dict[str, Table]:
    """Tables of a busy machine: deep stacks that share their beginnings, a few hot ones, many rare ones."""
    random = np.random.default_rng(1)
    parent, location, depth, leaves, process = make_paths(random, stacks)
    code = make_code(random)
    return {
        "samples": make_samples(random, samples, leaves, process),
        "stacks": make_stacks(parent, location, depth, code["locations"], code["objects"]),
        **code,
        **make_threads(),
        "losses": table("losses", cause=[], count=[], estimated=[], meaning=[]),
    }


def make_paths(random: np.random.Generator, stacks: int) -> tuple[np.ndarray, ...]:
    """A few long paths of each process, and stacks that leave one of them somewhere for a short tail of their own."""
    trunks = random.integers(0, LOCATIONS, (PROCESSES * TRUNKS, TRUNK_FRAMES))
    trunk = random.integers(0, len(trunks), stacks)
    left_at = random.integers(2, TRUNK_FRAMES + 1, stacks)
    paths = np.concatenate((trunks[trunk], np.zeros((stacks, TAIL_FRAMES), np.int64)), axis=1)
    place = np.arange(paths.shape[1])
    for frame in range(TAIL_FRAMES):
        paths[np.arange(stacks), left_at + frame] = random.integers(0, BRANCHES, stacks) * 7919 % LOCATIONS
    length = left_at + random.integers(1, TAIL_FRAMES + 1, stacks)
    offsets = np.concatenate(([0], np.cumsum(length))).astype(np.uint32)
    return (*build_stacks(offsets, paths[place < length[:, None]].astype(np.uint32)), trunk // TRUNKS)


def make_samples(random: np.random.Generator, samples: int, leaves: np.ndarray, process: np.ndarray) -> Table:
    rows = np.arange(samples)
    hot = np.minimum(random.zipf(1.3, samples) - 1, len(leaves) - 1)
    chosen = np.where(random.random(samples) < 0.5, hot, random.integers(0, len(leaves), samples))
    chosen[: len(leaves)] = np.arange(len(leaves))
    thread = process[chosen] * THREADS + random.integers(0, THREADS, samples)
    times = np.cumsum(random.integers(900_000, 1_100_000, samples))
    return table(
        "samples", id=rows, event=0 * rows, boottime_ns=times, duration_ns=0 * rows, cpu=random.integers(0, 8, samples),
        thread=thread, stack=leaves[chosen], value=0 * rows + VALUE_NS, count=0 * rows + 1,
        last_ns=times, flags=0 * rows,
    )  # fmt: skip


def make_code(random: np.random.Generator) -> dict[str, Table]:
    locations, functions = np.arange(LOCATIONS), np.arange(FUNCTIONS)
    lines = random.choice(3, LOCATIONS, p=INLINED) + 1
    first = np.cumsum(lines) - lines
    names = [f"f{one}::a_name_of_usual_length(int, char const*)" for one in range(FUNCTIONS)]
    return {
        "locations": table(
            "locations", id=locations, object=locations % 60, address=locations * 16, reason=[None] * LOCATIONS
        ),
        "lines": table(
            "lines", location=np.repeat(locations, lines), depth=np.arange(lines.sum()) - np.repeat(first, lines),
            function=random.integers(0, FUNCTIONS, lines.sum()), line=random.integers(1, 2_000, lines.sum()),
            column=np.zeros(lines.sum()),
        ),
        "functions": table(
            "functions", id=functions, name=names, system_name=names, file=["src/file.cc"] * FUNCTIONS,
            object=functions % 60, address=functions * 640, size=0 * functions + 640,
        ),
        "objects": table(
            "objects", id=range(60), kind=["elf"] * 60, path=[f"/usr/lib/lib{one}.so" for one in range(60)],
            build_id=[f"{one:040x}" for one in range(60)],
        ),
        "mappings": table("mappings", **{name: [] for name in TABLES["mappings"]}),
    }  # fmt: skip


def make_threads() -> dict[str, Table]:
    threads = range(PROCESSES * THREADS)
    texts = ("comm", "executable", "command_line", "cgroup", "container")
    return {
        "threads": table(
            "threads", id=threads, process=[one // THREADS for one in threads], tid=threads, ns_tid=threads,
            comm=[f"worker-{one % THREADS}" for one in threads],
        ),
        "processes": table(
            "processes",
            **{
                name: [f"app-{one}" for one in range(PROCESSES)] if name in texts else range(PROCESSES)
                for name in TABLES["processes"]
            },
        ),
        "events": table(
            "events", id=[0], name=["cpu"], unit=["nanoseconds"], trigger=["cycles"], mode=["frequency"], rate=[999]
        ),
    }  # fmt: skip


def table(name: str, /, **columns: object) -> Table:
    kinds = {column: getattr(DataType, kind.rstrip("?"))() for column, kind in TABLES[name].items()}
    arrays = {
        column: Array.from_numpy(values).cast(kinds[column])
        if isinstance(values, np.ndarray)
        else Array(list(values), kinds[column])
        for column, values in columns.items()
    }
    return Table.from_pydict(arrays)


if __name__ == "__main__":
    main()
