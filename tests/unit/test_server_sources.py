"""Source files: which ones are read, and what is said of the others."""

from __future__ import annotations

import hashlib
import os

import pytest

from stackhound.server import sources
from stackhound.server.refusal import Refused
from stackhound.server.sources import Sources

TEXT = "int main(void) { return 0; }\n"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "main.c"
    path.write_text(TEXT)
    return path


def test_a_file_is_read_where_debug_information_says(source):
    assert Sources().read(str(source)) == TEXT


def test_a_file_with_the_sum_that_was_compiled_is_read(source):
    assert Sources().read(str(source), hashlib.md5(TEXT.encode()).digest()) == TEXT


def test_a_file_that_has_changed_since_it_was_compiled_is_refused(source):
    with pytest.raises(Refused, match="changed since it was compiled"):
        Sources().read(str(source), hashlib.md5(b"another").digest())


def test_files_that_were_compiled_elsewhere_are_found_here(source):
    mapped = [("/build/other", "/nowhere"), ("/build", str(source.parent))]
    assert Sources(mapped).read("/build/main.c") == TEXT


def test_a_part_of_a_name_is_no_directory(source):
    with pytest.raises(Refused, match="no such file"):
        Sources([("/build", str(source.parent))]).read("/builder/main.c")


def test_relative_paths_need_to_be_mapped(source):
    with pytest.raises(Refused, match="--source-map"):
        Sources().read("main.c")
    assert Sources([("src", str(source.parent))]).read("src/main.c") == TEXT


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["directory", "pipe"])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path, make):
    make(tmp_path / "main.c")
    with pytest.raises(Refused, match=r"not a regular file|is a directory"):
        Sources().read(str(tmp_path / "main.c"))


@pytest.mark.parametrize("path", ["/dev/zero", "/x\0y", "/" + "x" * 5000])
def test_names_that_lead_nowhere_are_refused(path):
    with pytest.raises(Refused):
        Sources().read(path)


def test_a_file_that_is_too_large_is_refused(source, monkeypatch):
    monkeypatch.setattr(sources, "MAX_BYTES", 10)
    with pytest.raises(Refused, match="larger"):
        Sources().read(str(source))


def test_text_in_another_encoding_is_shown_as_far_as_it_can_be(source):
    source.write_bytes(b"// caf\xe9\n")
    assert Sources().read(str(source)) == "// caf\ufffd\n"


@pytest.mark.parametrize(
    ("name", "text"), [("app.py", "x = 1\n"), ("app", "#!/usr/bin/env python3\nx = 1\n"), ("app.mjs", "let x = 1\n")]
)
def test_scripts_are_read(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert Sources().read_script(str(tmp_path / name)) == text


def test_a_program_cannot_call_any_file_a_script_of_its(source):
    with pytest.raises(Refused, match="no source file of a language"):
        Sources().read_script(str(source))
