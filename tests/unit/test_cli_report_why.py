"""``stackhound report --why``: where the wall time of a process went."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fixtures.profiles import CPU, FAULTS, build_profile, make_table
from fixtures.terminal import run_on_terminal
from fixtures.times import APP, MS, OFF_CPU, START_NS, WORKER, away, build_times, ran
from stackhound.cli.main import main
from stackhound.profile import Event

WORK = ["main", "p:app.main at app.py:9", "p:app.work at app.py:2"]
READ = [*WORK, "read", "k:vfs_read"]
LOCK = ["start", "worker", "Queue::pop", "pthread_cond_wait", "k:do_futex", "k:futex_wait_queue", "k:schedule"]
NAP = [*WORK, "clock_nanosleep", "k:do_nanosleep", "k:schedule", "k:__schedule"]
FAULT = [*WORK, "memset", "k:asm_exc_page_fault", "k:clear_page"]
TURN = [*WORK, "k:irqentry_exit", "k:__schedule"]

SPELLS = [
    ran(APP, 5, WORK, 10),
    ran(APP, 15, READ, 10, in_kernel=True),
    ran(APP, 25, FAULT, 10, in_kernel=True),
    away(APP, 60, NAP, 30, "sleep", queued=10),
    away(APP, 90, TURN, 30, "cpu", queued=25),
    away(WORKER, 80, LOCK, 80, "futex"),
    away(WORKER, 95, LOCK, 2, "futex", value=15, count=8, queued=1),
    ran(("other", 9, 9), 50, ["main", "spin"], 20),
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    build_times(SPELLS, until=100).save("stackhound.hound")


def shown(capsys, *arguments, status=0):
    assert main(["report", *map(str, arguments)]) == status
    captured = capsys.readouterr()
    return captured.err if status else captured.out


def places(capsys, *arguments):
    """{place: ms}, of those that have any."""
    document = json.loads(shown(capsys, "--json", *arguments))
    return {row["place"]: row["ns"] / MS for row in document["places"] if row["ns"]}


def test_one_page_says_where_the_time_of_the_busiest_process_went(capsys):
    assert shown(capsys, "--why") == (
        "app (7): 2 threads, 195 ms of wall time in 100 ms\n"
        "44.9% waiting for locks, 24.4% ready but without a CPU, 10.3% sleeping\n"
        "94.9% of it accounted for; not known: 5.1%, 10.0 ms\n"
        "\n"
        "  share       time  where\n"
        "  44.9%    87.5 ms  locks: futex\n"
        "           87.5 ms    futex_wait_queue ← pthread_cond_wait ← Queue::pop ← worker\n"
        "  24.4%    47.5 ms  run queue: preempted 30.0 ms, woken 17.5 ms\n"
        "           30.0 ms    app.work ← app.main\n"
        "           10.0 ms    do_nanosleep ← clock_nanosleep ← app.work ← app.main\n"
        "           7.50 ms    futex_wait_queue ← pthread_cond_wait ← Queue::pop ← worker\n"
        "  10.3%    20.0 ms  sleep\n"
        "           20.0 ms    do_nanosleep ← clock_nanosleep ← app.work ← app.main\n"
        "   5.1%    10.0 ms  user code\n"
        "           10.0 ms    app.work ← app.main\n"
        "   5.1%    10.0 ms  kernel\n"
        "           10.0 ms    vfs_read ← read ← app.work ← app.main\n"
        "   5.1%    10.0 ms  page faults: on the CPU\n"
        "           10.0 ms    clear_page ← memset ← app.work ← app.main\n"
        "\n"
        "15 samples · 0 lost\n"
    )


def test_ready_time_is_taken_from_what_was_waited_for(capsys):
    assert places(capsys, "--why", 7) == {
        "locks": 80 + 7.5,
        "run queue": 10 + 30 + 7.5,
        "sleep": 20,
        "user code": 10,
        "kernel": 10,
        "page faults": 10,
    }


def test_stacks_are_cut_in_the_middle_where_the_terminal_is_narrow(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = shown(capsys, "--why").splitlines()
    assert max(len(line) for line in lines if "←" in line) <= 60
    assert "           87.5 ms    futex_wait_queue ← … ← worker" in lines
    assert "           20.0 ms    do_nanosleep ← … ← app.work ← app.main" in lines


def test_a_process_is_found_by_its_name_or_that_of_a_thread(capsys):
    assert shown(capsys, "--why", "other").startswith("other (9): 1 thread, 100 ms of wall time in 100 ms\n")
    assert shown(capsys, "--why", "worker").startswith("app (7): 2 threads")


def test_a_name_of_several_processes_is_answered_with_their_ids(capsys):
    spells = [ran(("app", pid, pid), 5, WORK, 10) for pid in (7, 8)]
    build_times(spells, until=100).save("stackhound.hound")
    assert shown(capsys, "--why", "app", status=2) == (
        "stackhound: 'app' is 2 processes: 7, 8: give one of these ids\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--why", "nobody"], "this profile has no process 'nobody': 'report --sort process' lists those it has"),
        (["--why", "x.hound"], "--why x.hound says no process: write report x.hound --why"),
        (["--why", "--event", "cpu"], "--why is of cpu and off-cpu together: drop --event"),
        (["--why", "--tree"], "--tree and --why are views of their own: keep one, for example --tree"),
        (["--why", "--sort", "pid"], "--why has an order of its own: drop --sort"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(arguments, said, capsys):
    assert shown(capsys, *arguments, status=2) == f"stackhound: {said}\n"


@pytest.mark.parametrize(
    ("event", "lacks"), [(CPU, "time off the CPU was not recorded"), (OFF_CPU, "time on the CPU was not recorded")]
)
def test_what_was_not_recorded_is_said_with_what_to_record(event, lacks, capsys):
    spells = [spell for spell in SPELLS if bool(spell.reason) == (event is OFF_CPU)]
    build_times(spells, until=100).filter(events=[event.name]).save("stackhound.hound")
    assert f"\n{lacks}: 'stackhound record -e cpu,off-cpu' has both\n" in shown(capsys, "--why", 7)
    assert json.loads(shown(capsys, "--why", 7, "--json"))["missing"] == [({CPU, OFF_CPU} - {event}).pop().name]


def test_a_profile_without_time_is_refused(capsys):
    build_profile([("app", 7, 7, 0, 1, WORK, 1, 1)], events=[replace(FAULTS, id=0)]).save("stackhound.hound")
    assert shown(capsys, "--why", status=2) == (
        "stackhound: this profile has time neither on the CPU nor off it: record with -e cpu,off-cpu\n"
    )


def test_page_faults_and_requests_are_counted_where_they_were_recorded(capsys):
    faults = Event(2, "minor-faults", "count", "minor-faults", "period", 1)
    touched = ("app", 7, 7, 0, START_NS + 5 * MS, WORK, 12, 1, "minor-faults")
    requests = Event(3, "block-io", "nanoseconds", "block_io_start", "period", 1)
    read = ("app", 7, 7, 0, START_NS + 6 * MS, WORK, MS, 3, "block-io")
    profile = build_times(SPELLS, until=100, events=(CPU, OFF_CPU, faults, requests), more=[touched, read])
    profile.save("stackhound.hound")
    assert "\n12 minor page faults, 3 requests to disks\n" in shown(capsys, "--why", 7)
    total = make_table("event_totals", [{"event": 2, "pid": 7, "start_boottime_ns": 7, "count": 1_234}])
    profile.derive({"event_totals": total}).save("stackhound.hound")
    assert "\n1,234 minor page faults, 3 requests to disks\n" in shown(capsys, "--why", 7)


def test_names_from_the_profiled_program_do_not_reach_the_terminal(capsys):
    hostile = ("\x1b[31mapp", 7, 7)
    build_times([ran(hostile, 5, ["\x1b]0;x\x07"], 10)], until=10).save("stackhound.hound")
    assert "\x1b" not in shown(capsys, "--why")


def test_a_thread_that_lived_for_a_part_of_the_recording_counts_for_that_part(capsys):
    document = json.loads(shown(capsys, "--why", 7, "--json"))
    assert document["wall_ns"] == (100 + 95) * MS
    assert document["known_ns"] + document["unknown_ns"] == document["wall_ns"]


def test_a_terminal_gets_the_page_in_its_width():
    page = run_on_terminal("report", "--why").decode()
    assert "app (7)" in page
    assert "\x1b[1m" in page
