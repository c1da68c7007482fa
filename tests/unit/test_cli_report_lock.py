"""``stackhound report --gil``: who holds Python's lock, and who waits for it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fixtures.profiles import CPU, FAULTS, Frame, build_profile
from stackhound.cli.main import main
from stackhound.profile import Event
from stackhound.profile.columns import with_columns
from stackhound.profile.schema import SampleFlag

MS = 1_000_000
OFF_CPU = Event(1, "off-cpu", "nanoseconds", "sched_exit_tp", "period", 1)
HELD = SampleFlag.PYTHON | SampleFlag.GIL_KNOWN | SampleFlag.GIL_HELD
FREE = SampleFlag.PYTHON | SampleFlag.GIL_KNOWN
UNKNOWN = SampleFlag.PYTHON

WORK = ["main", "p:app.main at app.py:9", "p:app.work at app.py:2"]
PACK = ["main", "p:app.main at app.py:9", "p:app.pack at app.py:5", "compress"]
ON_CPU = [
    (WORK, 60 * MS, HELD),
    ([*WORK, "_PyEval_EvalFrameDefault", "long_add"], 20 * MS, HELD),
    (PACK, 10 * MS, FREE),
    ([*PACK[:3], "PyLong_FromLong"], 10 * MS, HELD),
    (["main", "thread_run"], 5 * MS, FREE),
    (WORK, 7 * MS, UNKNOWN),
    (["other"], 900 * MS, 0),
]
WAITING = [
    ([*WORK, "take_gil", "k:futex_wait"], 30 * MS, FREE, "off-cpu"),
    ([*PACK, "PyEval_RestoreThread", "[libpython]", "k:futex_wait"], 15 * MS, FREE, "off-cpu"),
    (["main", "p:app.main at app.py:9", "PyEval_RestoreThread", "p:app.signal at app.py:7", "k:sleep"], 40 * MS, FREE,
     "off-cpu"),
    ([*WORK, "select", "k:poll"], 500 * MS, FREE, "off-cpu"),
    (["other", "take_gil"], 100 * MS, 0, "off-cpu"),
    ([*WORK, "k:page_fault"], 8 * MS, HELD, "off-cpu"),
    ([*PACK, "take_gil", "k:preempt"], 3 * MS, HELD, "off-cpu"),
]  # fmt: skip


def save(rows, events=(CPU,)):
    samples = [("app", 7, 7, 0, at, frames, value, 1, *event) for at, (frames, value, _, *event) in enumerate(rows)]
    profile = build_profile(samples, events=events)
    flags = np.array([flag for _, _, flag, *_ in rows], np.uint32)
    profile.derive({"samples": with_columns(profile.table("samples"), flags=flags)}).save("stackhound.hound")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(ON_CPU)


def shown(capsys, *arguments, status=0):
    assert main(["report", "--gil", *map(str, arguments)]) == status
    captured = capsys.readouterr()
    return captured.err if status else captured.out


def rows(capsys, *arguments):
    """{function: (held, without, away, waiting)} in ms."""
    document = json.loads(shown(capsys, "--json", *arguments))
    return {
        row["function"]: tuple(row[name] if row[name] is None else row[name] // MS for name in row if name in TIMES)
        for row in document["rows"]
    }


TIMES = ("held", "without", "away", "waiting")


def test_time_on_the_cpu_is_told_apart_by_the_lock_for_each_python_function(capsys):
    assert shown(capsys).split("\n\n", 1)[1] == (
        "the lock's holder is known in 5 of 6 samples of Python\n"
        "of their 105 ms 85.7% with the lock\n"
        "not known: free-threaded builds, which have none, and versions that are not read\n"
        "waiting for the lock is time off the CPU, which was not recorded (-e cpu,off-cpu)\n"
        "\n"
        "   held  without       held    without  function              file\n"
        "  76.2%     0.0%    80.0 ms       0 ns  app.work              app.py\n"
        "   9.5%     9.5%    10.0 ms    10.0 ms  app.pack              app.py\n"
        "   0.0%     4.8%       0 ns    5.00 ms  (no Python function)\n"
    )


def test_time_off_the_cpu_has_columns_when_it_was_recorded(capsys):
    save([(*row, "cpu") for row in ON_CPU] + WAITING, (CPU, OFF_CPU))
    assert rows(capsys) == {
        "app.work": (80, 0, 8, 30), "app.pack": (10, 10, 3, 15), "(no Python function)": (0, 5, 0, 0),
    }  # fmt: skip
    text = shown(capsys)
    assert "   held  without     away  waiting       held    without       away    waiting  function" in text
    assert "  76.2%     0.0%     7.6%    28.6%    80.0 ms       0 ns    8.00 ms    30.0 ms  app.work" in text
    assert "was not recorded" not in text


@pytest.mark.parametrize("options", [[], ["--native-internals"]])
def test_in_a_stripped_interpreter_who_waits_is_known_by_what_the_c_library_is_asked_for(capsys, options):
    loop = Frame("_PyEval_EvalFrameDefault", path="/usr/bin/python3.11")
    nameless = Frame(None, path="/usr/bin/python3.11", address=0x77)
    condition = Frame("pthread_cond_timedwait", path="/lib/libc.so.6")
    other = Frame("queue_get", path="/lib/queue.so")
    stacks = {9: [nameless, condition], 4: [condition], 100: [other, condition], 200: [nameless, other]}
    waiting = [([loop, *WORK[1:], *frames, "k:futex"], value * MS, FREE, "off-cpu") for value, frames in stacks.items()]
    save([([loop, *WORK[1:]], 60 * MS, HELD, "cpu"), *waiting], (CPU, OFF_CPU))
    assert rows(capsys, *options) == {"app.work": (60, 0, 0, 13)}


def test_without_time_off_the_cpu_waiting_is_not_zero_but_unknown(capsys):
    assert rows(capsys)["app.work"] == (80, 0, None, None)


def test_json_says_how_many_samples_are_known(capsys):
    document = json.loads(shown(capsys, "--json"))
    assert (document["known"], document["unknown"], document["event"]) == (5, 1, "cpu")


def test_another_event_is_counted_in_its_own_unit(capsys):
    save([(WORK, 60 * MS, HELD, "cpu"), (PACK, 3, HELD, "page-faults")], (CPU, FAULTS))
    assert list(rows(capsys)) == ["app.work"]
    assert "100.0%     0.0%          3          0  app.pack" in shown(capsys, "--event", "page-faults")


def test_time_off_the_cpu_is_no_event_to_choose(capsys):
    save([(*row, "cpu") for row in ON_CPU] + WAITING, (CPU, OFF_CPU))
    assert "time off the CPU has columns of its own" in shown(capsys, "--event", "off-cpu", status=2)


def test_a_selection_applies_and_rows_are_limited(capsys):
    assert list(rows(capsys, "--focus", "pack")) == ["app.pack"]
    assert list(rows(capsys, "-n", "1")) == ["app.work"]


def test_a_profile_without_python_says_so(capsys):
    save([(["main"], 10 * MS, 0)])
    assert "no sample is of a thread that runs Python" in shown(capsys)


def test_a_free_threaded_program_has_no_lock(capsys):
    save([(WORK, 10 * MS, UNKNOWN)])
    text = shown(capsys)
    assert "known in 0 of 1 samples" in text
    assert "free-threaded builds" in text


def test_hostile_names_reach_no_terminal(capsys):
    save([(["p:a\x1b[2J at e\x07vil.py:1"], 10 * MS, HELD)])
    for options in ([], ["--json"]):
        text = shown(capsys, *options)
        assert not {char for char in text if not char.isprintable() and char != "\n"}, options
