"""What all threads share: stacks of frames, frames of functions, and where functions come from.

A location of the profile is as many frames as it has lines: the function, then what was inlined into it. A stack of the
profile is therefore a chain of as many nodes, and its last one stands for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from stackhound.formats.firefox.categories import category_of
from stackhound.formats.firefox.columns import nullable, table
from stackhound.formats.firefox.libraries import NO_LIBRARY, base_name
from stackhound.profile.columns import distinct, number_keys
from stackhound.profile.frames import miss_label

if TYPE_CHECKING:
    from stackhound.formats.firefox.libraries import Libraries
    from stackhound.formats.firefox.strings import Strings
    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers

NO_STACK: Final = -1
NO_ADDRESS: Final = -1
NO_SYMBOL: Final = -1
NO_SOURCE: Final = -1
#: JavaScript has no larger integers.
ADDRESS_LIMIT: Final = 2**53
#: ``ResourceType.Library``.
LIBRARY: Final = 1


@dataclass(frozen=True, eq=False)
class Stacks:
    """The shared tables, by the format's names, and where each stack of the profile is in them.

    Attributes:
        tables: all of ``shared`` but its strings.
        node: int64 (n_stacks,): the row of ``stackTable``; `NO_STACK` for the empty stack.
    """

    tables: dict[str, Any]
    node: Numbers


@dataclass(frozen=True, eq=False)
class _Frames:
    """One row a frame, location by location, outermost first.

    Attributes:
        count: frames of each location, at least 1.
        location: of each frame.
        depth: of each frame: 0 is the outermost.
        function: row of ``functions``; -1 where there is no name.
        line, column: 0: unknown.
    """

    count: Numbers
    location: Numbers
    depth: Numbers
    function: Numbers
    line: Numbers
    column: Numbers


def build_stacks(profile: Profile, libraries: Libraries, strings: Strings) -> Stacks:
    """All shared tables, of all stacks of the profile."""
    frames = _frames(profile)
    functions = _Functions(profile, libraries, strings, frames)
    symbols = _NativeSymbols(profile, libraries, strings, frames)
    stack_table, node = _stack_table(profile, frames.count)
    empty: list[int] = []
    tables = {
        "stackTable": stack_table,
        "frameTable": _frame_table(profile, libraries, frames, functions, symbols),
        "funcTable": functions.table,
        "nativeSymbols": symbols.table,
        "resourceTable": functions.resources,
        "sources": functions.sources,
        "sourceLocationTable": table(source=empty, line=empty, column=empty),
    }
    return Stacks(tables, node)


def _frames(profile: Profile) -> _Frames:
    location, depth = profile.numbers("lines", "location"), profile.numbers("lines", "depth")
    order = np.lexsort((np.iinfo(np.uint16).max - depth, location))
    lines = np.bincount(location, minlength=profile.table("locations").num_rows)
    count = np.maximum(lines, 1)
    location = np.repeat(np.arange(len(count)), count)
    named = np.repeat(lines > 0, count)
    starts = np.cumsum(count) - count

    def spread(name: str, missing: int) -> Numbers:
        column = np.full(len(location), missing, np.int64)
        column[named] = profile.numbers("lines", name)[order]
        return column

    return _Frames(
        count=count,
        location=location,
        depth=np.arange(len(location)) - starts[location],
        function=spread("function", -1),
        line=spread("line", 0),
        column=spread("column", 0),
    )


def _stack_table(profile: Profile, frames_at: Numbers) -> tuple[dict[str, Any], Numbers]:
    """``stackTable``, and each stack's node in it."""
    parent = profile.numbers("stacks", "parent").astype(np.int64)
    location = profile.numbers("stacks", "location").astype(np.int64)[1:]
    count = frames_at[location]
    node = np.concatenate(([NO_STACK], np.cumsum(count) - 1))
    first = node[1:] - count + 1
    offset = np.ones(int(count.sum()), np.int64)  # the parent of all but the first node of a chain is right before it
    offset[first] = np.where(parent[1:] == 0, 0, first - node[parent[1:]])
    first_frame = np.cumsum(frames_at) - frames_at
    frame = np.repeat(first_frame[location] - first, count) + np.arange(len(offset))
    return table(frame=frame, prefixOffset=offset), node


def _frame_table(
    profile: Profile, libraries: Libraries, frames: _Frames, functions: _Functions, symbols: _NativeSymbols
) -> dict[str, Any]:
    objects = profile.numbers("locations", "object")
    library = libraries.of_object[objects]
    address = profile.numbers("locations", "address")
    is_known = (library != NO_LIBRARY) & (address < ADDRESS_LIMIT)
    address = np.where(is_known, address, 0).astype(np.int64) + np.where(is_known, 0, NO_ADDRESS)
    rows = len(frames.location)
    return table(
        address=address[frames.location],
        lib=library[frames.location],
        inlineDepth=frames.depth,
        category=_categories(profile, objects)[(frames.depth > 0).astype(int), frames.location],
        subcategory=np.zeros(rows, np.int64),
        func=functions.of_frame,
        nativeSymbol=nullable(symbols.of_location[frames.location], symbols.of_location[frames.location] == NO_SYMBOL),
        innerWindowID=np.zeros(rows, np.int64),
        line=nullable(frames.line, frames.line == 0),
        column=nullable(frames.column, frames.column == 0),
        originalLocation=[None] * rows,
    )


