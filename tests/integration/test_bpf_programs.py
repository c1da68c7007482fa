"""The machine's BPF programs: those of a recording of ours are listed, described, and measured."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from stackhound.bpf import Monitor, choose_programs, list_maps, list_programs
from stackhound.cli.bpf_top import Top
from stackhound.errors import UsageError
from support_recordings import recorder, run_stackhound

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.ebpf

HZ: Final = 499


@pytest.fixture(scope="module", autouse=True)
def recording() -> Iterator[None]:
    """Has programs of ours loaded; a thread keeps a CPU busy, so that they run."""
    ended = threading.Event()
    spinner = threading.Thread(target=spin, args=(ended,))
    spinner.start()
    with recorder(frequency_hz=HZ, events=("cpu", "off-cpu")):
        yield
    ended.set()
    spinner.join()


def spin(ended: threading.Event) -> None:
    while not ended.is_set():
        sum(range(10_000))


def test_a_program_is_listed_with_its_place_and_who_holds_it() -> None:
    (program,) = ours("arrive")
    assert (program.type, program.attachments[0].place) == ("tracing", "raw_tracepoint sched_exit_tp")
    assert os.getpid() in {owner.pid for owner in program.owners}
    assert program.verified_instructions > program.instructions > 100
    assert program.jited_bytes > 1_000
    assert len(program.functions) > 1
    assert program.memory_bytes > 0
    assert time.clock_gettime_ns(time.CLOCK_BOOTTIME) - program.loaded_boottime_ns < 600e9


def test_its_maps_are_described_with_what_is_in_them() -> None:
    (program,) = ours("arrive")
    maps = {one.name: one for one in list_maps(program.map_ids)}
    targets = maps["targets"]
    assert (targets.type, targets.key_bytes, targets.max_entries) == ("hash", 4, 65536)
    assert targets.entries is not None
    assert maps["rings"].entries is None  # an array has no free places
    assert maps["rings"].memory_bytes > 100_000


def test_a_monitor_tells_runs_and_their_time_and_switches_the_statistics_off_again() -> None:
    (program,) = ours("sample_event")
    with Monitor() as monitor:
        time.sleep(1)
        reading = monitor.read()
        empty_ns = monitor.overhead.counted_ns
        assert 0 < empty_ns < 1_000
    rate = reading.rates[program.id]
    assert HZ * 0.5 < rate.runs * 1e9 / reading.elapsed_ns < HZ * 1.3 * (os.cpu_count() or 1)
    assert empty_ns < rate.ns_per_run < 1_000_000
    assert reading.statistics_ns < 0.1 * reading.elapsed_ns
    before = choose_programs(list_programs(), str(program.id))[0].runs
    time.sleep(0.1)
    assert choose_programs(list_programs(), str(program.id))[0].runs == before


def test_top_shows_the_most_expensive_first_and_what_looking_costs() -> None:
    document = json.loads(top("--json").splitlines()[0])
    shares = [one["cpu_percent"] for one in document["programs"]]
    assert shares == sorted(shares, reverse=True)
    (mine,) = [one for one in document["programs"] if one["name"] == "sample_event" and holds(one)]
    assert mine["runs"] > 0
    assert mine["attachments"]
    assert {"statistics", "own_cpu_percent"} <= document.keys()
    text = top("sample_event")
    assert "sample_event" in text
    assert "arrive" not in text
    assert "statistics" in text.splitlines()[-2] + text.splitlines()[-1]


def test_a_program_that_comes_while_top_looks_is_shown_at_once_and_who_holds_it_a_while_later(monkeypatch) -> None:
    before = {one.id for one in list_programs()}
    with Monitor() as monitor:
        shown = Top(monitor, "", "id")
        assert shown.rows(monitor.read())
        with recorder(frequency_hz=99):
            monitor.read()
            new = [row.program for row in shown.rows(monitor.read()) if row.program.id not in before]
            assert "sample_event" in {one.name for one in new}
            assert not any(one.owners for one in new)
            monkeypatch.setattr("stackhound.cli.bpf_top.LOOKS_S", 0.0)
            shown.rows(monitor.read())
            (mine,) = [row.program for row in shown.rows(monitor.read()) if row.program.id == new[0].id]
    assert os.getpid() in {owner.pid for owner in mine.owners}


def top(*more: str) -> str:
    done = run_stackhound("bpf", "top", "-n", "1", "-i", "500ms", *more)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def holds(program: dict[str, Any]) -> bool:
    return os.getpid() in {owner["pid"] for owner in program["owners"]}


def test_list_and_show_say_the_same_in_words_and_in_json() -> None:
    (program,) = ours("arrive")
    listed = run_stackhound("bpf", "list", "arrive").stdout.decode()
    assert f"{program.id:6}  tracing         arrive" in listed
    (one, *_) = json.loads(run_stackhound("bpf", "list", "arrive", "--json").stdout)
    assert one["name"] == "arrive"
    shown = run_stackhound("bpf", "show", str(program.id)).stdout.decode()
    for said in ("raw_tracepoint sched_exit_tp", "instructions on all paths", "targets"):
        assert said in shown
    (one,) = json.loads(run_stackhound("bpf", "show", str(program.id), "--json").stdout)
    assert {"targets", "rings"} <= {each["name"] for each in one["maps"]}


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="no-such-program"):
        choose_programs(list_programs(), "no-such-program")
    done = run_stackhound("bpf", "show", "no-such-program")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)


def ours(name: str) -> list[Any]:
    return [one for one in choose_programs(list_programs(), name) if os.getpid() in {owner.pid for owner in one.owners}]
