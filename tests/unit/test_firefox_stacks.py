"""Stacks, frames and functions, as the Firefox Profiler has them."""

from __future__ import annotations

import pytest

from fixtures.examples import web_server
from fixtures.firefox import Document
from fixtures.profiles import Frame, build_profile
from stackhound.errors import EmptyProfile, UsageError
from stackhound.formats.firefox.libraries import breakpad_id

MS = 1_000_000


@pytest.fixture(scope="module")
def document():
    return Document(web_server())


def one(*frames):
    return Document(build_profile([("app", 7, 7, 0, 20 * MS, list(frames), 10 * MS, 1)]))


def test_inlined_functions_are_frames_of_their_own_at_the_same_address(document):
    _, main, parse, _ = document.frames("_start", "main", "parse", "vfs_read")
    assert (main["inlineDepth"], main["line"], main["column"], main["file"]) == (0, 12, 5, "/src/main.c")
    assert (parse["inlineDepth"], parse["line"], parse["column"], parse["file"]) == (1, 40, 9, "/src/parse.h")
    assert parse["address"] == main["address"] > 0
    assert parse["nativeSymbol"] == main["nativeSymbol"]
    assert main["nativeSymbol"]["name"] == "main"


def test_native_symbols_have_their_place_and_size(document):
    main = document.frames("_start", "main")[1]
    symbol = main["nativeSymbol"]
    assert symbol["address"] <= main["address"] < symbol["address"] + symbol["functionSize"]
    assert document.json["libs"][symbol["libIndex"]]["path"] == "/usr/bin/app"


def test_kinds_of_code_have_categories(document):
    categories = {frame["name"]: frame["category"] for frame in document.frames("_start", "main", "parse", "vfs_read")}
    assert categories == {"_start": "Native", "main": "Native", "parse": "Native, inlined", "vfs_read": "Kernel"}
    assert document.frames("_start", "Foo.bar")[1]["category"] == "JIT"
    shown = one("main", "p:handler", "b:bpf_prog_1", "m:nf_hook").frames("main", "handler", "bpf_prog_1", "nf_hook")
    assert [frame["category"] for frame in shown] == ["Native", "Python", "BPF", "Kernel"]


def test_no_category_is_one_that_the_front_end_hides(document):
    assert "Idle" not in [category["name"] for category in document.json["meta"]["categories"]]
    assert [category["color"] for category in document.json["meta"]["categories"]].count("grey") == 1


def test_code_that_was_made_has_the_processs_addresses_and_no_instructions_to_show(document):
    made = document.frames("_start", "Foo.bar")[1]
    assert (made["address"], made["lib"], made["nativeSymbol"], made["resource"]) == (0x5006, "[jit]", None, "[jit]")


def test_a_frame_without_a_name_shows_its_file(document):
    missing = document.frames("_start", "main", "[libz.so.1]")[2]
    assert (missing["address"], missing["lib"], missing["nativeSymbol"]) == (0x12, "/usr/lib/libz.so.1", None)
    assert (missing["line"], missing["file"]) == (None, None)


def test_a_function_is_one_whether_it_was_inlined_or_not():
    document = one("main", "work", "i:add", "add")
    _, _, inlined, called = document.frames("main", "work", "add", "add")
    assert inlined["func"] == called["func"]
    assert (inlined["category"], called["category"]) == ("Native, inlined", "Native")


def test_functions_of_a_name_in_other_files_are_others():
    document = one("main", "work at a.c:1", "work at b.c:2")
    assert [frame["file"] for frame in document.frames("main", "work", "work")] == [None, "a.c", "b.c"]


def test_stacks_are_a_tree_with_parents_first(document):
    table = document.shared["stackTable"]
    assert len(table["frame"]) == len(table["prefixOffset"]) == table["length"]
    assert all(0 <= offset <= row for row, offset in enumerate(table["prefixOffset"]))


def test_python_files_are_libraries_that_source_can_be_asked_of():
    frame = one("main", "p:handler").frames("main", "handler")[1]
    assert (frame["lib"], frame["resource"], frame["nativeSymbol"]) == ("/srv/app.py", "app.py", None)
    assert frame["address"] >= 0


def test_libraries_are_named_as_symbol_servers_know_them(document):
    (app,) = (lib for lib in document.json["libs"] if lib["name"] == "app")
    build_id = app["codeId"]
    assert (app["debugName"], app["path"], app["arch"]) == ("app", "/usr/bin/app", "x86_64")
    assert len(build_id) == 40
    assert app["breakpadId"] == breakpad_id("elf", "/usr/bin/app", build_id)


def test_a_breakpad_id_is_the_build_id_as_a_guid():
    # A GUID's first three numbers are little-endian: Breakpad's FileID::ConvertIdentifierToUUIDString.
    identifier = breakpad_id("elf", "/x", "000102030405060708090a0b0c0d0e0f10111213")
    assert identifier == "03020100050407060809 0A0B0C0D0E0F0".replace(" ", "")
    assert breakpad_id("elf", "/x", "0001") == "00000100000000000000000000000000" + "0"


@pytest.mark.parametrize("build_id", ["", "zz", "0"])
def test_a_file_without_a_build_id_is_told_from_others_by_its_path(build_id):
    first, second = breakpad_id("elf", "/a/x", build_id), breakpad_id("elf", "/b/x", build_id)
    assert first != second
    assert len(first) == len(second) == 33


def test_addresses_beyond_what_javascript_can_count_are_left_out():
    frame = one("main", Frame(None, path="/lib/x.so", address=2**63 + 5)).frames("main", "[x.so]")[1]
    assert frame["address"] == -1


def test_hostile_names_are_made_printable():
    name = "\x1b[2J\u202e</script>"
    document = Document(build_profile([(name, 7, 7, 0, 1, [name], 10, 1)]))
    assert r"\x1b[2J\u202e</script>" in document.strings
    assert document.json["threads"][0]["name"] == document.json["threads"][0]["processName"] == document.strings[0]
    assert not any(byte < 32 for byte in document.data)
    assert "\u202e" not in document.data.decode()


def test_a_profile_without_samples_is_refused():
    with pytest.raises(EmptyProfile, match="no samples"):
        Document(build_profile([]))


def test_an_inverted_profile_is_refused():
    with pytest.raises(UsageError, match="--inverted"):
        Document(web_server().invert())
