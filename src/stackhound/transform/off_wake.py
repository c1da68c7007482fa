"""Who ended an absence, on top of the stack that was away: off-wake chains, as bcc's offwaketime draws them.

    main ; lock ; futex_wait ; -- ; wake_up_q ; futex_wake ; unlock ; main ; worker
    └the sleeper, root → leaf ┘     └its waker, leaf → root ┘               └its name

What belongs to the waker is of kind ``waker``, so that pictures tell it apart: its locations are copied, one a
function, because those that were inlined have to be turned around as well.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from stackhound.errors import UsageError
from stackhound.profile.columns import distinct, number_keys, take_rows, with_columns
from stackhound.profile.frames import reverse_segments
from stackhound.profile.paths import read_paths, select_paths
from stackhound.transform.locations import order_lines
from stackhound.transform.rows import concatenate_rows, make_rows
from stackhound.transform.stacks import read_used_paths, replace_stacks

if TYPE_CHECKING:
    from arro3.core import Table

    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers

KIND: Final = "waker"
#: Between the sleeper and its waker, as bcc has it.
SEPARATOR: Final = "--"
#: What the separator and the names of wakers are in.
OBJECT: Final = "[waker]"


def show_wakers(profile: Profile) -> Profile:
    """Put who woke it on top of each stack of ``off-cpu``; where nobody is known to have, the stack stays as it is.

    Raises:
        UsageError: wakers were not recorded, or stacks are inverted.
    """
    if "wakers" not in profile.tables:
        raise UsageError("who woke threads was not recorded", "record with -e off-cpu --wakers")
    if profile.inverted:
        raise UsageError("wakers go on top of stacks that run root → leaf", "show wakers first, then invert")
    chains = _find_chains(profile)
    tables, wakers = _copy_wakers(profile, chains)
    used, offsets, locations = read_used_paths(profile)
    paths = _lay_out(profile, chains, wakers)
    lengths = np.array([len(path) for path in paths], np.int64)
    # numbers of stacks that are still to be made, behind those of the table
    first = profile.table("stacks").num_rows
    stack = np.where(chains.of_sample < 0, profile.numbers("samples", "stack"), first + chains.of_sample)
    tables["samples"] = with_columns(profile.table("samples"), stack=stack)
    tables = replace_stacks(
        tables,
        np.concatenate((used, first + np.arange(len(paths)))),
        np.concatenate((offsets, offsets[-1] + np.cumsum(lengths))),
        np.concatenate((locations, *paths)).astype(np.uint32),
    )
    return profile.derive(tables, "off-wake")


class _Chains(NamedTuple):
    """The distinct pairs of a sleeper and its waker.

    Attributes:
        sleeper, waker: int64 (n_chains,), rows of the table ``stacks``.
        comm: int64 (n_chains,), the waker's name: index into ``comms``.
        of_sample: int64 (n_samples,): the chain; −1 where there is none.
    """

    sleeper: Numbers
    waker: Numbers
    comm: Numbers
    comms: list[str]
    of_sample: Numbers


def _find_chains(profile: Profile) -> _Chains:
    ids = profile.numbers("samples", "id")
    order = np.argsort(ids, kind="stable")
    rows = order[np.searchsorted(ids, profile.numbers("wakers", "sample"), sorter=order)]
    comms, comm_of_thread = number_keys(profile.texts("threads", "comm"))
    columns = (
        profile.numbers("samples", "stack")[rows],
        profile.numbers("wakers", "stack"),
        comm_of_thread[profile.numbers("wakers", "thread")],
    )
    chains, index = np.unique(np.stack(columns).astype(np.int64), axis=1, return_inverse=True)
    of_sample = np.full(len(ids), -1, np.int64)
    of_sample[rows] = index.reshape(-1)
    sleeper, waker, comm = chains
    return _Chains(sleeper, waker, comm, comms, of_sample)


class _Wakers(NamedTuple):
    """Where the copies of wakers' locations are.

    Attributes:
        offsets: int64 (n_locations + 1,): those of each location, innermost function first; none of most.
        locations: all of them.
        separator: a location.
        comms: int64, the location of each name.
    """

    offsets: Numbers
    locations: Numbers
    separator: int
    comms: Numbers


def _lay_out(profile: Profile, chains: _Chains, wakers: _Wakers) -> list[Numbers]:
    """The locations of each chain."""
    tree = read_paths(profile.numbers("stacks", "parent"), profile.numbers("stacks", "location"))
    sleepers = np.split(*_bounds(select_paths(*tree, chains.sleeper)))
    offsets, locations = select_paths(*tree, chains.waker)
    copied_at, copies = select_paths(wakers.offsets, wakers.locations, locations[reverse_segments(offsets)])
    woken_by = np.split(*_bounds((copied_at[offsets], copies)))
    separator = np.array([wakers.separator])
    names = wakers.comms[chains.comm].reshape(-1, 1)
    return [np.concatenate(parts) for parts in zip(sleepers, repeat(separator), woken_by, names, strict=False)]


def _bounds(paths: tuple[Numbers, Numbers]) -> tuple[Numbers, Numbers]:
    """What `numpy.split` makes a list of paths of."""
    offsets, locations = paths
    return locations, offsets[1:-1].astype(np.int64)


def _copy_wakers(profile: Profile, chains: _Chains) -> tuple[dict[str, Table], _Wakers]:
    """All tables with the wakers' own rows, and where these are."""
    tree = read_paths(profile.numbers("stacks", "parent"), profile.numbers("stacks", "location"))
    used = distinct(select_paths(*tree, chains.waker)[1]).astype(np.int64)
    n_locations = profile.table("locations").num_rows
    order, starts = order_lines(profile)
    n_lines = starts[used + 1] - starts[used]
    count = np.maximum(n_lines, 1)
    counts = np.zeros(n_locations, np.int64)
    counts[used] = count
    offsets = np.concatenate(([0], np.cumsum(counts)))
    named = np.repeat(n_lines > 0, count)
    rows = order[_from_last(starts[used + 1], count)[named]]
    tables = _append(profile, _find_used(profile, np.repeat(used, count), rows, np.flatnonzero(named)), chains.comms)
    copies = n_locations + np.arange(offsets[-1])
    separator = n_locations + int(offsets[-1])
    return tables, _Wakers(offsets, copies, separator, separator + 1 + np.arange(len(chains.comms)))


