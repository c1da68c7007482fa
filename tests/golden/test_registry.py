"""Formats are found by what the user wrote: a name, or a path."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from fixtures.examples import two_events
from stackhound.errors import UsageError
from stackhound.formats import FORMATS, by_name, by_path


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("x.folded", "folded"),
        ("x.counted", "counted"),
        ("x.txt", "text"),
        ("x.jsonl", "jsonl"),
        ("/tmp/a.b/x.pb.gz", "pprof"),
        ("x.speedscope.json", "speedscope"),
        ("x.svg", "svg"),
        ("X.HTML", "html"),
        ("x.pftrace", "perfetto"),
        ("x.dhat.json", "dhat"),
        ("x.perfetto-trace", "perfetto"),
        ("stackhound.hound", "hound"),
    ],
)
def test_a_suffix_asks_for_its_format(path, name):
    assert by_path(path).name == name
    assert by_name(name) is by_path(path)


@pytest.mark.parametrize("path", ["x.json", "x.gz", "folded", "x.folded/y", "x.perfetto"])
def test_a_suffix_that_no_format_has_is_answered_with_those_there_are(path):
    with pytest.raises(UsageError, match=r"--format.*\.folded.*\.pb\.gz") as raised:
        by_path(path)
    assert "\n" not in str(raised.value)


def test_a_name_that_no_format_has_is_answered_with_those_there_are():
    with pytest.raises(UsageError, match=r"'xml'.*folded.*parquet"):
        by_name("xml")


@pytest.mark.parametrize("known", [known for known in FORMATS if known.single_event], ids=lambda known: known.name)
def test_a_format_of_one_event_asks_which_and_names_them(known):
    with pytest.raises(UsageError, match=r"cpu, page-faults.*--event"):
        known.write(two_events(), io.BytesIO())


@pytest.mark.parametrize("known", [known for known in FORMATS if not known.directory], ids=lambda known: known.name)
def test_an_event_that_the_profile_lacks_is_refused_by_every_format(known):
    with pytest.raises(UsageError, match="cycles"):
        known.write(two_events(), io.BytesIO(), event="cycles")


def test_a_directory_of_files_does_not_go_into_one_file():
    with pytest.raises(UsageError, match="directory"):
        by_name("parquet").write(two_events(), io.BytesIO())


def test_listing_the_formats_loads_none_of_them():
    code = "import sys, stackhound.formats as f; f.by_path('x.svg'); sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
