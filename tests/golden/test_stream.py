"""The lines of ``stackhound stream``, to the letter."""

from __future__ import annotations

import io

import numpy as np
import pytest
from arro3.core import Array, DataType, Table, list_array

from fixtures.profiles import make_table
from stackhound.formats.stream import StreamWriter
from stackhound.transform.interpreter import find_shown_places

UNIX_OFFSET_NS = 1_763_718_191_000_000_000

KERNEL, CURL, LIBC = range(3)
OBJECTS = [("kernel", "[kernel]"), ("elf", "/usr/bin/curl"), ("elf", "/usr/lib/libc.so.6")]
FUNCTIONS = [  # name, file, object, start
    ("vfs_read", "", KERNEL, 0x4E7C0),
    ("ksys_read", "", KERNEL, 0x4EFC0),
    ("main", "/src/main.c", CURL, 0x1120),
    ("parse", "/src/parse.h", CURL, 0),
    ("skip_space", "/src/parse.h", CURL, 0),
    ("_start", "", CURL, 0x1000),
]
VFS_READ, KSYS_READ, MAIN, MISS, START = range(5)
LOCATIONS = [  # object, address, reason, (function, line, column) innermost first
    (KERNEL, 0x4E7D0, None, [(0, 0, 0)]),
    (KERNEL, 0x4F000, None, [(1, 0, 0)]),
    (CURL, 0x1139, None, [(4, 44, 0), (3, 40, 9), (2, 12, 5)]),
    (LIBC, 0x29BDF, "no symbol table", []),
    (CURL, 0x1024, None, [(5, 0, 0)]),
]
#: location, and its address in this process
KERNEL_HALF = [(VFS_READ, 0xFFFFFFFF8164E7D0), (KSYS_READ, 0xFFFFFFFF8164F001)]
USER_HALF = [(MAIN, 0x5581D02C1139), (MISS, 0x72E2A97F4BE0), (START, 0x5581D02C1025)]


class Recording:
    """Tables that grow as samples come, handed over as `Session.take` does."""

    def __init__(self, objects=OBJECTS, functions=FUNCTIONS, locations=LOCATIONS):
        self.stacks = {(): 0}
        self.rows = {
            "objects": [{"kind": kind, "path": path, "build_id": ""} for kind, path in objects],
            "functions": [
                {"name": name, "system_name": name, "file": file, "object": at, "address": start, "size": 0}
                for name, file, at, start in functions
            ],
            "locations": [{"object": at, "address": address, "reason": why} for at, address, why, _ in locations],
            "lines": [
                {"location": number, "depth": depth, "function": function, "line": line, "column": column}
                for number, (_, _, _, lines) in enumerate(locations)
                for depth, (function, line, column) in enumerate(lines)
            ],
            "stacks": [{"parent": 0, "location": 0, "depth": 0, "hash": 0}],
            "processes": [], "threads": [], "samples": [],
        }  # fmt: skip
        self.addresses = []
        self.taken = dict.fromkeys(self.rows, 0)

    def add(self, leaf_first, comm="curl", pid=4242, cpu=3, boottime_ns=1_000_000_042):
        path = tuple(location for location, _ in reversed(leaf_first))
        process = dict.fromkeys(("comm", "executable", "command_line", "cgroup", "container"), "")
        numbers = {"ns_pid": pid, "parent_pid": 1, "start_boottime_ns": 0, "exit_boottime_ns": None}
        self.rows["processes"].append({"pid": pid, **process, **numbers})
        thread = len(self.rows["threads"])
        self.rows["threads"].append({"process": thread, "tid": pid, "ns_tid": pid, "comm": comm})
        sample = {"event": 0, "boottime_ns": boottime_ns, "cpu": cpu, "thread": thread, "stack": self.stack(path)}
        rest = {"duration_ns": 0, "value": 1, "count": 1, "last_ns": boottime_ns, "flags": 0}
        self.rows["samples"].append({**sample, **rest})
        self.addresses.append([address for _, address in leaf_first])
        return self

    def stack(self, path):
        if path not in self.stacks:
            parent = self.stack(path[:-1])
            self.stacks[path] = len(self.rows["stacks"])
            self.rows["stacks"].append({"parent": parent, "location": path[-1], "depth": len(path), "hash": 0})
        return self.stacks[path]

    def take(self):
        numbered = {name: [{"id": i, **row} for i, row in enumerate(rows)] for name, rows in self.rows.items()}
        new = {name: make_table(name, rows[self.taken[name] :]) for name, rows in numbered.items()}
        new["addresses"] = addresses_table(self.taken["samples"], self.addresses[self.taken["samples"] :])
        self.taken = {name: len(rows) for name, rows in self.rows.items()}
        return new


def addresses_table(first, rows):
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    flat = Array([address for row in rows for address in row], DataType.uint64())
    samples = Array(list(range(first, first + len(rows))), DataType.uint64())
    return Table.from_pydict({"sample": samples, "addresses": list_array(Array.from_numpy(offsets), flat)})


def stream(style, leaf_first=(), **sample):
    out = io.StringIO()
    StreamWriter(out, style, UNIX_OFFSET_NS).write(Recording().add(leaf_first, **sample).take())
    return out.getvalue()


