"""Time off the CPU is shown where a thread waits, and the scheduler's own functions where they ran."""

from __future__ import annotations

from fixtures.profiles import CPU, build_profile
from fixtures.strategies import paths_of
from stackhound.profile import Event

OFF_CPU = Event(1, "off-cpu", "nanoseconds", "sched_exit_tp", "period", 1_000_000)


def shown(stack, event="off-cpu", **chosen):
    profile = build_profile([("app", 7, 7, 0, 1_000, stack.split(), 10, 1, event)], events=(CPU, OFF_CPU))
    profile = profile.show_native_internals() if chosen.get("internals") else profile
    (path,) = paths_of(profile, event)
    return " ".join(path)


def test_a_thread_waits_in_what_called_the_scheduler():
    assert shown("main k:futex_wait k:schedule_timeout k:schedule k:__schedule") == "main futex_wait"
    assert shown("main k:exit_to_user_mode_loop k:schedule k:__schedule") == "main exit_to_user_mode_loop"


def test_what_the_scheduler_takes_of_the_cpu_stays():
    assert shown("main k:schedule k:__schedule", event="cpu") == "main schedule __schedule"


def test_functions_of_a_program_that_are_called_like_the_schedulers_stay():
    assert shown("main schedule k:nanosleep k:schedule") == "main schedule nanosleep"


def test_where_there_is_nothing_else_the_outermost_stays():
    assert shown("k:schedule k:__schedule") == "schedule"


def test_all_is_shown_on_demand():
    assert shown("main k:futex_wait k:schedule", internals=True) == "main futex_wait schedule"
