"""``stackhound dump``: what is printed of a dump, to read and as JSON."""

from __future__ import annotations

import json

import click
import numpy as np
import pytest

from fixtures.hostile import hostile_names
from fixtures.profiles import Frame, build_profile, make_table
from stackhound.cli.main import main
from stackhound.cli.threads import as_json, draw
from stackhound.errors import NoSuchProcess, UsageError
from stackhound.profile import Event
from stackhound.profile.columns import with_columns
from stackhound.profile.schema import THREAD_STATES, SampleFlag
from stackhound.profile.threads import NOT_TAKEN, read_threads
from stackhound.recording import threads as recording_threads

DUMP = Event(0, "dump", "count", "dump", "period", 1)
COMPLETE = 1 << SampleFlag.USER_END_SHIFT
NO_RULE = 6 << SampleFlag.USER_END_SHIFT
PYTHON = SampleFlag.PYTHON | SampleFlag.GIL_KNOWN | COMPLETE
MS = 1_000_000

LOOP = ["main", Frame("_PyEval_EvalFrameDefault", path="/usr/bin/python3.11")]
WORK = [*LOOP, "p:app.main at /srv/app.py:12"]
TAKE = [Frame(None, path="/usr/bin/python3.11", address=1), Frame("pthread_cond_timedwait", path="/usr/lib/libc.so.6")]
FUTEX = ["k:do_syscall_64", "k:__x64_sys_futex", "k:futex_wait"]
NAP = ["clone3", "nap at nap.c:3", "clock_nanosleep", "k:__x64_sys_clock_nanosleep", "k:do_nanosleep"]


def thread(tid, frames, flags=COMPLETE, *, pid=7, comm="app", state="sleeping", has_stack=True, io_wait=False):
    return (comm, pid, tid, 1, 100 + tid, frames, 1, 1), flags, (state, io_wait, tid * MS, has_stack)


def dumped(*threads, **metadata):
    """A dump of these threads, the first one at the first moment."""
    samples, flags, states = zip(*threads, strict=True)
    profile = build_profile(samples, events=(DUMP,), metadata=metadata)
    names = ("sample", "state", "io_wait", "cpu_ns", "has_stack")
    rows = [dict(zip(names, (at, *state), strict=True)) for at, state in enumerate(states)]
    table = with_columns(profile.table("samples"), flags=np.array(flags, np.uint32))
    return profile.derive({"samples": table, "thread_states": make_table("thread_states", rows)})


def text(profile, **options):
    return "\n".join(click.unstyle(line) for line in draw(profile, **options))


def test_each_thread_has_a_paragraph_with_its_stack_leaf_first():
    shown = text(dumped(thread(7, ["main at app.c:9", "i:add at app.c:2"], state="running"), thread(9, NAP)))
    assert shown.splitlines() == [
        "Process 7: app --run",
        "2 threads",
        "",
        "Thread 7 (app): running on CPU 1, 7.00 ms of CPU time",
        "    add [inlined]  app.c:2",
        "    main  app.c:9",
        "",
        "Thread 9 (app): sleeping, waits for a timer (clock_nanosleep), 9.00 ms of CPU time",
        "    do_nanosleep  (kernel)",
        "    __x64_sys_clock_nanosleep  (kernel)",
        "    clock_nanosleep  (app)",
        "    nap  nap.c:3",
        "    clone3  (app)",
    ]


def test_who_holds_pythons_lock_and_who_waits_for_it_is_said():
    profile = dumped(
        thread(7, WORK, PYTHON | SampleFlag.GIL_HELD, state="running"),
        thread(8, [*WORK, *TAKE, *FUTEX], PYTHON),
        thread(9, [*WORK, "take_gil", *FUTEX], PYTHON),
        thread(10, [*WORK, "sem_wait", *FUTEX], PYTHON),
        thread(11, [*WORK, Frame("f", path="/lib/ext.so"), TAKE[1], *FUTEX], PYTHON),
        pythons={"7": "3.11.2"},
    )
    (process,) = read_threads(profile)
    assert [one.gil for one in process.threads] == ["held", "waiting", "waiting", "released", "released"]
    shown = text(profile)
    assert "CPython 3.11.2, 5 threads" in shown
    assert "Thread 7 (app): running on CPU 1, holds the GIL," in shown
    assert "Thread 8 (app): sleeping, waits for the GIL (futex)," in shown
    assert "Thread 10 (app): sleeping, waits for a lock or a condition (futex)," in shown


def test_the_interpreters_own_functions_are_left_out_unless_asked_for():
    profile = dumped(thread(7, WORK, PYTHON))
    assert "EvalFrame" not in text(profile)
    assert "EvalFrame" in text(profile.show_native_internals())


def test_why_a_stack_is_not_whole_stands_below_it():
    profile = dumped(
        thread(7, ["main"], NO_RULE),
        thread(8, [], 0, state="running", has_stack=False),
        thread(9, WORK, PYTHON | SampleFlag.PYTHON_CUT),
        thread(10, WORK, PYTHON | SampleFlag.PYTHON_GUESSED),
        thread(11, ["k:kthreadd"], SampleFlag.KERNEL_THREAD),
    )
    paragraphs = text(profile).split("\n\n")[1:]
    said = [paragraph.splitlines()[-1].strip() for paragraph in paragraphs]
    assert said[:2] == ["(callers are missing: no rule)", f"(no stack: {NOT_TAKEN})"]
    assert "missing" in said[2]
    assert "wrong place" in said[3]
    assert said[4] == "kthreadd  (kernel)"


