"""What BPF programs took of the CPUs: samples by name, beside what the kernel counted."""

from __future__ import annotations

from dataclasses import fields

from fixtures.profiles import build_profile
from stackhound.bpf.monitor import Rate, Reading
from stackhound.bpf.profile import share_out, within_programs
from stackhound.bpf.programs import Program

MS = 1_000_000
PARSE = f"b:bpf_prog_{'a' * 16}_parse"


def program(id_, name):
    return Program(**{one.name: {"id": id_, "name": name}.get(one.name, 0) for one in fields(Program)})


def shares(rates, *programs):
    rows = [
        ("app", 7, 7, 0, 1_000, ["main", "k:run", PARSE, f"b:bpf_prog_{'b' * 16}_check"], 30 * MS, 1),
        ("app", 7, 7, 0, 2_000, ["main", PARSE, "k:map_lookup"], 10 * MS, 1),
        ("app", 7, 7, 0, 3_000, [f"b:bpf_prog_{'c' * 16}_gone"], 5 * MS, 1),
        ("app", 7, 7, 0, 4_000, ["main"], 50 * MS, 1),
    ]
    reading = Reading(1_000 * MS, {id_: Rate(id_, 1, run_ns, 0) for id_, run_ns in rates.items()}, 0.0)
    return share_out(within_programs(build_profile(rows)), reading, programs)


def test_time_is_that_of_the_program_with_its_subprograms_and_what_they_called():
    (parse, gone) = shares({5: 41.0 * MS}, program(5, "parse"))
    assert (parse.name, parse.ids, parse.sampled_ns, parse.counted_ns) == ("parse", (5,), 40 * MS, 41.0 * MS)
    assert (gone.name, gone.ids, gone.counted_ns) == ("gone", (), None)
    assert not parse.is_unseen


def test_loads_of_one_program_are_added_up_once():
    parse = shares({5: 20.0 * MS, 6: 19.0 * MS}, program(5, "parse"), program(6, "parse"))[0]
    assert (parse.ids, parse.sampled_ns, parse.counted_ns) == ((5, 6), 40 * MS, 39.0 * MS)


def test_what_the_clock_cannot_see_is_said():
    found = {one.name: one for one in shares({8: 300.0 * MS, 9: 1.0 * MS}, program(8, "on_switch"), program(9, "rare"))}
    assert found["on_switch"].is_unseen
    assert not found["rare"].is_unseen
