"""Off-wake chains: who ended an absence, on top of the stack that was away."""

from __future__ import annotations

import gzip
import io
import json

import pytest

from fixtures.profiles import make_table
from fixtures.times import APP, MS, WORKER, away, build_times, ran
from stackhound.cli.main import main
from stackhound.errors import UsageError
from stackhound.formats import by_name

LOCK = ["main", "lock at lock.c:7", "k:futex_wait"]
NAP = ["main", "nap", "k:do_nanosleep"]
UNLOCK = ["start", "work", "i:unlock", "i:wake", "k:futex_wake", "k:try_to_wake_up"]
TIMER = ["k:hrtimer_interrupt", "k:hrtimer_wakeup", "?gone.so+0x10"]
INTERRUPT = ("[interrupt]", 0, 0)


def build(**wakers):
    """Absences of 30, 20 and 10 ms. ``wakers``: by the absence, who ended it and the sample that has its stack."""
    spells = [
        ran(WORKER, 1, UNLOCK, 1),
        ran(INTERRUPT, 2, TIMER, 1),
        away(APP, 40, LOCK, 30, "futex"),
        away(APP, 70, NAP, 20, "sleep"),
        away(APP, 90, LOCK, 10, "futex"),
    ]
    profile = build_times(spells, until=100)
    threads, stacks = (profile.numbers("samples", name).tolist() for name in ("thread", "stack"))
    rows = [
        {"sample": {"first": 2, "nap": 3, "last": 4}[absence], "thread": threads[waker],
         "stack": stacks[waker] if with_stack else 0}
        for absence, (waker, with_stack) in wakers.items()
    ]  # fmt: skip
    return profile.derive({"wakers": make_table("wakers", rows)})


@pytest.fixture
def profile():
    return build(first=(0, True), nap=(1, True))


def folded(profile):
    out = io.BytesIO()
    by_name("folded").write(profile, out, event="off-cpu")
    return {
        line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) // MS for line in out.getvalue().decode().splitlines()
    }


def test_the_waker_stands_upside_down_on_top_of_the_sleeper_its_name_last(profile):
    assert folded(profile.show_wakers()) == {
        "app;main;lock;futex_wait_[k];--_[w];try_to_wake_up_[w];futex_wake_[w];wake_[w];unlock_[w];work_[w];start_[w]"
        ";worker_[w]": 30,
        "app;main;nap;do_nanosleep_[k];--_[w];[gone.so]_[w];hrtimer_wakeup_[w];hrtimer_interrupt_[w]"
        ";[interrupt]_[w]": 20,
        "app;main;lock;futex_wait_[k]": 10,
    }


def test_times_are_what_they_were_and_other_events_stay(profile):
    shown = profile.show_wakers()
    assert sum(folded(shown).values()) == sum(folded(profile).values()) == 60
    for column in ("value", "boottime_ns", "event"):
        assert shown.numbers("samples", column).tolist() == profile.numbers("samples", column).tolist()
    tree, before = shown.tree("cpu"), profile.tree("cpu")
    assert [tree.name(node) for node in range(len(tree))] == [before.name(node) for node in range(len(before))]


def test_a_waker_without_a_stack_is_there_with_its_name():
    assert folded(build(last=(0, False)).show_wakers()) == {
        "app;main;lock;futex_wait_[k]": 30,
        "app;main;nap;do_nanosleep_[k]": 20,
        "app;main;lock;futex_wait_[k];--_[w];worker_[w]": 10,
    }


def test_one_stack_that_several_woke_has_a_chain_for_each():
    assert sorted(folded(build(first=(0, True), last=(1, False)).show_wakers()).values()) == [10, 20, 30]
    assert folded(build(first=(0, False), last=(0, False)).show_wakers()) == {
        "app;main;lock;futex_wait_[k];--_[w];worker_[w]": 40,
        "app;main;nap;do_nanosleep_[k]": 20,
    }


def test_wakers_are_a_kind_of_code_and_keep_their_files_and_lines():
    rows = [away(APP, 40, LOCK, 30, "futex"), ran(WORKER, 1, ["main at m.c:3", "i:wake at w.h:9"], 1)]
    profile = build_times(rows, until=100)
    thread, stack = (int(profile.numbers("samples", name)[0]) for name in ("thread", "stack"))
    wakers = make_table("wakers", [{"sample": 1, "thread": thread, "stack": stack}])
    shown = profile.derive({"wakers": wakers}).show_wakers()
    tree = shown.tree("off-cpu", lines=True)
    frames = [int(frame) for frame in tree.frame[1:]]
    assert [(tree.frames.name[one], tree.frames.kind[one], tree.frames.file[one], int(tree.frames.line[one]))
            for one in frames][-4:] == [
        ("--", "waker", "", 0),
        ("wake", "waker", "w.h", 9),
        ("main", "waker", "m.c", 3),
        ("worker", "waker", "", 0),
    ]  # fmt: skip


def test_the_profile_is_as_sound_as_before(profile, tmp_path):
    from stackhound.profile import load

    shown = profile.show_wakers()
    shown.save(tmp_path / "x.hound")
    assert folded(load(tmp_path / "x.hound")) == folded(shown)
    assert folded(shown.invert().invert()) == folded(shown)
    assert folded(shown.compact()) == folded(shown)
    assert folded(shown.focus("unlock")) == {path: value for path, value in folded(shown).items() if "unlock" in path}


def test_a_profile_without_wakers_says_what_to_record(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    build_times([away(APP, 40, LOCK, 30, "futex")], until=100).save("stackhound.hound")
    assert main(["report", "--event", "off-cpu", "--off-wake"]) == 2
    assert capsys.readouterr().err == (
        "stackhound: who woke threads was not recorded: record with -e off-cpu --wakers\n"
    )


def test_inverted_stacks_are_refused(profile):
    with pytest.raises(UsageError, match="show wakers first"):
        profile.invert().show_wakers()


@pytest.mark.parametrize("name", ["svg", "html", "pprof", "speedscope", "firefox", "perfetto", "text", "jsonl"])
def test_every_format_shows_them(profile, name):
    out = io.BytesIO()
    by_name(name).write(profile.show_wakers(), out, event="off-cpu")
    data = gzip.decompress(out.getvalue()) if name == "pprof" else out.getvalue()
    assert b"hrtimer_interrupt" in data


def test_the_command_line_shows_them(profile, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    profile.save("stackhound.hound")
    assert main(["report", "--event", "off-cpu", "--off-wake", "--json"]) == 0
    rows = {row["symbol"]: row["self"] // MS for row in json.loads(capsys.readouterr().out)["rows"]}
    assert {name: value for name, value in rows.items() if value} == {"worker": 30, "[interrupt]": 20, "futex_wait": 10}
    assert main(["export", "--event", "off-cpu", "--off-wake", "--inverted", "--format", "folded"]) == 0
    assert "app;worker_[w];start_[w]" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--why"], ["--timeline"]])
def test_pages_of_times_have_no_place_for_them(arguments, profile, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    profile.save("stackhound.hound")
    assert main(["report", *arguments, "--off-wake"]) == 2
    assert capsys.readouterr().err == f"stackhound: {arguments[0]} shows who sleeps: drop --off-wake\n"


def test_without_a_waker_left_nothing_changes():
    profile = build()
    assert folded(profile.show_wakers()) == folded(profile)
    assert folded(build(nap=(1, True)).filter(tids=[8]).show_wakers()) == {}