def _find_used(profile: Profile, locations: Numbers, lines: Numbers, line_of: Numbers) -> _Used:
    functions = distinct(profile.numbers("lines", "function")[lines])
    objects = (profile.numbers("locations", "object")[locations], profile.numbers("functions", "object")[functions])
    return _Used(locations, lines, line_of, functions, distinct(np.concatenate(objects)))


def _from_last(ends: Numbers, counts: Numbers) -> Numbers:
    """For each segment its last places, from the last one on: int64 (sum of counts,)."""
    offsets = np.cumsum(counts)
    place = np.arange(offsets[-1] if len(offsets) else 0) - np.repeat(offsets - counts, counts)
    found: Numbers = np.repeat(ends, counts) - 1 - place
    return found


class _Used(NamedTuple):
    """The rows to copy.

    Attributes:
        locations: (n_copies,).
        lines: (n,), and ``line_of``: at which of the copies each one is.
        functions, objects: those that these refer to, each once.
    """

    locations: Numbers
    lines: Numbers
    line_of: Numbers
    functions: Numbers
    objects: Numbers


def _append(profile: Profile, used: _Used, comms: list[str]) -> dict[str, Table]:
    """All tables with these copies behind their rows, and behind those what has no code: the separator, and names."""
    copies = _copy(profile, used)
    virtual = _name_wakers(profile, used, [SEPARATOR, *comms])
    return {**profile.tables, **{name: _join(profile.table(name), copies[name], virtual[name]) for name in copies}}


def _copy(profile: Profile, used: _Used) -> dict[str, Table]:
    def rows(name: str, rows: Numbers, **columns: Numbers | list[str]) -> Table:
        return with_columns(take_rows(profile.table(name), rows), **columns)

    def moved(name: str, rows: Numbers, ids: Numbers) -> Numbers:
        """The copies of rows that are among ``rows``."""
        return profile.table(name).num_rows + np.searchsorted(rows, ids)

    location_object = profile.numbers("locations", "object")[used.locations]
    function_object = profile.numbers("functions", "object")[used.functions]
    line_function = profile.numbers("lines", "function")[used.lines]
    return {
        "objects": rows("objects", used.objects, kind=[KIND] * len(used.objects)),
        "functions": rows("functions", used.functions, object=moved("objects", used.objects, function_object)),
        "locations": rows("locations", used.locations, object=moved("objects", used.objects, location_object)),
        "lines": rows(
            "lines",
            used.lines,
            location=profile.table("locations").num_rows + used.line_of,
            depth=np.zeros(len(used.lines), np.int64),
            function=moved("functions", used.functions, line_function),
        ),
    }


def _name_wakers(profile: Profile, used: _Used, names: list[str]) -> dict[str, dict[str, list[Any]]]:
    """Columns of what has no code: an object, and in it a function and a location a name."""
    places = range(len(names))
    first_function = profile.table("functions").num_rows + len(used.functions)
    first_location = profile.table("locations").num_rows + len(used.locations)
    objects = [profile.table("objects").num_rows + len(used.objects)] * len(names)
    return {
        "objects": {"kind": [KIND], "path": [OBJECT]},
        "functions": {"name": names, "system_name": names, "object": objects},
        "locations": {"object": objects, "address": list(places), "reason": [None] * len(names)},
        "lines": {
            "location": [first_location + place for place in places],
            "function": [first_function + place for place in places],
        },
    }


def _join(table: Table, copies: Table, virtual: dict[str, list[Any]]) -> Table:
    """The rows of a table, then the others, numbered anew."""
    joined = concatenate_rows((table, copies, make_rows(table, virtual)))
    return with_columns(joined, id=np.arange(joined.num_rows)) if "id" in joined.column_names else joined
