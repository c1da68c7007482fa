"""Who woke a thread, and where: threads by threads, by other processes, and by interrupts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from stackhound.recording import record
from support_profiles import assert_accounted_for, samples_of
from support_recordings import record_whole, run_stackhound
from support_workloads import Program, build

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stackhound import Profile

pytestmark = pytest.mark.ebpf

ROUNDS: Final = 10
#: A reader, and upside down on top of it who wrote.
WRITTEN: Final = (
    r"^wait_for_pipe;.*;wait_for_pipe;.*pipe_read_\[k\];"
    r"--_\[w\];try_to_wake_up_\[w\];.*;write_late_\[w\];.*;writer_\[w\]$"
)


class Waking(NamedTuple):
    sleeper: str
    sleeper_names: tuple[str, ...]
    waker: str
    waker_pid: int
    #: Root first.
    names: tuple[str, ...]


def record_absences(*sites: str, **options: Any) -> Profile:
    with Program(build("absences.c", "-pthread"), str(ROUNDS), *sites) as program:
        profile = record_whole(program, events=("off-cpu",), **options)
        program.truth()
    assert_accounted_for(profile)
    return profile


def wakings_of(profile: Profile) -> list[Waking]:
    samples = dict(zip(profile.numbers("samples", "id").tolist(), samples_of(profile), strict=True))
    comms, processes = profile.texts("threads", "comm"), profile.numbers("threads", "process")
    pids = profile.numbers("processes", "pid")
    columns = (profile.numbers("wakers", name).tolist() for name in ("sample", "thread", "stack"))
    return [
        Waking(
            samples[sample].comm,
            samples[sample].names,
            comms[thread],
            int(pids[processes[thread]]),
            tuple(names_of(profile, stack)),
        )
        for sample, thread, stack in zip(*columns, strict=True)
    ]


def names_of(profile: Profile, stack: int) -> Iterator[str]:
    frames = profile.frames
    parents, locations = (profile.numbers("stacks", name) for name in ("parent", "location"))
    path = []
    while stack:
        path.append(int(locations[stack]))
        stack = int(parents[stack])
    for location in reversed(path):
        rows = frames.frames[frames.offsets[location] : frames.offsets[location + 1]]
        yield from (frames.name[row] for row in rows.tolist())


def test_a_reader_is_woken_by_the_thread_that_writes() -> None:
    wakings = [
        one for one in wakings_of(record_absences("wait_for_pipe", wakers=True)) if "wait_for_pipe" in one.sleeper_names
    ]
    written = [one for one in wakings if one.waker == "writer"]
    assert len(written) >= 0.8 * ROUNDS  # now and then the writer was not asleep long enough to let it wait
    assert len(written) == len(wakings)
    for one in written:
        assert "write_late" in one.names
        assert "try_to_wake_up" in one.names


def test_a_chain_leads_from_the_reader_to_the_thread_that_writes(tmp_path: Path) -> None:
    record_absences("wait_for_pipe", wakers=True).save(tmp_path / "a.hound")
    done = run_stackhound(
        *("export", tmp_path / "a.hound", "--event", "off-cpu", "--off-wake", "--comm", "wait_for_pipe"),
        *("--format", "folded"),
    )
    assert done.returncode == 0, done.stderr
    # of others: a new thread has its maker's name until its first turn, for which nobody has to wake it
    lines = [line.rpartition(" ") for line in done.stdout.decode().splitlines() if "pipe_read" in line]
    written = sum(int(value) for path, _, value in lines if re.search(WRITTEN, path))
    assert written > 0.8 * sum(int(value) for _, _, value in lines)


def test_who_sleeps_by_the_clock_is_woken_by_an_interrupt_and_not_by_whom_that_met() -> None:
    sleeping = [
        one
        for one in wakings_of(record_absences("nap_once", "wait_for_poll", wakers=True))
        if "clock_nanosleep" in " ".join(one.sleeper_names) or "wait_for_poll" in one.sleeper_names
    ]
    assert len(sleeping) >= ROUNDS
    for one in sleeping:
        assert (one.waker, one.waker_pid) == ("[interrupt]", 0)
        assert "hrtimer_wakeup" in one.names
        assert "interrupt" in one.names[0]


def test_who_was_preempted_was_woken_by_nobody() -> None:
    profile = record_absences("take_turns", wakers=True)
    states = dict(zip(profile.numbers("off_cpu", "sample").tolist(), profile.texts("off_cpu", "state"), strict=True))
    assert "preempted" in states.values()
    assert "preempted" not in {states[sample] for sample in profile.numbers("wakers", "sample").tolist()}


def test_a_waker_outside_of_what_is_recorded_is_named_with_its_stack() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as sleeper:
        with record(pids=[sleeper.pid], events=["off-cpu"], wakers=True) as recording:
            feed(sleeper, 60)
        assert sleeper.stdin
        sleeper.stdin.close()
    fed = [one for one in wakings_of(recording.profile) if one.sleeper == "cat"]
    assert len(fed) > 40
    assert {one.waker_pid for one in fed} == {os.getpid()}
    for one in fed[len(fed) // 2 :]:  # it is found to be a Python program when it is first seen
        assert "test_wakers.feed" in " ".join(one.names), one


def feed(sleeper: subprocess.Popen[bytes], times: int) -> None:
    assert sleeper.stdin
    for _ in range(times):
        time.sleep(0.005)
        os.write(sleeper.stdin.fileno(), b"x")


def test_the_report_sums_time_by_who_ended_it(tmp_path: Path) -> None:
    record_absences("wait_for_pipe", wakers=True).save(tmp_path / "a.hound")
    done = run_stackhound("report", tmp_path / "a.hound", "--sort", "comm,reason,waker", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    waits = [row for row in rows if (row["comm"], row["reason"]) == ("wait_for_pipe", "pipe")]
    of_reader: Counter[str] = Counter()
    for row in waits:
        of_reader[row["waker"].partition(" ")[0]] += row["self"]
    assert of_reader["writer"] > 0.8 * sum(of_reader.values())


def test_nobody_asks_who_woke_a_thread_unless_told_to() -> None:
    assert "wakers" not in record_absences("nap_once").tables
