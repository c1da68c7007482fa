"""The report to read, to the letter."""

from __future__ import annotations

import io

from fixtures.examples import two_events, web_server
from fixtures.profiles import build_profile
from stackhound.formats import by_name

STACKS = """
 50.00%  20.2 ms  nginx
         vfs_read  (kernel)
         parse [inlined]  /src/parse.h:40
         main  /src/main.c:12
         _start  (app)

 25.00%  10.1 ms  java
         Foo.bar  (jit)
         _start  (app)

 25.00%  10.1 ms  nginx: worker
         [libz.so.1]  (no symbol table)
         main  /src/main.c:12
         _start  (app)
"""


def write(profile, event=None):
    out = io.BytesIO()
    by_name("text").write(profile, out, event=event)
    return out.getvalue().decode()


def test_the_stacks_stand_heaviest_first_leaf_first_with_their_source_lines():
    assert write(web_server()).endswith(STACKS)


def test_the_heading_says_where_it_was_recorded_and_what_was_lost():
    losses = [("ring-full", 12, False, "the ring buffer was full"), ("nested", 3, True, "in another program")]
    profile = build_profile([], metadata={"host": {"name": "web-1", "kernel": "6.18.5"}}, losses=losses)
    heading = write(profile)
    assert heading.startswith("cpu on web-1\n============\n")
    for fact in ("Linux 6.18.5", "12 ring-full", "~3 nested"):
        assert fact in heading


def test_each_event_has_its_part_unless_one_is_asked_for():
    both = write(two_events())
    assert both.index("cpu on web-1") < both.index("100.00%  10.1 ms") < both.index("page-faults on web-1")
    assert "100.00%  3  app\n         load  (app)\n" in both
    assert write(two_events(), "page-faults") == both[both.index("page-faults on web-1") :]


def test_a_sample_without_a_stack_says_so():
    assert write(build_profile([("app", 7, 7, 0, 1, [], 1000, 1)])).endswith("  app\n         [no stack]\n")


def test_hostile_names_stay_in_their_line():
    profile = build_profile([("\x1b[2J\n", 7, 7, 0, 1, ["a\nb at /x\u202e.c:3", "?\x1b.so+1"], 1000, 1)])
    text = write(profile)
    assert all(line.isprintable() for line in text.split("\n"))
    assert text.endswith("  \\x1b[2J\\n\n         [\\x1b.so]  (no symbol table)\n         a\\nb  /x\\u202e.c:3\n")
