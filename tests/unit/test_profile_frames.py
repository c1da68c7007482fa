"""What a picture shows at each location."""

from __future__ import annotations

from fixtures.profiles import Frame, build_profile
from stackhound.profile import frames


def shown(*stack, lines=False):
    """(name, kind, inlined, reason) of each frame of one stack."""
    profile = build_profile([("app", 7, 7, 0, 1_000, list(stack), 1, 1)])
    found = profile.frames_with_lines if lines else profile.frames
    return [(found.name[i], found.kind[i], bool(found.inlined[i]), found.reason[i]) for i in found.frames], found


def test_inlined_functions_are_frames_of_their_own_after_the_one_they_were_inlined_into():
    assert shown("main", "i:add", "i:carry")[0] == [
        ("main", "user", False, None),
        ("add", "user", True, None),
        ("carry", "user", True, None),
    ]


def test_frames_are_coloured_by_where_their_code_is():
    kinds = [kind for _, kind, _, _ in shown("main", "k:read", "m:nf_hook", "b:probe", "j:Loop", "p:handler", "t:T")[0]]
    assert kinds == ["user", "kernel", "kernel", "bpf", "jit", "python", "task"]


def test_a_frame_without_a_name_shows_its_object_and_keeps_the_reason():
    assert shown("main", "?libx.so+0x12")[0][1] == ("[libx.so]", "user", False, "no symbol table")


def test_frames_without_names_in_one_object_for_one_reason_are_one():
    found = shown("?libx.so+0x12", "?libx.so+0x99", "?liby.so+0x12")[1]
    assert found.name == ["[libx.so]", "[liby.so]"]


def test_frames_without_names_for_different_reasons_are_told_apart():
    stack = [Frame(None, path="/usr/lib/x.so", address=one, reason=reason) for one, reason in enumerate("ab")]
    assert [reason for _, _, _, reason in shown(*stack)[0]] == ["a", "b"]


def test_a_miss_without_a_recorded_reason_says_so():
    assert shown(Frame(None, path="/usr/lib/x.so", reason=""))[0][0][3] == frames.NO_REASON


def test_an_empty_name_shows_the_object_instead():
    assert shown(Frame("", path="/usr/lib/x.so"))[0][0][0] == "[x.so]"


def test_a_function_is_one_frame_whatever_its_line():
    assert len(shown("main at m.c:3", "main at m.c:9")[1]) == 1


def test_with_lines_each_line_is_a_frame():
    found = shown("main at m.c:3", "main at m.c:9", "main at m.c:3", lines=True)[1]
    assert found.line.tolist() == [3, 9]
    assert found.file == ["m.c", "m.c"]
    assert found.frames.tolist() == [0, 1]


def test_lines_and_offsets_cover_every_location_once():
    found = shown("main", "i:add", "?libx.so+0x12", "k:read")[1]
    assert found.offsets.tolist() == [0, 2, 3, 4]
    assert found.function[found.frames].tolist() == [0, 1, frames.NO_FUNCTION, 2]


def test_labels_are_names_in_brackets_whatever_the_path():
    paths = {"/usr/lib/libc.so.6": "[libc.so.6]", "[vdso]": "[vdso]", "": "[unknown]", "/": "[unknown]", "//a/": "[a]"}
    assert {path: frames.miss_label(path) for path in paths} == paths


def test_every_object_kind_has_a_colour():
    kinds = {"elf": "user", "vdso": "user", "unknown": "user", "odd": "user", "module": "kernel", "bpf": "bpf"}
    assert {kind: frames.picture_kind(kind) for kind in kinds} == kinds
