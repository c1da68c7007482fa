"""Every format takes every event that tells where time goes: on the CPU and off it, at disks, in page faults."""

from __future__ import annotations

import gzip
import io
import json

import pytest

from fixtures.everything import EVENTS, FUNCTIONS, every_event
from stackhound.cli.main import main
from stackhound.errors import UsageError
from stackhound.formats import FORMATS, by_name
from stackhound.profile import load

#: dhat shows allocations alone, and says so; the others take any event.
STREAMS = [known for known in FORMATS if not known.directory and known.name != "dhat"]
SIDE_TABLES = ("off_cpu", "wakers", "block_io", "faults")


def text_of(path, name):
    """What a reader of the format finds in the file."""
    if name == "hound":
        out = io.BytesIO()
        by_name("jsonl").write(load(path), out)
        return out.getvalue().decode()
    data = path.read_bytes()
    return (gzip.decompress(data) if name == "pprof" else data).decode("utf-8", "replace")


def export(directory, *arguments):
    every_event().save(directory / "all.hound")
    assert main(["export", str(directory / "all.hound"), *map(str, arguments)]) == 0


@pytest.mark.parametrize("event", FUNCTIONS)
@pytest.mark.parametrize("name", [known.name for known in STREAMS])
def test_an_event_is_exported_with_its_stacks(name, event, tmp_path):
    export(tmp_path, "--event", event, "--format", name, "-o", tmp_path / "out")
    text = text_of(tmp_path / "out", name)
    assert FUNCTIONS[event] in text
    if by_name(name).single_event:
        assert not [function for other, function in FUNCTIONS.items() if other != event and function in text]


@pytest.mark.parametrize("name", [known.name for known in STREAMS if not known.single_event])
def test_formats_of_several_events_have_them_all(name, tmp_path):
    export(tmp_path, "--format", name, "-o", tmp_path / "out")
    text = text_of(tmp_path / "out", name)
    assert not [function for function in FUNCTIONS.values() if function not in text]


def test_what_is_known_of_samples_goes_through_the_formats_that_have_everything(tmp_path):
    export(tmp_path, "--format", "hound", "-o", tmp_path / "again.hound")
    again, before = load(tmp_path / "again.hound"), every_event()
    assert [again.table(name).num_rows for name in SIDE_TABLES] == [1, 1, 1, 2]
    assert [event.name for event in again.events] == [event.name for event in EVENTS]
    assert again.texts("off_cpu", "reason") == before.texts("off_cpu", "reason")
    export(tmp_path, "--format", "parquet", "-o", tmp_path / "tables")
    assert {f"{name}.parquet" for name in SIDE_TABLES} <= {path.name for path in (tmp_path / "tables").iterdir()}


def test_a_line_of_json_says_what_is_known_of_each_sample(tmp_path):
    export(tmp_path, "--format", "jsonl", "-o", tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {line["event"] for line in lines if "event" in line} == set(FUNCTIONS)


@pytest.mark.parametrize("event", FUNCTIONS)
def test_a_viewer_of_allocations_says_that_these_are_none(event):
    with pytest.raises(UsageError, match="shows allocations"):
        by_name("dhat").write(every_event(), io.BytesIO(), event=event)
