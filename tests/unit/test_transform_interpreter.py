"""Python's stacks without the interpreter's own functions."""

from __future__ import annotations

import pytest

from fixtures.profiles import build_profile
from fixtures.strategies import paths_of
from stackhound.transform.interpreter import find_shown_places

LOOP = "_PyEval_EvalFrameDefault"


def shown(*stack, inverted=False):
    profile = build_profile([("python3", 7, 7, 0, 1_000, list(stack), 10, 1)])
    (path,) = paths_of(profile.invert() if inverted else profile)
    return list(reversed(path)) if inverted else list(path)


def test_functions_of_python_follow_each_other():
    assert shown("main", "Py_RunMain", LOOP, "p:outer", "p:inner") == ["main", "outer", "inner"]


def test_what_python_calls_stays_with_what_that_calls():
    stack = (LOOP, "p:outer", "builtin_sorted", "list_sort", "PyObject_Vectorcall", LOOP, "p:key", "add", "k:fault")
    assert shown(*stack) == ["outer", "builtin_sorted", "list_sort", "key", "add", "fault"]


@pytest.mark.parametrize("loop", [f"{LOOP}.cold", f"{LOOP}.part.0"])
def test_parts_of_the_loop_are_left_out_too(loop):
    assert shown("main", loop, "p:run") == ["main", "run"]


def test_functions_of_instructions_are_left_out_with_the_loop_that_called_them():
    stack = (LOOP, "_TAIL_CALL_CALL", "p:outer", "list_sort", LOOP, "_TAIL_CALL_BINARY_OP", "p:key", "long_add")
    assert shown("main", *stack) == ["main", "outer", "list_sort", "key", "long_add"]


def test_a_loop_whose_frames_are_not_known_stays():
    assert shown("main", LOOP, "p:run", "call", LOOP, "work") == ["main", "run", "call", LOOP, "work"]


def test_a_stack_without_python_stays():
    stack = ["main", "Py_RunMain", "PyObject_Call", LOOP, "work"]
    assert shown(*stack) == stack


def test_trampolines_of_perf_are_left_out_where_they_lead_to_their_function():
    perf = ("py_trampoline_evaluator", "j:py::run:/srv/app.py")
    assert shown("main", *perf, LOOP, "p:run", "sorted", *perf, LOOP, "p:run") == ["main", "run", "sorted", "run"]
    assert shown("main", LOOP, "p:run", "sorted", *perf, LOOP)[-2:] == ["py::run:/srv/app.py", LOOP]


def test_time_in_the_loop_is_that_of_the_function_it_works_for():
    assert shown("main", LOOP, "p:run", "PyObject_Vectorcall") == ["main", "run"]


def test_calls_that_were_inlined_are_left_out_and_the_rest_stays():
    assert shown("main", LOOP, "i:PyObject_Call", "p:run", "sorted", "i:PyObject_Call") == ["main", "run", "sorted"]


def test_nameless_functions_of_a_stripped_interpreter_are_left_out_where_they_lead_to_the_loop():
    stack = ("main", "?python3+1", "Py_RunMain", "?python3+2", LOOP, "p:run", "?python3+3")
    assert shown_in_one_file(*stack) == ["main", "run", "[app]"]


def test_nameless_functions_of_instructions_are_left_out():
    stack = ("main", LOOP, "?python3+1", "p:run", "?python3+2", "?python3+3", LOOP, "?python3+4", "p:inner")
    assert shown_in_one_file(*stack) == ["main", "run", "inner"]


def shown_in_one_file(*stack):
    profile = build_profile([("python3", 7, 7, 0, 1_000, list(stack), 10, 1)])
    one_file = profile.derive({"locations": in_one_object(profile)})
    (path,) = paths_of(one_file)
    return list(path)


def in_one_object(profile):
    """The table ``locations`` with all that is native in the object of the first."""
    from stackhound.profile.columns import with_columns

    kinds = profile.texts("objects", "kind")
    objects = profile.numbers("locations", "object").tolist()
    moved = [objects[0] if kinds[at] == "elf" else at for at in objects]
    return with_columns(profile.table("locations"), object=moved)


def test_one_path_is_folded_as_profiles_are():
    stack = (
        "main",
        "Py_RunMain",
        LOOP,
        "_TAIL_CALL_CALL",
        "p:outer",
        "list_sort",
        LOOP,
        "?python3+4",
        "p:inner",
        "add",
    )
    names = [name.partition(":")[2] or name for name in stack]
    kinds = ["python" if name.startswith("p:") else "elf" for name in stack]
    path = [(0, kind, None if name.startswith("?") else name) for name, kind in zip(names, kinds, strict=True)]
    kept = [name for name, is_shown in zip(names, find_shown_places(path), strict=True) if is_shown]
    assert kept == shown_in_one_file(*stack)


def test_an_inverted_profile_is_folded_the_same():
    stack = ("main", "Py_RunMain", LOOP, "i:PyObject_Call", "p:outer", "list_sort", LOOP, "p:inner", "add")
    assert shown(*stack, inverted=True) == shown(*stack) == ["main", "outer", "list_sort", "inner", "add"]


def test_everything_is_there_for_who_asks():
    profile = build_profile([("python3", 7, 7, 0, 1_000, ["main", LOOP, "p:run"], 10, 1)])
    assert list(paths_of(profile.show_native_internals())) == [("main", LOOP, "run")]