def test_the_default_style_shows_kernel_and_user_frames_leaf_first():
    assert stream("default", KERNEL_HALF + USER_HALF) == (
        "[1763718192.000000042] COMM: curl (pid=4242) @ CPU 3\n"
        "Kernel:\n"
        "0xffffffff8164e7d0: vfs_read @ 0xffffffff8164e7c0+0x10\n"
        "0xffffffff8164f001: ksys_read @ 0xffffffff8164efc0+0x41\n"
        "Userspace:\n"
        "0x005581d02c1139: main @ 0x5581d02c1120+0x19 /src/main.c:12:5\n"
        "                  parse @ /src/parse.h:40:9 [inlined]\n"
        "                  skip_space @ /src/parse.h:44 [inlined]\n"
        "0x0072e2a97f4be0: <no-symbol> (no symbol table)\n"
        "0x005581d02c1025: _start @ 0x5581d02c1000+0x25\n"
        "\n"
    )


def test_the_index_style_numbers_the_frames_of_each_half():
    assert stream("index", KERNEL_HALF + USER_HALF) == (
        "COMM: curl (pid=4242) @ CPU 3\n"
        "Kernel:\n"
        "  0 [<ffffffff8164e7d0>] vfs_read+0x10\n"
        "  1 [<ffffffff8164f001>] ksys_read+0x41\n"
        "Userspace:\n"
        "  0 [<00005581d02c1139>] main+0x19 /src/main.c:12\n"
        "        parse /src/parse.h:40\n"
        "        skip_space /src/parse.h:44\n"
        "  1 [<000072e2a97f4be0>] <no-symbol> (no symbol table)\n"
        "  2 [<00005581d02c1025>] _start+0x25\n"
        "\n"
    )


def test_the_folded_style_is_a_line_with_user_frames_before_kernel_frames():
    expected = "curl;_start;[libc.so.6];main;parse_[i];skip_space_[i];ksys_read_[k];vfs_read_[k] 1\n"
    assert stream("folded", KERNEL_HALF + USER_HALF) == expected


@pytest.mark.parametrize(("style", "time"), [("default", "[1763718192.000000042] "), ("index", "")])
def test_a_half_that_is_not_there_is_said(style, time):
    assert stream(style) == f"{time}COMM: curl (pid=4242) @ CPU 3\nNo Kernel Stack\nNo Userspace Stack\n\n"
    assert "No Kernel Stack\nUserspace:\n" in stream(style, USER_HALF)
    assert stream(style, KERNEL_HALF).endswith("No Userspace Stack\n\n")


def test_a_sample_without_a_stack_is_its_comm_when_folded():
    assert stream("folded") == "curl 1\n"


def test_later_batches_bring_only_what_is_new_and_build_on_what_was():
    recording, out = Recording(), io.StringIO()
    writer = StreamWriter(out, "folded")
    for half in (USER_HALF, KERNEL_HALF + USER_HALF, USER_HALF):
        writer.write(recording.add(half).take())
    user = "curl;_start;[libc.so.6];main;parse_[i];skip_space_[i]"
    assert out.getvalue() == f"{user} 1\n{user};ksys_read_[k];vfs_read_[k] 1\n{user} 1\n"


def test_the_same_location_in_two_processes_is_shown_at_each_ones_address():
    recording, out = Recording().add([(MAIN, 0x5581D02C1139)]), io.StringIO()
    StreamWriter(out, "default").write(recording.add([(MAIN, 0x7F0000001139)]).take())
    assert "main @ 0x5581d02c1120+0x19 " in out.getvalue()
    assert "main @ 0x7f0000001120+0x19 " in out.getvalue()


def test_every_sample_is_flushed_by_itself():
    written = []

    class Pipe(io.StringIO):
        def flush(self):
            written.append(self.getvalue())

    recording = Recording().add(USER_HALF, comm="first").add(USER_HALF, comm="second")
    StreamWriter(Pipe(), "folded").write(recording.take())
    assert [text.count("\n") for text in written] == [1, 2]


PYTHON_OBJECTS = [("elf", "/usr/bin/python3"), ("python", "/srv/app.py")]
LOOP = "_PyEval_EvalFrameDefault"
PYTHON_FUNCTIONS = [("Py_RunMain", "", 0, 0x100), (LOOP, "", 0, 0x200), ("app.run", "/srv/app.py", 1, 0)]
PYTHON_LOCATIONS = [(0, 0x110, None, [(0, 0, 0)]), (0, 0x210, None, [(1, 0, 0)]), (1, 24, None, [(2, 7, 3)])]


def stream_python(style, **options):
    out = io.StringIO()
    recording = Recording(PYTHON_OBJECTS, PYTHON_FUNCTIONS, PYTHON_LOCATIONS)
    writer = StreamWriter(out, style, **options)
    writer.write(recording.add([(2, 0x7000), (1, 0x5211), (0, 0x5111)]).take())
    return out.getvalue()


@pytest.mark.parametrize("style", ["default", "index", "folded"])
def test_the_interpreters_own_functions_are_left_out_unless_asked_for(style):
    whole, shown = stream_python(style), stream_python(style, find_shown=find_shown_places)
    assert "app.run" in whole
    assert "app.run" in shown
    for name in ("Py_RunMain", LOOP):
        assert name in whole
        assert name not in shown


@pytest.mark.parametrize("style", ["default", "index", "folded"])
def test_hostile_names_stay_text_of_their_own_line(style):
    def stream_named(name):
        out = io.StringIO()
        recording = Recording(
            objects=[("elf", f"/tmp/{name}")],
            functions=[(name, name, 0, 0)],
            locations=[(0, 5, None, [(0, 1, 1), (0, 1, 1)]), (0, 6, name, [])],
        )
        StreamWriter(out, style).write(recording.add([(0, 5), (1, 7)], comm=name).take())
        return out.getvalue()

    hostile, harmless = stream_named("\x1b[2J\n;\u202e"), stream_named("x")
    assert hostile.count("\n") == harmless.count("\n")
    assert all(line.isprintable() for line in hostile.split("\n"))
    assert style != "folded" or hostile.count(";") == harmless.count(";")
