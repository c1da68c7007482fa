"""Stacks in a few words."""

from __future__ import annotations

import pytest

from fixtures.profiles import Frame, build_profile
from stackhound.profile.brief_stacks import BriefStacks

LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"


def libc(name):
    return Frame(name, path=LIBC)


def brief(*frames):
    """What is shown, in one line; frames root → leaf."""
    profile = build_profile([("app", 7, 7, 0, 1, frames, 1, 1)])
    return " ← ".join(BriefStacks(profile).brief(int(profile.numbers("samples", "stack")[0])).frames)


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        (["main", "work"], "work ← main"),
        (["a", "b", "c", "d", "e"], "e ← d ← c"),
        (["main", "walk", "walk", "walk"], "walk ← main"),
        (["main", "k:do_syscall_64", "k:vfs_read"], "vfs_read ← main"),
        (["main", "k:vfs_read", "k:filemap_read.isra.0"], "filemap_read ← main"),
        (["main", "k:futex_wait", "k:schedule_timeout", "k:schedule", "k:__schedule"], "futex_wait ← main"),
        (["main", "k:do_sys_poll", "k:poll_schedule_timeout.constprop.0"], "do_sys_poll ← main"),
        (["main", "k:sock_def_readable", "k:__wake_up_sync_key", "k:try_to_wake_up"], "sock_def_readable ← main"),
        (["main", "k:irqentry_exit_to_user_mode", "k:__schedule"], "main"),
        (["k:worker_thread", "k:process_one_work", "k:flush"], "flush ← process_one_work ← worker_thread"),
        (["main", "p:app.main", "p:app.work", "take_gil"], "take_gil ← app.work ← app.main"),
        (["main", "p:a", "p:b", "p:c", "p:d", "compress"], "compress ← d ← c ← b"),
        (["main", "p:app.work", "builtin", "p:app.key"], "app.key ← app.work"),
        (["p:threading.Thread._bootstrap", "p:threading.Thread.run", "p:app.work", "k:read"], "read ← app.work"),
        (["p:threading.Thread._bootstrap", "p:threading.Thread.run"], "threading.Thread.run"),
        (["main", "?libx.so+0x12"], "main"),
        (["?libx.so+0x12", "k:vfs_read"], "vfs_read ← [libx.so]"),
        ([], "[no stack]"),
        (["k:schedule"], "[no stack]"),
    ],
)
def test_a_stack_is_told_by_where_it_waits_and_who_asked_for_it(frames, expected):
    assert brief(*frames) == expected


def test_of_the_c_library_the_function_is_shown_that_was_called():
    waiting = [libc("pthread_cond_wait"), libc("__pthread_cond_wait_common"), libc("__futex_abstimed_wait")]
    assert brief(libc("start_thread"), "worker", "Queue::pop", *waiting, "k:futex_wait") == (
        "futex_wait ← pthread_cond_wait ← Queue::pop ← worker"
    )
    assert brief(libc("clone3"), libc("start_thread")) == "start_thread ← clone3"
    assert brief("p:app.main", libc("sem_wait"), libc("do_wait")) == "sem_wait ← app.main"


def test_a_library_that_is_only_called_alike_is_not_the_c_library():
    assert brief("main", Frame("outer", path="/opt/libcurl.so.4"), Frame("inner", path="/opt/libcurl.so.4")) == (
        "inner ← outer ← main"
    )
