"""Python's stacks without the interpreter's own functions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from stackhound.profile.columns import Numbers, take_rows, with_columns
from stackhound.transform.locations import functions_named, order_lines, outermost
from stackhound.transform.stacks import read_paths_of, rewrite_stacks, used_through

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arro3.core import Table

    from stackhound.profile import Profile

#: What runs Python code: the frames that it runs come right behind it.
EVALUATION: Final = re.compile(r"_PyEval_EvalFrameDefault(\.\w+)*")

#: What it calls, and what the frames come behind, where CPython 3.14 was built with a function for each instruction.
INSTRUCTION: Final = re.compile(r"_TAIL_CALL_\w+(\.\w+)*")

#: What only passes a call on, between Python functions or from the program's start to the first one. What Python code
#: calls by name (``sorted``, ``map``, ``exec``) is not among it. Names of CPython 3.9 to 3.14, ``Python/ceval.c``,
#: ``Objects/call.c``, ``classobject.c``, ``methodobject.c``, ``Python/pythonrun.c``, ``Modules/main.c``.
PLUMBING: Final = re.compile(
    r"""(
    _?PyEval_(EvalFrame|EvalFrameEx|EvalCode|EvalCodeEx|EvalCodeWithName|Vector)|_PyEval_EvalCode(WithName)?
    |eval_eval|_PyEval_EvalFrame|call_function|do_call_core|trace_call_function|function_code_fastcall
    |_?PyObject_(Call|CallNoArgs|CallOneArg|CallObject|CallFunction|CallFunctionObjArgs|CallMethod|CallMethodObjArgs)
    |_?PyObject_(CallMethodIdObjArgs|CallMethodId|CallFunctionVa|CallMethod_SizeT|CallFunction_SizeT)
    |_?PyObject_(Call_Prepend|Vectorcall|VectorcallTstate|VectorcallMethod|VectorcallDict|VectorcallDictTstate)
    |_?PyObject_(FastCall|FastCallDict|FastCallDictTstate|FastCallTstate|MakeTpCall|CallNoArgsTstate)
    |_?PyVectorcall_(Call|Function)|_PyFunction_(Vectorcall|FastCallDict|FastCallKeywords)
    |_PyStack_AsDict|object_vacall|_?method_vectorcall(_\w+)?|vectorcall_(method|unbound|maybe)|call_(method|unbound)
    |cfunction_(call|vectorcall_\w+)|slot_tp_call|_PyCFunction_\w+|method_call
    |run_(mod|eval_code_obj)|pyrun_(file|simple_file|one_file)|_?PyRun_\w+
    |pymain_\w+|Py_(RunMain|BytesMain|Main)|thread_run|pythread_wrapper|t_bootstrap|py_trampoline_evaluator
    )(\.\w+)*""",
    re.VERBOSE,
)


#: What ``-X perf`` puts before each Python function (``Python/perf_trampoline.c``): it says the same name.
TRAMPOLINE: Final = re.compile(r"py::.*", re.DOTALL)


def fold_interpreter(profile: Profile) -> Profile:
    """Leave out the interpreter's evaluation loop and what passes calls on to it, where Python's own frames are there.

    A stack without Python frames stays as it is, and so does a call of the loop whose frames are not known. Samples
    that ran in what is left out count for the Python function that it worked for. Of a stripped interpreter, functions
    without a name are left out as well where they lead to the loop: nothing tells them from those that pass calls on.
    """
    is_python = _of_kind(profile, "python")
    if not is_python.any():
        return profile.derive({}, native_internals="folded")
    functions = functions_named(profile, PLUMBING)
    is_trampoline = outermost(profile, functions_named(profile, TRAMPOLINE, {"jit"}))
    profile = profile.derive({"lines": _without_inlined(profile, functions)}, "fold-interpreter")
    is_evaluation = outermost(profile, functions_named(profile, EVALUATION))
    is_plumbing, is_nameless = outermost(profile, functions), _nameless(profile, is_evaluation)
    is_instruction = outermost(profile, functions_named(profile, INSTRUCTION)) | is_nameless
    passes_on = is_plumbing | is_nameless | is_trampoline
    stacks = used_through(profile, is_python)
    offsets, locations = read_paths_of(profile, stacks)
    roles = Roles(*(of[locations] for of in (is_python, is_evaluation, is_instruction, is_plumbing, passes_on)))
    keep = find_shown(roles, offsets, -1 if profile.inverted else 1)
    offsets = np.concatenate(([0], np.cumsum(keep)))[offsets]
    return profile.derive(rewrite_stacks(profile, stacks, offsets, locations[keep]), native_internals="folded")


def find_shown_places(path: Sequence[tuple[int, str, str | None]]) -> list[bool]:
    """Which places of one path, root → leaf, `fold_interpreter` leaves in it.

    Args:
        path: of each location the object, its kind, and the name of the outermost function there, None for a miss.
    """
    evaluation, instruction, plumbing = (_named(path, pattern) for pattern in (EVALUATION, INSTRUCTION, PLUMBING))
    python = np.array([kind == "python" for _, kind, _ in path], bool)
    loops = {object_id for (object_id, _, _), is_loop in zip(path, evaluation, strict=True) if is_loop}
    nameless = np.array([name is None and object_id in loops for object_id, _, name in path], bool)
    passes_on = plumbing | nameless | _named(path, TRAMPOLINE, "jit")
    roles = Roles(python, evaluation, instruction | nameless, plumbing, passes_on)
    shown: list[bool] = find_shown(roles, np.array((0, len(path))), 1).tolist()
    return shown


def _named(path: Sequence[tuple[int, str, str | None]], pattern: re.Pattern[str], wanted: str = "elf") -> Numbers:
    found = (kind == wanted and name is not None and pattern.fullmatch(name) for _, kind, name in path)
    return np.array([bool(one) for one in found], bool)


class Roles(NamedTuple):
    """What each element of paths is: bool (n_elements,), each."""

    python: Numbers
    evaluation: Numbers
    instruction: Numbers  # where the evaluation loop calls it
    plumbing: Numbers
    passes_on: Numbers  # where it leads to the evaluation loop


def find_shown(roles: Roles, offsets: Numbers, step: int) -> Numbers:
    """Which elements of paths are shown: bool (n_elements,). ``step``: 1 for root → leaf, −1 for leaf → root."""
    before_python = _is_before(roles.python, offsets, step)
    instruction = roles.instruction & before_python & _is_before(roles.evaluation, offsets, -step)
    leads = instruction | (roles.evaluation & (before_python | _is_before(instruction, offsets, step)))
    has_python = np.repeat(_any(roles.python, offsets), np.diff(offsets))
    folded = leads | (roles.plumbing & has_python)
    while (more := roles.passes_on & ~leads & _is_before(leads, offsets, step)).any():
        leads |= more
    shown: Numbers = ~(folded | leads)
    return shown


def _of_kind(profile: Profile, kind: str) -> Numbers:
    """Bool (n_locations,): whether the location's object is of this kind."""
    kinds = np.array([one == kind for one in profile.texts("objects", "kind")], bool)
    return kinds[profile.numbers("locations", "object")]


