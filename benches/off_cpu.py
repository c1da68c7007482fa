"""How much slower a machine gets that does nothing but switch, while time off the CPU is recorded.

    .venv/bin/python benches/off_cpu.py [--check]

On each CPU two processes take turns through pipes (programs/switches.c), 600,000 and 300,000 times a second in all, or
as often as the machine can: between two turns each counts to a number that is found out first.
Windows of a second with a recorder alternate with windows without one (ABBA). The slowdown is what they do less in a
second of the clock on the wall. Beside it: a sample for each absence, and perf with a stack at each switch.

Then a program whose threads are away, each in a way of its own, says how long each was
(tests/fixtures/workloads/absences.c): what is recorded of each is held against it. Threads that sleep all along
(tests/fixtures/workloads/waits.c) were away for all of it, but for what /proc/PID/task/TID/schedstat has them run.

Then one thread is away in five functions by turns, 10,000 times, mostly for a moment and now and then for long, and
says how long in each (tests/fixtures/workloads/places.c). Each function's share of the time is held against that of
the stacks which it is in; beside it libbpf-tools' offcputime, where it is there and the kernel takes it.

Controls: windows without a recorder against windows without one must show no difference, and perf must show one.
"""

from __future__ import annotations

import argparse
import io
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from harness.bpf_statistics import holds_links
from harness.build import C_FLAGS, OUTPUT, REPOSITORY, STACKHOUND, compile_program
from harness.estimate import Estimate, estimate
from harness.load import Workers, working
from harness.machine import cpus
from harness.report import Report
from harness.samplers import LONG_SETTLING_S, Nothing, Perf, Stackhound
from harness.waiting import wait_until
from harness.windows import Round, Window, measure_rounds
from stackhound import load
from stackhound.formats import by_name
from stackhound.recording import Recorder, RecordOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from stackhound import Profile

HZ = 1  # of the event cpu beside it, by which the harness sees that a recording has begun
WINDOW_S = 1.0
#: Switches a second, and the slowdown wanted there, in percent.
LOADS = ((600_000, 5.0), (300_000, 3.0))
#: To find out what to count to.
TRIALS, TRIAL_S = 4, 0.5
SWITCHES_A_ROUND = 2
BASE, CONTROL = "nothing", "nothing again"
OURS, EXACT, PERF = "stackhound -e off-cpu", "stackhound --off-cpu-exact", "perf record -e sched:sched_switch -g"
BEFORE = "stackhound -e off-cpu, as before Linux 6.15"
ROUNDS = 50
TARGET_TIME = 0.01  # of each thread's
TARGET_POINTS = 2.0  # of each place's share
PEER = "offcputime"
WORKLOADS = REPOSITORY / "tests" / "fixtures" / "workloads"
#: Of absences.c: threads that are away by themselves.
SITES = ("nap_often", "nap_once", "wait_for_poll", "wait_for_futex", "wait_for_pipe", "read_disk")
#: Of places.c, each of whose rounds is away in each of its functions once.
PLACES = ("nap", "wait_for_futex", "wait_for_poll", "wait_for_pipe", "read_disk")
PLACES_ROUNDS = 2_000
SLEEP_S = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10, help="pairs of rounds")
    parser.add_argument("--check", action="store_true", help="one pair, to see that it runs")
    options = parser.parse_args()
    pairs = 1 if options.check else options.pairs
    report = Report("off_cpu", {"pairs": pairs, "window_s": WINDOW_S, "rounds": ROUNDS})
    program = compile_program("switches.c")
    samplers = [
        Nothing(BASE),
        Nothing(CONTROL),
        Stackhound("-e", "cpu,off-cpu", name=OURS),
        Stackhound("-e", "cpu,off-cpu", "--off-cpu-at-departure", name=BEFORE),
        Stackhound("-e", "cpu,off-cpu", "--off-cpu-exact", name=EXACT),
        Perf("-e", "sched:sched_switch", "-c", "1", name=PERF),
    ]
    for wanted, target_percent in LOADS:
        with switching(program, find_spin(program, wanted)) as taking_turns:
            rounds = measure_rounds(samplers, HZ, taking_turns, pairs, WINDOW_S, LONG_SETTLING_S)
        judge(report, f"at {wanted:,}", rounds, [sampler.name for sampler in samplers[1:]], target_percent)
    compare_times(report, OURS)
    compare_times(report, BEFORE, "--off-cpu-at-departure")
    compare_sleepers(report, OURS, at_departure=False)
    compare_sleepers(report, BEFORE, at_departure=True)
    compare_shares(report)
    report.finish()


def switching(program: Path, spin: int) -> AbstractContextManager[Workers]:
    """Two processes on each CPU that count to ``spin`` between two turns."""
    return working(lambda path: (program, path, str(spin)), cpus())


