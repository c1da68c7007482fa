"""From Ctrl-C to a flame graph on disk, with inlined functions: half a minute of the whole machine, 99 and 999 Hz.

    .venv/bin/python benches/finish.py [--check]

stackhound and perf record the same half minute of a mix of programs side by side. Then the programs pause, so that the
CPUs are free for what is timed, and the recorders end one after the other; who is first changes from turn to turn,
because the second finds the first one's files in memory. perf's way is its own end, `perf script`, and inferno, which
folds and draws: without inlined functions, and in the turns where perf is second also with them, as its default is, for
a minute at most. That needs a recording of its own, with DWARF call graphs: before 6.5 perf expands no other ones.

Control: stackhound's picture must name a function that exists only inlined.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from harness.bpf_statistics import is_sampling
from harness.build import STACKHOUND, compile_package, inferno
from harness.load import pause, real_mix
from harness.report import Report
from harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

TARGET_S = {99: 0.5, 999: 1.0}
TARGET_TIMES_FASTER = 5
TARGET_TIMES_FASTER_INLINED = 20
#: perf's default may take an hour.
PATIENCE_S = 60.0
#: A static function of programs/inlined.cpp with one caller: no symbol table has its name.
INLINED_FUNCTION = b"count_words"


@dataclass(frozen=True)
class Turn:
    """How one recording ended, in seconds from the signal to the picture."""

    hz: int
    first: str
    ours_s: float
    perf_s: float
    perf_inlined_s: float | None
    names_inlined: bool
    picture_bytes: int
    perf_data_bytes: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--check", action="store_true", help="three seconds, to see that it runs")
    options = parser.parse_args()
    seconds = 3.0 if options.check else options.seconds
    report = Report("finish", {"seconds": seconds, "patience_s": PATIENCE_S})
    draw = drawing_commands(report)
    compile_package()
    turns = [take_turn(hz, ours_first, seconds, draw) for hz in TARGET_S for ours_first in (True, False)]
    show(report, turns)
    for hz in TARGET_S:
        judge(report, hz, [turn for turn in turns if turn.hz == hz])
    inlined = all(turn.names_inlined for turn in turns)
    report.control("the picture names a function that exists only inlined", str(inlined), inlined)
    report.finish()


def drawing_commands(report: Report) -> str:
    """What makes a picture of perf's script: the end of a pipe."""
    tools = inferno()
    if tools is None:
        report.note("inferno is not to be had: perf's script is timed without folding and drawing")
        return "cat"
    return " | ".join(shlex.quote(str(tools / name)) for name in ("inferno-collapse-perf", "inferno-flamegraph"))


def take_turn(hz: int, ours_first: bool, seconds: float, draw: str) -> Turn:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with real_mix() as mix:
            ours = start_ours(hz, directory)
            perf = start_perf(hz, directory / "perf.data", "-g")
            dwarf = start_perf(hz, directory / "dwarf.data", "--call-graph=dwarf") if ours_first else None
            time.sleep(seconds)
            pause(mix)
            if ours_first:
                ours_s = end(ours)
            perf_s = end(perf) + time_drawing(directory, "perf.data", "--no-inline", draw)
            if not ours_first:
                ours_s = end(ours)
            perf_inlined_s = end(dwarf) + time_drawing(directory, "dwarf.data", "--inline", draw) if dwarf else None
        picture = (directory / "flame.html").read_bytes()
        return Turn(
            hz=hz,
            first="stackhound" if ours_first else "perf",
            ours_s=ours_s,
            perf_s=perf_s,
            perf_inlined_s=perf_inlined_s,
            names_inlined=INLINED_FUNCTION in picture,
            picture_bytes=len(picture),
            perf_data_bytes=(directory / "perf.data").stat().st_size,
        )


def start_ours(hz: int, directory: Path) -> subprocess.Popen[bytes]:
    ours = start(STACKHOUND, "record", "-F", str(hz), "-o", directory / "flame.html")
    wait_until("stackhound to sample", lambda: is_sampling(ours.pid))
    return ours


def start_perf(hz: int, output: Path, call_graph: str) -> subprocess.Popen[bytes]:
    return start("perf", "record", "-a", call_graph, "-F", str(hz), "-o", output)


def start(*command: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def end(recorder: subprocess.Popen[bytes]) -> float:
    """Seconds from Ctrl-C to its exit, when its file is there."""
    begin = time.monotonic()
    recorder.send_signal(signal.SIGINT)
    recorder.wait()
    return time.monotonic() - begin


def time_drawing(directory: Path, data: str, inlines: str, draw: str) -> float:
    """Seconds that it takes perf and inferno to draw; as long as patience lasts."""
    script = f"perf script {inlines} -i {data} 2>/dev/null | {draw} >perf.svg"
    begin = time.monotonic()
    shell = subprocess.Popen(("sh", "-c", script), cwd=directory, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        shell.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
    return time.monotonic() - begin


def show(report: Report, turns: Sequence[Turn]) -> None:
    columns = ("", "stackhound, s", "perf --no-inline, s", "perf, inlines, s", "flame.html, MB", "perf.data, MB")
    rows = [
        (
            f"{turn.hz} Hz, {turn.first} first",
            f"{turn.ours_s:.2f}",
            f"{turn.perf_s:.2f}",
            "–" if turn.perf_inlined_s is None else at_least(turn.perf_inlined_s),
            f"{turn.picture_bytes / 1e6:.1f}",
            f"{turn.perf_data_bytes / 1e6:.1f}",
        )
        for turn in turns
    ]
    report.table("from Ctrl-C to a flame graph on disk", columns, rows, turns)


def at_least(seconds: float) -> str:
    return f"> {seconds:.0f}" if seconds > PATIENCE_S else f"{seconds:.2f}"


def judge(report: Report, hz: int, turns: Sequence[Turn]) -> None:
    ours_s = mean(turn.ours_s for turn in turns)
    report.target(f"Ctrl-C to flame graph, {hz} Hz", f"≤ {TARGET_S[hz]} s", f"{ours_s:.2f} s", ours_s <= TARGET_S[hz])
    times = mean(turn.perf_s for turn in turns) / ours_s
    wanted = f"≥ {TARGET_TIMES_FASTER} ×"
    report.target(f"faster than perf --no-inline, {hz} Hz", wanted, f"{times:.1f} ×", times >= TARGET_TIMES_FASTER)
    inlined_s = next(turn.perf_inlined_s for turn in turns if turn.perf_inlined_s is not None)
    times, wanted = inlined_s / ours_s, f"≥ {TARGET_TIMES_FASTER_INLINED} ×"
    got = f"{'> ' if inlined_s > PATIENCE_S else ''}{times:.1f} ×"
    report.target(f"faster than perf's default, {hz} Hz", wanted, got, times >= TARGET_TIMES_FASTER_INLINED)


if __name__ == "__main__":
    main()