def _nameless(profile: Profile, is_evaluation: Numbers) -> Numbers:
    """Bool (n_locations,): whether it is in the interpreter's own file and has no name."""
    objects = profile.numbers("locations", "object")
    has_name = np.bincount(profile.numbers("lines", "location"), minlength=len(objects)) > 0
    found: Numbers = ~has_name & np.isin(objects, objects[is_evaluation])
    return found


def _without_inlined(profile: Profile, functions: Numbers) -> Table:
    """The table ``lines`` without these functions where they were inlined into others."""
    order, starts = order_lines(profile)
    location = profile.numbers("lines", "location")[order]
    first = starts[1:][location] - 1 if profile.inverted else starts[location]
    dropped = functions[profile.numbers("lines", "function")[order]] & (np.arange(len(order)) != first)
    if not dropped.any():
        return profile.table("lines")
    lines = take_rows(profile.table("lines"), order[~dropped])
    count = np.bincount(location[~dropped], minlength=len(starts) - 1)
    place = np.arange(lines.num_rows) - np.repeat(np.cumsum(count) - count, count)
    depth = place if profile.inverted else np.repeat(count, count) - 1 - place
    return with_columns(lines, depth=depth)


def _is_before(flags: Numbers, offsets: Numbers, step: int) -> Numbers:
    """Of elements of paths: whether the next one (``step`` 1) or the one before (−1) in the same path has the flag."""
    result = np.zeros(len(flags), bool)
    filled = offsets[1:] > offsets[:-1]
    if step > 0:
        result[:-1] = flags[1:]
        result[offsets[1:][filled] - 1] = False
    else:
        result[1:] = flags[:-1]
        result[offsets[:-1][filled]] = False
    return result


def _any(flags: Numbers, offsets: Numbers) -> Numbers:
    """Bool (n_paths,): whether any element of the path has the flag."""
    counts = np.concatenate(([0], np.cumsum(flags)))
    found: Numbers = counts[offsets[1:]] > counts[offsets[:-1]]
    return found