def find_spin(program: Path, wanted: int) -> int:
    """What to count to for so many switches a second; 0 where there are fewer anyway."""
    most = count_switches(program, 0)
    if most <= wanted:
        return 0
    spin = 1_000
    for _ in range(TRIALS):
        longer_s = 1 / count_switches(program, spin) - 1 / most
        spin = max(1, round(spin * (1 / wanted - 1 / most) / longer_s))
    return spin


def count_switches(program: Path, spin: int) -> float:
    """In a second."""
    with switching(program, spin) as taking_turns:
        before = taking_turns.progress()
        time.sleep(TRIAL_S)
        return SWITCHES_A_ROUND * taking_turns.progress().since(before).pieces / TRIAL_S


def rate(window: Window) -> float:
    return window.work.pieces / window.wall_s


def slowdown(name: str, rounds: list[Round]) -> Estimate:
    """In percent, by the clock on the wall."""
    return estimate([100 * (1 - rate(one[name]) / rate(one[BASE])) for one in rounds])


def judge(report: Report, load_name: str, rounds: list[Round], names: list[str], target_percent: float) -> None:
    slowdowns = {name: slowdown(name, rounds) for name in names}
    switches = estimate([SWITCHES_A_ROUND * rate(one[BASE]) for one in rounds])
    report.table(
        f"slowdown at {switches.written(0)} switches a second (trimmed mean, 95% interval)",
        ("recorder", "slowdown, %"),
        [(name, found.written()) for name, found in slowdowns.items()],
        slowdowns | {"switches_per_s": switches},
    )
    ours, control = slowdowns[OURS], slowdowns[CONTROL]
    report.target(f"slowdown, {load_name}", f"≤ {target_percent:.0f} %", f"{ours.written()} %",
                  ours.mean <= target_percent)  # fmt: skip
    report.control(f"nothing against nothing, {load_name}", control.written(), control.low <= 0 <= control.high)
    report.control(f"a stack at each switch is seen, {load_name}", slowdowns[PERF].written(), slowdowns[PERF].low > 5)


def compare_times(report: Report, name: str, *how: str) -> None:
    """Each thread's time away, as it says itself and as it was recorded."""
    show_times(report, f"time off the CPU by thread, {name}", *record_absences(*how))


def show_times(report: Report, title: str, truth: dict[str, int], recorded: Counter[str]) -> None:
    rows = [
        (thread, f"{ns / 1e6:,.1f}", f"{recorded[thread] / 1e6:,.1f}", f"{100 * (recorded[thread] / ns - 1):+.2f}")
        for thread, ns in truth.items()
    ]
    columns = ("thread", "away, ms", "recorded, ms", "difference, %")
    report.table(title, columns, rows, {"truth": truth, "recorded": dict(recorded)})
    worst = max(abs(recorded[thread] / ns - 1) for thread, ns in truth.items())
    report.target(title, f"within {TARGET_TIME:.0%}", f"{worst:.2%}", worst <= TARGET_TIME)


