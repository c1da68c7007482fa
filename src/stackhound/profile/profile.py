"""A profile: its tables and what is asked of them most."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, fields
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from arro3.core import Table

from stackhound.errors import UsageError
from stackhound.profile.columns import Numbers, to_list
from stackhound.profile.frames import Frames, build_frames
from stackhound.profile.metadata import Metadata, read_int
from stackhound.profile.rows import Event, Loss
from stackhound.profile.tables import TableSet
from stackhound.profile.tree import CallTree, Root, build_tree

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from stackhound import _native
    from stackhound.profile.top import TopTable


@dataclass(frozen=True)
class Samples:
    """Columns of the samples of one event."""

    thread: Numbers
    stack: Numbers
    value: Numbers
    count: Numbers
    flags: Numbers


class Profile(TableSet):
    """What a recording saw, as Arrow tables (`stackhound.profile.schema` draws them). It never changes.

    Text in it comes from the profiled programs: escape it wherever it is shown.
    """

    def __init__(
        self,
        tables: Mapping[str, Table],
        metadata: Metadata | dict[str, Any],
        attachments: Mapping[str, bytes] | None = None,
        before: Profile | None = None,
    ) -> None:
        """Take over the tables.

        Args:
            tables: all of `schema.TABLES`; others are kept and saved with them.
            metadata: see `stackhound.profile.metadata`.
            attachments: other members of the ``.hound`` file, by name; kept and saved with it.
            before: the profile that this one is made from, and shares tables with.

        Raises:
            DamagedProfile: a table or a column is missing, or has another type.
        """
        super().__init__(tables, before)
        self._metadata = copy.deepcopy(dict(metadata))
        self._attachments = MappingProxyType(dict(attachments or {}))

    @classmethod
    def from_native(cls, tables: _native.Tables, metadata: str, notes: Sequence[str] = ()) -> Profile:
        """The profile of a finished `_native.Session`, with notes that it does not know of."""
        known = json.loads(metadata)
        known["notes"] = [*known.get("notes", ()), *notes]
        return cls({name: Table.from_arrow(tables.take(name)) for name in tables.names()}, known)

    @property
    def metadata(self) -> Metadata:
        """A copy of what is known about the recording."""
        found: Metadata = copy.deepcopy(self._metadata)  # type: ignore[assignment]
        return found

    @property
    def attachments(self) -> Mapping[str, bytes]:
        """Members of the ``.hound`` file that are neither tables nor metadata."""
        return self._attachments

    @cached_property
    def events(self) -> list[Event]:
        """What was sampled, in the order of the table ``events``."""
        columns = (to_list(self._arrow_column("events", field.name)) for field in fields(Event))
        return [Event(*row) for row in zip(*columns, strict=True)]

    def event(self, name: str | None = None) -> Event:
        """The event called ``name``; None means the only one.

        Raises:
            UsageError: there is no such event, or None was given and there are several.
        """
        found = [event for event in self.events if name in (None, event.name)]
        if len(found) == 1:
            return found[0]
        names = ", ".join(event.name for event in self.events) or "none"
        if name is None:
            raise UsageError(
                f"this profile has several events: {names}", 'choose one with --event NAME, in Python event="NAME"'
            )
        raise UsageError(f"this profile has no event {name!r}", f"its events are {names}")

    def samples_of(self, event: Event) -> Samples:
        """Columns of the samples of one event, in their order."""
        columns = [self.numbers("samples", name) for name in ("thread", "stack", "value", "count", "flags")]
        if len(self.events) == 1:
            return Samples(*columns)
        chosen = self.numbers("samples", "event") == event.id
        return Samples(*(column[chosen] for column in columns))

    @property
    def losses(self) -> list[Loss]:
        """Everything that should have been recorded and was not, by cause."""
        columns = (to_list(self._arrow_column("losses", name)) for name in Loss._fields)
        return [Loss(*row) for row in zip(*columns, strict=True)]

    @cached_property
    def duration_ns(self) -> int:
        """How long the recording ran; without a clock in the metadata, until the last sample."""
        end = read_int(self._metadata, "clock", "end_boottime_ns")
        if end is None:
            end = int(self.numbers("samples", "last_ns").max(initial=0))
        return max(0, end - self.start_boottime_ns)

    @cached_property
    def start_boottime_ns(self) -> int:
        """When the recording began; without a clock in the metadata, the time of the first sample."""
        start = read_int(self._metadata, "clock", "start_boottime_ns")
        if start is not None:
            return start
        times = self.numbers("samples", "boottime_ns")
        return int(times.min()) if len(times) else 0

    @property
    def inverted(self) -> bool:
        """Whether the stacks run leaf → root (`invert`)."""
        return bool(self._metadata.get("inverted", False))

    @property
    def is_reweighed(self) -> bool:
        """Whether samples weigh something else than what was sampled (`weigh_by_count`, `weigh_by_time`)."""
        return bool(self._metadata.get("sampled_units"))

    @property
    def is_aggregated(self) -> bool:
        """Whether samples were combined while recording, which leaves few of their times."""
        options = self._metadata.get("options")
        return isinstance(options, dict) and bool(options.get("aggregate"))

    @cached_property
    def frames(self) -> Frames:
        """What pictures show at each location."""
        return build_frames(self, lines=False)

    @cached_property
    def frames_with_lines(self) -> Frames:
        """The same, with one frame a source line."""
        return build_frames(self, lines=True)

    @cached_property
    def shown(self) -> Profile:
        """What trees, tables and pictures show: without the interpreter's own functions between Python's, and without
        the scheduler's in which threads left the CPU, and the allocator's that were asked for memory.

        See `stackhound.transform.fold_interpreter`, `fold_scheduler` and `fold_allocators`; `show_native_internals`
        asks for all.
        """
        if "native_internals" in self._metadata:
            return self
        from stackhound.transform import fold_allocators, fold_interpreter, fold_scheduler

        return fold_allocators(fold_scheduler(fold_interpreter(self)))

    def show_native_internals(self) -> Profile:
        """Let trees, tables and pictures show also what `shown` leaves out."""
        return self.derive({}, native_internals="shown")

    def tree(
        self, event: str | None = None, root: Root = None, inverted: bool = False, lines: bool = False
    ) -> CallTree:
        """Merge the samples of one event into a call tree.

        Args:
            event: its name; None means the only one.
            root: a first level by the comm of the ``process`` or of the ``thread``.
            inverted: from the leaf to its callers.
            lines: tell source lines of a function apart.

        Returns:
            Values in the event's unit. ``total_value[0]`` is the sum over all samples; losses are not included.

        Raises:
            UsageError: no such event, or several and None was given.
        """
        return build_tree(self.shown, event, root, inverted, lines)

    def top(self, n: int = 10, event: str | None = None) -> TopTable:
        """The ``n`` functions with the most time (or whatever the event counts) of their own.

        Args:
            n: at most so many.
            event: its name; None means the first that was asked for. The table says which when there are several.

        Raises:
            UsageError: no such event.
        """
        from stackhound.profile.top import build_top

        return build_top(self, n, event)

    def derive(self, tables: Mapping[str, Table], transform: str = "", **metadata: object) -> Profile:
        """This profile with some tables and metadata replaced.

        Args:
            tables: the ones that differ.
            transform: what was done, for the list ``metadata["transforms"]``; empty adds nothing.
            metadata: top-level keys to set.
        """
        known = {**self._metadata, **metadata}
        if transform:
            known["transforms"] = [*known.get("transforms", []), transform]
        return Profile({**self.tables, **tables}, known, self._attachments, self)

    def filter(
        self,
        *,
        pids: Collection[int] | None = None,
        tids: Collection[int] | None = None,
        comms: Collection[str] | None = None,
        cpus: Collection[int] | None = None,
        events: Collection[str] | None = None,
        from_ns: int | None = None,
        until_ns: int | None = None,
    ) -> Profile:
        """Keep the samples that meet every condition: see `stackhound.transform.filter_samples`."""
        from stackhound.transform import filter_samples

        return filter_samples(
            self, pids=pids, tids=tids, comms=comms, cpus=cpus, events=events, from_ns=from_ns, until_ns=until_ns
        )

    def focus(self, pattern: str) -> Profile:
        """Keep the samples that have a matching function, stacks whole: see `stackhound.transform.focus`."""
        from stackhound.transform import focus

        return focus(self, pattern)

    def show_from(self, pattern: str) -> Profile:
        """Let stacks start at the outermost matching function: see `stackhound.transform.show_from`."""
        from stackhound.transform import show_from

        return show_from(self, pattern)

    def ignore(self, pattern: str) -> Profile:
        """Drop the samples that have a matching function: see `stackhound.transform.ignore`."""
        from stackhound.transform import ignore

        return ignore(self, pattern)

    def invert(self) -> Profile:
        """Turn stacks around, leaf first: see `stackhound.transform.invert`."""
        from stackhound.transform import invert

        return invert(self)

    def without_callers(self, pattern: str) -> Profile:
        """Let stacks start at the outermost matching function, if any: see `stackhound.transform.without_callers`."""
        from stackhound.transform import without_callers

        return without_callers(self, pattern)

    def without_recorder(self, pid: int, tids: Collection[int] = ()) -> Profile:
        """Drop what stackhound did in a process that recorded: see `stackhound.transform.without_recorder`."""
        from stackhound.transform import without_recorder

        return without_recorder(self, pid, tids)

    def name_cells(self, cells: Mapping[str, str]) -> Profile:
        """Call functions of notebook cells as the notebook does: see `stackhound.transform.name_cells`."""
        from stackhound.transform import name_cells

        return name_cells(self, cells)

    def collapse_recursion(self) -> Profile:
        """Show direct recursion as one call: see `stackhound.transform.collapse_recursion`."""
        from stackhound.transform import collapse_recursion

        return collapse_recursion(self)

    def merge_threads(self) -> Profile:
        """Count threads into their process: see `stackhound.transform.merge_threads`."""
        from stackhound.transform import merge_threads

        return merge_threads(self)

    def show_wakers(self) -> Profile:
        """Put who woke a thread on top of its stack: see `stackhound.transform.show_wakers`."""
        from stackhound.transform import show_wakers

        return show_wakers(self)

    def keep_live(self) -> Profile:
        """Keep of the allocations those that were not given back: see `stackhound.transform.keep_live`."""
        from stackhound.transform import keep_live

        return keep_live(self)

    def weigh_by_count(self) -> Profile:
        """Let samples weigh how often, instead of how long: see `stackhound.transform.weigh_by_count`."""
        from stackhound.transform import weigh_by_count

        return weigh_by_count(self)

    def weigh_by_time(self) -> Profile:
        """Let samples weigh how long, instead of how often: see `stackhound.transform.weigh_by_time`."""
        from stackhound.transform import weigh_by_time

        return weigh_by_time(self)

    def drop_inlined(self) -> Profile:
        """Count inlined functions into their callers: see `stackhound.transform.drop_inlined`."""
        from stackhound.transform import drop_inlined

        return drop_inlined(self)

    def compact(self) -> Profile:
        """Drop everything that no sample leads to: see `stackhound.transform.compact`."""
        from stackhound.transform import compact

        return compact(self)

    def merge(self, *others: Profile) -> Profile:
        """Put the samples of others beside these: see `stackhound.transform.merge`."""
        from stackhound.transform import merge

        return merge([self, *others])

    def save(self, path: str | Path, *, keep_old: bool = False) -> None:
        """Write a ``.hound`` file: see `stackhound.profile.hound.save`."""
        from stackhound.profile.hound import save

        save(self, path, keep_old=keep_old)

    def export(self, path: str | Path, format: str | None = None, event: str | None = None) -> None:  # noqa: A002
        """Write the profile in another format: see `stackhound.profile.export.export`.

        A format that shows one event shows the first that was asked for, unless ``event`` names another.
        """
        from stackhound.profile.export import export

        export(self, path, format, event)

    def _repr_html_(self) -> str:
        from stackhound.profile.notebook import profile_html

        return profile_html(self)

    def __repr__(self) -> str:
        names = ", ".join(event.name for event in self.events)
        return f"<Profile of {names}: {self.table('samples').num_rows} samples, {self.duration_ns / 1e9:.1f} s>"