def test_threads_alike_are_one_paragraph_when_asked():
    profile = dumped(thread(7, ["main"], state="stopped"), *(thread(tid, NAP) for tid in range(20, 40)))
    shown = text(profile, grouped=True)
    assert "20 threads, 20, 21, 22, 23, 24, 25, 26, 27 (app) and 12 more: sleeping, waits for a timer" in shown
    assert shown.index("20 threads") < shown.index("Thread 7 (app): stopped by a signal")
    assert shown.count("nap.c:3") == 1


def test_threads_with_the_same_stack_that_do_not_do_the_same_stay_apart():
    profile = dumped(thread(7, NAP), thread(8, NAP, state="stopped"))
    assert text(profile, grouped=True).count("nap.c:3") == 2


def test_processes_stand_in_the_order_of_their_ids_and_main_threads_first():
    profile = dumped(thread(3, NAP, pid=9), thread(9, NAP, pid=9), thread(4, NAP, pid=4))
    assert [(one.pid, [each.tid for each in one.threads]) for one in read_threads(profile)] == [
        (4, [4]),
        (9, [9, 3]),
    ]


def test_a_state_that_is_not_sleep_waits_for_nothing():
    for state in THREAD_STATES:
        profile = dumped(thread(7, NAP, state=state))
        waits_for = json.loads(as_json(profile))["processes"][0]["threads"][0]["waits_for"]
        assert (waits_for is not None) == (state in {"sleeping", "uninterruptible"})


def test_a_page_fault_is_waited_for():
    fault = ["main", "k:asm_exc_page_fault", "k:filemap_fault"]
    shown = text(dumped(thread(7, fault, state="uninterruptible", io_wait=True)))
    assert "sleeping, not to be interrupted, waits for a page of memory, waits for a device," in shown


@pytest.mark.parametrize(
    ("entry", "call"),
    [
        ("__x64_sys_read", "read"),
        ("__arm64_sys_ppoll", "ppoll"),
        ("__ia32_compat_sys_select", "select"),
        ("ksys_write", "write"),
        ("__do_sys_vfork", "vfork"),
        ("vfs_read", None),
    ],
)
def test_the_system_call_is_known_by_its_entry(entry, call):
    (process,) = read_threads(dumped(thread(7, ["main", "__x64_sys_user", "k:do_syscall_64", f"k:{entry}"])))
    assert process.threads[0].system_call == call


def test_hostile_names_stay_on_their_lines_and_in_their_strings():
    names = hostile_names(200)
    threads = [
        thread(10 + at, [Frame(name, file=name, line=1), Frame(None, path=f"/{name}", reason="no\nname")], comm=name)
        for at, name in enumerate(name.encode("utf-8", "replace").decode() for name in names)
    ]
    profile = dumped(*threads)
    for grouped in (False, True):
        lines = [click.unstyle(line) for line in draw(profile, grouped=grouped)]
        assert all(line.isprintable() for line in lines)
    known = as_json(profile)
    assert known.isascii()
    assert all(one.isprintable() for one in known.splitlines())
    assert len(json.loads(known)["processes"][0]["threads"]) == 200


def test_notes_of_the_dump_are_told():
    profile = dumped(thread(7, NAP), notes=["process 8 cannot be looked at: \x1b[2J"])
    assert "process 8 cannot be looked at: \\x1b[2J" in text(profile)
    assert json.loads(as_json(profile))["notes"] == ["process 8 cannot be looked at: \\x1b[2J"]


def test_the_moment_of_each_stack_is_unix_time_where_that_is_known():
    clock = {"boot_to_unix_ns_start": 1_000}
    (thread_fields,) = json.loads(as_json(dumped(thread(7, NAP), clock=clock)))["processes"][0]["threads"]
    assert thread_fields["time_unix_ns"] == thread_fields["boottime_ns"] + 1_000
    (thread_fields,) = json.loads(as_json(dumped(thread(7, NAP))))["processes"][0]["threads"]
    assert thread_fields["time_unix_ns"] is None


def test_a_profile_that_is_no_dump_says_so():
    with pytest.raises(UsageError, match="no dump"):
        read_threads(build_profile([("app", 7, 7, 0, 1, ["main"], 1, 1)]))


def test_the_command_prints_the_dump_of_its_processes(monkeypatch, capsys):
    asked = []

    def dump(pids, **options):
        asked.append((pids, options))
        return dumped(thread(7, WORK, PYTHON))

    monkeypatch.setattr(recording_threads, "dump", dump)
    assert main(["dump", "-p", "7,8", "-p", "9", "--user-only"]) == 0
    assert "Thread 7" in capsys.readouterr().out
    assert asked[0][0] == (7, 8, 9)
    assert asked[0][1]["user_only"]
    assert asked[0][1]["python"]


def test_without_a_process_the_command_is_not_used_right(capsys):
    assert main(["dump"]) == 2
    assert "name one with -p PID" in capsys.readouterr().err


def test_a_process_that_is_not_there_is_named(monkeypatch, capsys):
    def dump(pids, **_):
        raise NoSuchProcess(f"there is no process {pids[0]}")

    monkeypatch.setattr(recording_threads, "dump", dump)
    assert main(["dump", "-p", "7"]) == 1
    assert capsys.readouterr().err == "stackhound: there is no process 7\n"
