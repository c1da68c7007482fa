"""Files that are no .hound file, or a damaged one, or one that someone made to do harm."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from arro3.core import Array, Table
from hypothesis import given
from hypothesis import strategies as st

from fixtures.profiles import build_profile
from fixtures.strategies import repeatable
from stackhound import _native
from stackhound.errors import DamagedProfile, NewerProfile, NotAProfile, ProfileError
from stackhound.formats import FORMATS
from stackhound.profile import hound, load
from stackhound.profile.columns import with_columns
from stackhound.profile.paths import make_stacks
from stackhound.profile.schema import FORMAT_VERSION, TABLES

PROFILE = build_profile([
    ("app", 7, 7, 0, 1_000, ["main", "work", "i:add", "k:read"], 10, 1),
    ("app", 7, 8, 0, 2_000, ["main", "?libx.so+0x12"], 20, 1),
])  # fmt: skip
DAMAGES = 1_000


def written(profile):
    out = io.BytesIO()
    hound.write(profile, out)
    return out.getvalue()


def whole():
    return written(PROFILE)


def members():
    with zipfile.ZipFile(io.BytesIO(whole())) as archive:
        return {one.filename: archive.read(one) for one in archive.infolist()}


def pack(files, compression=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def read(data):
    return hound.read(io.BytesIO(data))


def use(profile):
    """Everything that follows ids."""
    for event in profile.events:
        profile.tree(event.name, root="process", lines=True)
        profile.top(5, event.name)
        profile.tree(event.name, inverted=True)
    profile.collapse_recursion().show_from("a").compact().merge_threads().merge(profile)


def refused_or_usable(data):
    """Whether the file was refused; a file that opens must be usable."""
    try:
        profile = read(data)
    except ProfileError:
        return True
    use(profile)
    return False


def damage(data, random_source):
    if random_source.random() < 0.3:
        return data[: random_source.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(random_source.choice((1, 1, 1, 8))):
        changed[random_source.randrange(len(data))] ^= 1 << random_source.randrange(8)
    return bytes(changed)


def test_a_thousand_damaged_files_are_refused_or_still_usable():
    source, good = random.Random(1), whole()
    refused = sum(refused_or_usable(damage(good, source)) for _ in range(DAMAGES))
    assert refused > DAMAGES * 0.9  # the rest was hit where nothing matters, such as a date


def test_damaged_tables_with_good_checksums_are_refused_or_still_usable():
    source, good = random.Random(2), members()
    for _ in range(DAMAGES // 3):
        name = source.choice([f"{table}.parquet" for table in TABLES])
        refused_or_usable(pack({**good, name: damage(good[name], source)}))


@repeatable
@given(st.data())
def test_tables_with_any_numbers_in_them_are_refused_or_still_usable(data):
    name = data.draw(st.sampled_from(sorted(TABLES)))
    numeric = [column for column, kind in TABLES[name].items() if kind.startswith("uint")]
    column = data.draw(st.sampled_from(numeric or ["count"]))
    table = PROFILE.table(name)
    limit = np.iinfo(PROFILE.numbers(name, column).dtype).max
    values = data.draw(
        st.lists(st.integers(0, 9) | st.integers(0, int(limit)), min_size=table.num_rows, max_size=table.num_rows)
    )
    changed = with_columns(table, **{column: values})
    refused_or_usable(pack({**members(), f"{name}.parquet": _native.write_parquet(changed)}))


@pytest.mark.parametrize("end", range(4))
def test_a_file_of_a_few_bytes_is_no_profile(end):
    with pytest.raises(NotAProfile, match=r"not a \.hound file"):
        read(whole()[:end])


@pytest.mark.parametrize("data", [b"\x7fELF" + b"\0" * 100, b"PERFILE2" * 20, b"<html>", b"\0" * 1000])
def test_something_else_is_no_profile(data):
    with pytest.raises(NotAProfile, match="record one with: stackhound record"):
        read(data)


def test_another_zip_is_no_profile():
    with pytest.raises(NotAProfile, match=r"ZIP file without meta\.json"):
        read(pack({"word/document.xml": b"<a/>"}))


def test_a_truncated_file_is_damaged():
    with pytest.raises(DamagedProfile, match=r"it is damaged .*: record again"):
        read(whole()[:-100])


@pytest.mark.parametrize("name", [f"{table}.parquet" for table in TABLES])
def test_a_missing_table_is_named(name):
    files = members()
    del files[name]
    with pytest.raises(DamagedProfile, match=f"the table '{name.removesuffix('.parquet')}' is missing"):
        read(pack(files))


def test_a_table_that_is_no_parquet_is_named():
    with pytest.raises(DamagedProfile, match=r"its stacks\.parquet cannot be read"):
        read(pack({**members(), "stacks.parquet": b"PAR1 and nothing else PAR1"}))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"format_version": "1"}', "{}", "[" * 100_000, '{"format_version": 1e999}', "\xff\xfe"],
)
def test_metadata_that_is_not_ours_is_refused(text):
    with pytest.raises(DamagedProfile, match=r"its meta\.json"):
        read(pack({**members(), "meta.json": text}))


def test_metadata_without_end_is_refused_before_it_is_parsed():
    text = json.dumps({"format_version": FORMAT_VERSION, "x": "y" * hound.MAX_METADATA_BYTES})
    with pytest.raises(DamagedProfile, match=r"its meta\.json"):
        read(pack({**members(), "meta.json": text}))


def test_a_file_of_a_later_version_says_what_to_do():
    newer = {**members(), "meta.json": json.dumps({"format_version": FORMAT_VERSION + 1})}
    with pytest.raises(
        NewerProfile, match="it has format 2, and this version reads up to 1: install a newer stackhound"
    ):
        read(pack(newer))


def test_metadata_with_other_types_than_ours_does_no_harm():
    odd = {"clock": 3, "cost": [], "counters": "x", "notes": {"a": 1}, "transforms": "x", "host": 3, "tool": [],
           "created_unix_ns": "now"}  # fmt: skip
    use_everywhere(read(pack({**members(), "meta.json": json.dumps(odd | {"format_version": 1})})))


@pytest.mark.parametrize("number", [-1, 2**61, 2**64, 10**400, float("inf"), float("nan"), "1", None])
def test_metadata_with_numbers_out_of_range_does_no_harm(number):
    clock = ("start_boottime_ns", "end_boottime_ns", "boot_to_unix_ns_start")
    cost = ("bpf_ns_per_run", "interrupt_ns_per_sample", "collector_cpu_ns", "elapsed_ns", "resident_bytes")
    odd = {"clock": dict.fromkeys(clock, number), "cost": dict.fromkeys(cost, number), "created_unix_ns": number}
    use_everywhere(read(pack({**members(), "meta.json": json.dumps(odd | {"format_version": 1})})))


def use_everywhere(profile):
    """All that follows ids, and all that shows metadata."""
    use(profile)
    profile._repr_html_()
    for known in FORMATS:
        if not known.directory and known.name != "dhat":  # which shows allocations alone
            known.write(profile, io.BytesIO())


def test_compressed_members_are_refused():
    with pytest.raises(DamagedProfile, match="has compressed members"):
        read(pack({**members(), "x": b"0" * 1_000_000}, zipfile.ZIP_DEFLATED))


def test_members_that_share_their_bytes_are_refused():
    """A short file whose directory names one member a thousand times."""
    good = whole()
    with zipfile.ZipFile(io.BytesIO(good)) as archive:
        start = archive.start_dir
        entries = archive.infolist()
    directory = good[start : good.rindex(b"PK\x05\x06")]
    first = directory[: directory.index(b"PK\x01\x02", 4)]
    count = len(good) // entries[0].file_size + 2
    names = [first.replace(b"meta.json", b"%09d" % one) for one in range(count)]
    end = b"PK\x05\x06" + b"\0" * 4 + len(names).to_bytes(2, "little") * 2
    bomb = (
        good[:start]
        + b"".join(names)
        + end
        + sum(map(len, names)).to_bytes(4, "little")
        + start.to_bytes(4, "little")
        + b"\0\0"
    )
    with pytest.raises(DamagedProfile):
        read(bomb)


@pytest.mark.parametrize("name", ["/etc/passwd.parquet", "../../x.parquet", "a/../../x"])
def test_members_outside_of_their_directory_are_refused(name):
    with pytest.raises(DamagedProfile, match="outside of its own directory"):
        read(pack({**members(), name: b""}))


def test_two_members_of_one_name_are_refused():
    out = io.BytesIO(whole())
    with zipfile.ZipFile(out, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("meta.json", b"{}")
    with pytest.raises(DamagedProfile, match="two members of one name"):
        read(out.getvalue())


def test_too_many_members_are_refused():
    with pytest.raises(DamagedProfile, match="members"):
        read(pack({**members(), **{f"x{one}": b"" for one in range(hound.MAX_MEMBERS)}}))


def test_a_table_that_would_fill_the_memory_is_refused_within_bounds(tmp_path):
    """Two million equal rows take some kilobytes in the file; ten such tables would take a gigabyte."""
    rows = 2_000_000
    zeros = with_columns(build_table_of(rows), id=np.arange(rows))
    bomb = pack({**members(), "samples.parquet": _native.write_parquet(zeros)})
    (tmp_path / "bomb.hound").write_bytes(bomb)
    code = f"""