def compare_sleepers(report: Report, name: str, *, at_departure: bool) -> None:
    """Threads that never come back while they are recorded."""
    program = subprocess.Popen(
        [compile_workload("waits"), "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with program:
        tids = read_sleepers(program)
        before = running_ns(program.pid, tids)
        options = RecordOptions(pids=(program.pid,), events=("off-cpu",), off_cpu_at_departure=at_departure)
        with Recorder(options) as recording:
            time.sleep(SLEEP_S)
        after = running_ns(program.pid, tids)
        program.kill()
    profile = recording.profile
    truth = {one: profile.duration_ns - after[one] + before[one] for one in tids}
    recorded: Counter[str] = Counter()
    names = {tid: one for one, tid in tids.items()}
    threads = profile.numbers("threads", "tid").tolist()
    rows = (profile.numbers("samples", column).tolist() for column in ("thread", "value"))
    for thread, value in zip(*rows, strict=True):
        recorded[names.get(threads[thread], "")] += value
    show_times(report, f"time of threads that sleep all along, {name}", truth, recorded)


def read_sleepers(program: subprocess.Popen[str]) -> dict[str, int]:
    """Thread ids by the function that each is in; the workload then goes on."""
    put, said = program.stdin, program.stdout
    assert put is not None
    assert said is not None
    lines = iter(said.readline, "ready\n")
    tids = {function: int(tid) for function, tid in map(str.split, lines)}
    put.write("go\n")
    put.flush()
    del tids["spin_on"]
    return tids


def running_ns(pid: int, tids: dict[str, int]) -> dict[str, int]:
    """On a CPU since its beginning, as the scheduler has it (Documentation/scheduler/sched-stats.rst)."""
    paths = {name: Path(f"/proc/{pid}/task/{tid}/schedstat") for name, tid in tids.items()}
    return {name: int(path.read_text().split()[0]) for name, path in paths.items()}


def compare_shares(report: Report) -> None:
    """Of each function in all the time that one thread was away: many short absences, few long ones."""
    runs = {OURS: record_places(), BEFORE: record_places("--off-cpu-at-departure")}
    if shutil.which(PEER):
        runs[PEER] = follow_places()
    errors = {name: share_errors(truth, recorded) for name, (truth, recorded) in runs.items()}
    rows = [(place, *(f"{each[place]:+.2f}" for each in errors.values())) for place in PLACES]
    truths = {name: truth for name, (truth, _) in runs.items()}
    report.table("shares of functions, points too much", ("function", *errors), rows, errors | {"truths": truths})
    for name in (OURS, BEFORE):
        worst = max(map(abs, errors[name].values()))
        report.target(
            f"shares of functions, {name}", f"within {TARGET_POINTS:.0f} points", f"{worst:.2f}", worst <= TARGET_POINTS
        )


def share_errors(truth: dict[str, int], recorded: Counter[str]) -> dict[str, float]:
    """In points of all time away."""
    whole, found = sum(truth.values()), sum(recorded[place] for place in truth)
    return {place: 100 * (recorded[place] / max(found, 1) - ns / whole) for place, ns in truth.items()}


def compile_workload(name: str) -> Path:
    """tests/fixtures/workloads/NAME.c; with frame pointers, by which the peer walks."""
    program = OUTPUT / name
    OUTPUT.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", *C_FLAGS, "-pthread", "-o", program, WORKLOADS / f"{name}.c"], check=True)
    return program


def record_absences(*how: str) -> tuple[dict[str, int], Counter[str]]:
    """What the threads say, and what was recorded of each since its first turn: until then it has its maker's name."""
    said, profile = record(how, compile_workload("absences"), str(ROUNDS), *SITES)
    threads, reasons = profile.texts("threads", "comm"), profile.texts("off_cpu", "reason")
    rows = (profile.numbers("samples", name).tolist() for name in ("thread", "value"))
    recorded: Counter[str] = Counter()
    for thread, value, reason in zip(*rows, reasons, strict=True):
        recorded[threads[thread]] += 0 if reason == "start" else value
    return parse_truth(said, SITES), recorded


def record_places(*how: str) -> tuple[dict[str, int], Counter[str]]:
    """What the thread says, and what was recorded of each function."""
    said, profile = record(how, compile_workload("places"), str(PLACES_ROUNDS))
    folded = io.BytesIO()
    by_name("folded").write(profile, folded)
    stacks = (line.rpartition(" ") for line in folded.getvalue().decode().splitlines())
    return parse_truth(said, PLACES), sum_by_function((stack.split(";"), int(value)) for stack, _, value in stacks)


def record(how: tuple[str, ...], *command: str | Path) -> tuple[str, Profile]:
    """What a workload says, and its recording."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "a.hound")
        recorder = (STACKHOUND, "record", "--as-root", "-e", "off-cpu", *how, "-o", path, "--")
        done = subprocess.run((*recorder, *command), check=True, capture_output=True, input="go\n", text=True)
        return done.stdout, load(path)


def follow_places() -> tuple[dict[str, int], Counter[str]]:
    """As the peer counts them, which cannot run a command: the program waits until it is followed, and for its end."""
    program = subprocess.Popen(
        [compile_workload("places"), str(PLACES_ROUNDS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    peer = subprocess.Popen(
        [PEER, "-p", str(program.pid)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with program, peer:
        wait_until(f"{PEER} to follow threads", lambda: holds_links(peer.pid))
        said = say_go(program)
        peer.send_signal(signal.SIGINT)
        counted, _ = peer.communicate()
    return parse_truth(said, PLACES), sum_by_function(peer_stacks(counted))


def say_go(program: subprocess.Popen[str]) -> str:
    """All that a workload says until its last line of truth."""
    put, said = program.stdin, program.stdout
    assert put is not None
    assert said is not None
    put.write("go\n")
    put.flush()
    lines: list[str] = []
    while not (lines and lines[-1].startswith("absences ")):
        line = said.readline()
        if not line:
            raise RuntimeError(f"{program.args} ended early")
        lines.append(line)
    return "".join(lines)


def peer_stacks(counted: str) -> Iterator[tuple[list[str], int]]:
    """Functions and nanoseconds: of each stack a function a line, leaf first, then the thread, then microseconds."""
    for block in counted.split("\n\n"):
        lines = block.splitlines()
        if len(lines) > 1 and lines[-2].startswith("    -  "):
            yield [function.strip() for function in lines[:-2]], 1_000 * int(lines[-1])


def sum_by_function(stacks: Iterable[tuple[list[str], int]]) -> Counter[str]:
    """Of those in `PLACES`."""
    sums: Counter[str] = Counter()
    for functions, value in stacks:
        sums.update({place: value for place in PLACES if place in functions})
    return sums


def parse_truth(said: str, names: tuple[str, ...]) -> dict[str, int]:
    """Nanoseconds away."""
    told = dict(line.split() for line in said.splitlines()[1:])
    return {name: int(told[name]) for name in names}


if __name__ == "__main__":
    main()