def _categories(profile: Profile, objects: Numbers) -> Numbers:
    """The category of what is at each location itself, and of what was inlined there: int64 (2, n_locations)."""
    kinds = profile.texts("objects", "kind")
    by_object = np.array([[category_of(kind, inlined) for kind in kinds] for inlined in (False, True)], np.int64)
    found: Numbers = by_object[:, objects]
    return found


class _Functions:
    """One function a (name, source file, library), however it was called: inlined or not.

    Attributes:
        table: ``funcTable``.
        resources: ``resourceTable``: what the functions are in.
        sources: ``sources``: the files that they were written in.
        of_frame: int64 (n_frames,): the function of each frame.
    """

    def __init__(self, profile: Profile, libraries: Libraries, strings: Strings, frames: _Frames) -> None:
        paths = profile.texts("objects", "path")
        resources, resource_of_object = number_keys(
            (library, base_name(path)) for library, path in zip(libraries.of_object.tolist(), paths, strict=True)
        )
        used = distinct(frames.function[frames.function >= 0])
        missing = np.flatnonzero(frames.function < 0)
        objects = profile.numbers("locations", "object")[frames.location[missing]]
        unnamed, unnamed_of_miss = np.unique(objects, return_inverse=True)
        misses = [
            (strings.intern(miss_label(paths[one])), "", int(resource_of_object[one])) for one in unnamed.tolist()
        ]
        keys, ids = number_keys([*_named(profile, used, strings, resource_of_object), *misses])
        sources, source = number_keys(file for _, file, _ in keys)
        self.of_frame = np.empty(len(frames.function), np.int64)
        self.of_frame[missing] = ids[len(used) :][unnamed_of_miss]
        is_named = frames.function >= 0
        self.of_frame[is_named] = ids[: len(used)][np.searchsorted(used, frames.function[is_named])]
        self.resources = _resources([name for _, name in resources], strings)
        self.table, self.sources = _function_tables(keys, sources, source, strings)


def _named(
    profile: Profile, functions: Numbers, strings: Strings, resource_of_object: Numbers
) -> list[tuple[int, str, int]]:
    """(name, file, resource) of the given functions."""
    names, files = profile.texts("functions", "name"), profile.texts("functions", "file")
    objects, paths = profile.numbers("functions", "object").tolist(), profile.texts("objects", "path")
    return [
        (
            strings.intern(names[one] or miss_label(paths[objects[one]])),
            files[one],
            int(resource_of_object[objects[one]]),
        )
        for one in functions.tolist()
    ]


def _function_tables(
    keys: list[tuple[int, str, int]], files: list[str], source: Numbers, strings: Strings
) -> tuple[dict[str, Any], dict[str, Any]]:
    """``funcTable`` and ``sources``; the empty one among ``files`` means that the file is not known."""
    known = [file for file in files if file]
    rows = {file: row for row, file in enumerate(known)}
    source_row = np.array([rows.get(file, NO_SOURCE) for file in files], np.int64)[source.astype(np.int64)]
    nulls = [None] * len(keys)
    functions = table(
        name=[name for name, _, _ in keys],
        isJS=[False] * len(keys),
        relevantForJS=[False] * len(keys),
        resource=[resource for _, _, resource in keys],
        source=nullable(source_row, source_row == NO_SOURCE),
        lineNumber=nulls,
        columnNumber=nulls,
        originalLocation=nulls,
    )
    no_text = [None] * len(known)
    sources = table(
        id=no_text,
        filename=strings.intern_all(known),
        startLine=[1] * len(known),
        startColumn=[1] * len(known),
        sourceMapURL=no_text,
        content=no_text,
    )
    return functions, sources


def _resources(names: list[str], strings: Strings) -> dict[str, Any]:
    return table(name=strings.intern_all(names), host=[None] * len(names), type=[LIBRARY] * len(names))


class _NativeSymbols:
    """The symbols that cover machine code in files, which the front-end shows instructions of.

    Attributes:
        table: ``nativeSymbols``.
        of_location: int64 (n_locations,): the symbol at each location; `NO_SYMBOL` where there is none.
    """

    def __init__(self, profile: Profile, libraries: Libraries, strings: Strings, frames: _Frames) -> None:
        outermost = frames.function[frames.depth == 0]
        address = profile.numbers("functions", "address")
        objects = profile.numbers("functions", "object")
        library = libraries.of_object[objects]
        has_code = np.array([kind not in {"python", "jit"} for kind in profile.texts("objects", "kind")], bool)[objects]
        is_symbol = (address > 0) & (address < ADDRESS_LIMIT) & (library != NO_LIBRARY) & has_code
        has_symbol = (outermost >= 0) & is_symbol[outermost] if len(is_symbol) else np.zeros(len(outermost), bool)
        used, index = np.unique(outermost[has_symbol], return_inverse=True)
        names = profile.texts("functions", "name")
        size = profile.numbers("functions", "size")[used]
        self.of_location = np.full(len(outermost), NO_SYMBOL, np.int64)
        self.of_location[has_symbol] = index
        self.table = table(
            libIndex=library[used],
            address=address[used].astype(np.int64),
            name=[strings.intern(names[one]) for one in used.tolist()],
            functionSize=nullable(size, size == 0),
        )
