"""The .hound file: what it is made of, and that nothing is lost in it."""

from __future__ import annotations

import io
import json
import stat
import subprocess
import zipfile

import numpy as np
import polars as pl
import pytest
from arro3.core import Array, DataType, Table
from hypothesis import given

import stackhound
from fixtures.examples import two_events
from fixtures.profiles import build_profile, make_table
from fixtures.strategies import profiles, repeatable
from stackhound.profile import Profile, hound
from stackhound.profile.schema import FORMAT_VERSION, TABLES

ROWS = [
    ("app", 7, 7, 0, 1_000, ["main", "work", "i:add", "k:read"], 10, 1),
    ("app", 7, 8, 0, 3_000, ["main", "?libx.so+0x12"], 20, 2),
]


def rows_of(profile):
    return {name: [profile.table(name)[column].to_pylist() for column in profile.table(name).column_names]
            for name in profile.tables}  # fmt: skip


def written(profile):
    out = io.BytesIO()
    hound.write(profile, out)
    return out.getvalue()


def through_bytes(profile):
    return hound.read(io.BytesIO(written(profile)))


def test_a_profile_comes_back_as_it_was(tmp_path):
    profile = build_profile(ROWS, metadata={"host": {"name": "here"}, "notes": ["ünï"]})
    profile.save(tmp_path / "x.hound")
    loaded = stackhound.load(tmp_path / "x.hound")
    assert rows_of(loaded) == rows_of(profile)
    assert loaded.metadata == profile.metadata


@repeatable
@given(profiles())
def test_any_profile_comes_back_as_it_was(profile):
    loaded = through_bytes(profile)
    assert rows_of(loaded) == rows_of(profile)
    assert loaded.tree("cpu").total_value.tolist() == profile.tree("cpu").total_value.tolist()


def test_the_file_is_a_zip_of_stored_parquet_tables_and_the_metadata():
    with zipfile.ZipFile(io.BytesIO(written(build_profile(ROWS)))) as archive:
        assert [one.filename for one in archive.infolist()] == ["meta.json", *(f"{name}.parquet" for name in TABLES)]
        assert {one.compress_type for one in archive.infolist()} == {zipfile.ZIP_STORED}
        assert all(archive.read(f"{name}.parquet")[:4] == b"PAR1" for name in TABLES)
        assert json.loads(archive.read("meta.json"))["format_version"] == FORMAT_VERSION


def test_unzipped_it_is_read_with_nothing_of_ours(tmp_path):
    build_profile(ROWS).save(tmp_path / "x.hound")
    with zipfile.ZipFile(tmp_path / "x.hound") as archive:
        archive.extractall(tmp_path)
    samples = pl.read_parquet(tmp_path / "samples.parquet")
    threads = pl.read_parquet(tmp_path / "threads.parquet")
    joined = samples.join(threads, left_on="thread", right_on="id")
    assert joined.select("boottime_ns", "tid", "value").rows() == [(1_000, 7, 10), (3_000, 8, 20)]


def test_another_zip_program_finds_nothing_wrong(tmp_path):
    build_profile(ROWS).save(tmp_path / "x.hound")
    subprocess.run(["python3", "-m", "zipfile", "--test", tmp_path / "x.hound"], check=True, capture_output=True)


def test_the_same_profile_is_the_same_bytes():
    assert written(build_profile(ROWS)) == written(build_profile(ROWS))


def test_it_can_be_written_into_a_pipe():
    class Pipe(io.RawIOBase):
        received = b""

        def writable(self):
            return True

        def write(self, data):
            self.received += bytes(data)
            return len(data)

    pipe = Pipe()
    hound.write(build_profile(ROWS), pipe)
    assert rows_of(hound.read(io.BytesIO(pipe.received))) == rows_of(build_profile(ROWS))


def test_tables_columns_files_and_metadata_of_a_later_version_survive_being_saved():
    profile = build_profile(ROWS, metadata={"later": {"a": [1]}})
    threads = profile.table("threads").append_column("nice", Array([-5, None], DataType.int32()))
    later = Table.from_pydict({"sample": np.array([1], np.uint64), "state": Array(["D"], DataType.utf8())})
    extended = Profile(
        {**profile.tables, "threads": threads, "of_later": later},
        profile.metadata,
        {"notes.txt": b"hello", "sources/a.c": b"int a;", "sources/b.parquet": b"not one of ours"},
    )
    loaded = through_bytes(through_bytes(extended))
    assert rows_of(loaded) == rows_of(extended)
    assert loaded.attachments == extended.attachments
    assert loaded.metadata["later"] == {"a": [1]}


def test_side_tables_survive():
    addresses = make_table("addresses", [{"sample": 0, "addresses": [2**63, 1]}, {"sample": 1, "addresses": []}])
    profile = build_profile(ROWS).derive({"addresses": addresses})
    assert rows_of(through_bytes(profile)) == rows_of(profile)


@pytest.mark.parametrize("text", ["\x1b[31m\n;<b>", "\u202eevil", "ünï", "\x00", ""])
def test_hostile_names_come_back_as_they_were(text):
    profile = build_profile([(text, 7, 7, 0, 1_000, [f"x{text}"], 10, 1)])
    assert through_bytes(profile).column("threads", "comm") == [text]
    assert through_bytes(profile).column("functions", "name") == [f"x{text}"]


def test_only_the_owner_may_read_it(tmp_path):
    build_profile(ROWS).save(tmp_path / "x.hound")
    assert stat.S_IMODE((tmp_path / "x.hound").stat().st_mode) == 0o600


def test_the_old_file_is_kept_when_asked(tmp_path):
    build_profile(ROWS[:1]).save(tmp_path / "x.hound")
    build_profile(ROWS).save(tmp_path / "x.hound", keep_old=True)
    assert stackhound.load(tmp_path / "x.hound.old").table("samples").num_rows == 1
    assert stackhound.load(tmp_path / "x.hound").table("samples").num_rows == 2


def test_export_writes_it_like_any_format(tmp_path):
    profile = build_profile(ROWS)
    profile.export(tmp_path / "x.hound")
    assert rows_of(stackhound.load(tmp_path / "x.hound")) == rows_of(profile)
    assert stat.S_IMODE((tmp_path / "x.hound").stat().st_mode) == 0o600


def test_export_picks_the_format_by_suffix_or_by_name(tmp_path):
    profile = build_profile(ROWS)
    profile.focus("work").export(tmp_path / "x.folded")
    profile.focus("work").export(tmp_path / "x", format="folded")
    assert (tmp_path / "x.folded").read_text() == "app;main;work;add_[i];read_[k] 1\n"
    assert (tmp_path / "x").read_text() == (tmp_path / "x.folded").read_text()


def test_export_shows_the_first_event_when_there_are_several(tmp_path):
    profile = two_events()
    for name in ("x.folded", "first.folded"):
        profile.export(tmp_path / name, event=profile.events[0].name if name.startswith("first") else None)
    assert (tmp_path / "x.folded").read_text() == (tmp_path / "first.folded").read_text() != ""


def test_a_file_with_one_event_names_nothing_of_the_others(tmp_path):
    two_events().export(tmp_path / "cpu.hound", event="cpu")
    kept = stackhound.load(tmp_path / "cpu.hound")
    assert kept.table("functions")["name"].to_pylist() == ["main", "work"]  # and not load, which faulted