import resource, stackhound
from stackhound.profile import load
from stackhound.errors import ProfileError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    load({str(tmp_path / "bomb.hound")!r})
except ProfileError as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error)
"""
    grown_kib, message = subprocess.check_output([sys.executable, "-c", code], text=True).split(" ", 1)
    assert "more than its file can hold" in message
    assert int(grown_kib) < 100 * 1024


def build_table_of(rows):
    columns = PROFILE.table("samples")
    return Table.from_pydict(
        {name: Array.from_numpy(np.zeros(rows, columns[name].to_numpy().dtype)) for name in columns.column_names}
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: None, "cannot read .*x: no such file or directory"),
        (Path.mkdir, "cannot load .*x: it is not a regular file"),
        (os.mkfifo, "cannot load .*x: it is not a regular file"),
    ],
)
def test_what_is_no_file_is_refused_without_waiting(tmp_path, make, message):
    make(tmp_path / "x")
    with pytest.raises(ProfileError, match=message):
        load(tmp_path / "x")


def test_the_message_names_the_file_and_passes_no_escape_on(tmp_path):
    path = tmp_path / "\x1b[31mx.hound"
    path.write_bytes(b"PK\x03\x04 and nothing")
    with pytest.raises(DamagedProfile) as caught:
        load(path)
    assert r"\x1b[31mx.hound: it is damaged" in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_stack_without_end_is_drawn_or_refused_but_fills_no_memory():
    """65,535 frames: a tree of them is small, all paths through them together would be 8 GB."""
    frames = np.arange(2**16 - 1)
    tree = (np.maximum(frames - 1, 0).astype(np.uint32), (frames % 2).astype(np.uint32), frames.astype(np.uint16))
    stacks = make_stacks(*tree, PROFILE.table("locations"), PROFILE.table("objects"))
    samples = with_columns(PROFILE.table("samples"), stack=np.array([0, frames[-1]]))
    profile = read(written(PROFILE.derive({"stacks": stacks, "samples": samples})))
    assert len(profile.tree()) > len(frames)
    assert profile.focus("work").table("samples").num_rows == 1
    with pytest.raises(DamagedProfile, match=r"more than .* frames together"):
        profile.invert()
