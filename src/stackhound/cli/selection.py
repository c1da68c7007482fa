"""Which part of a profile to show: options of ``report`` and ``export``, as transforms in the order they apply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from stackhound.cli.parameters import Decorated, flag, list_option, parse_numbers, parse_pids, split_names
from stackhound.errors import EmptyProfile

if TYPE_CHECKING:
    from stackhound.profile import Profile

_OPTIONS: Final = (
    list_option("-p", "--pid", "pids", parse=parse_pids, metavar="PID,...", help="Only these processes."),
    list_option("--tid", "tids", parse=parse_pids, metavar="TID,...", help="Only these threads."),
    list_option("--comm", "comms", parse=split_names, metavar="NAME,...", help="Only threads of these names."),
    list_option("--cpu", "cpus", parse=parse_numbers, metavar="CPU,...", help="Only these CPUs."),
    click.option("--focus", metavar="REGEX", help="Only stacks with a function that matches."),
    click.option("--ignore", metavar="REGEX", help="Only stacks without a function that matches."),
    flag("--no-inline", "drop_inlined", help="Leave out inlined functions."),
    flag("--native-internals", help="Show also the interpreter's own functions, and the scheduler's."),
    flag("--live", help="Of heap: only what was in use at the end, instead of all that was allocated."),
    flag("--off-wake", help="On top of time off the CPU, who ended it, upside down (record --wakers)."),
    click.option("--by", type=click.Choice(("time", "count")), help="Weigh how long it took, or how often it was."),
    flag("--inverted", help="From what ran to its callers."),
)


def selection_options(command: Decorated) -> Decorated:
    """The options that `Selection.parse` reads."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class Selection:
    """What was asked for; empty means everything."""

    pids: tuple[int, ...]
    tids: tuple[int, ...]
    comms: tuple[str, ...]
    cpus: tuple[int, ...]
    focus: str | None
    ignore: str | None
    drop_inlined: bool
    native_internals: bool
    live: bool
    off_wake: bool
    by: str | None
    inverted: bool

    @classmethod
    def parse(cls, given: dict[str, Any]) -> Selection:
        """The selection among all parameters of a command line."""
        return cls(**{name: given[name] for name in cls.__dataclass_fields__})

    def apply(self, profile: Profile) -> Profile:
        """The part of the profile that was asked for.

        Raises:
            UsageError: a pattern is no regular expression, or what is asked for was not recorded.
            EmptyProfile: no sample is left.
        """
        if profile.table("samples").num_rows == 0:
            raise EmptyProfile("this profile has no samples", "what was recorded did not run, or was filtered out")
        profile = profile.show_native_internals() if self.native_internals else profile.shown
        profile = self._choose_samples(profile)
        if profile.table("samples").num_rows == 0:
            raise EmptyProfile("no sample is left of this profile", "choose more with the options that select")
        if self.live:
            profile = self._choose_live(profile)
        if self.drop_inlined:
            profile = profile.drop_inlined()
        if self.off_wake:
            profile = profile.show_wakers()
        if self.by:
            profile = profile.weigh_by_time() if self.by == "time" else profile.weigh_by_count()
        return profile.invert() if self.inverted else profile

    def _choose_live(self, profile: Profile) -> Profile:
        live = profile.keep_live()
        if live.table("samples").num_rows == 0:
            raise EmptyProfile("nothing was in use at the end, as far as it was sampled", "drop --live")
        return live

    def _choose_samples(self, profile: Profile) -> Profile:
        if self.pids or self.tids or self.comms or self.cpus:
            from stackhound.transform import filter_samples

            profile = filter_samples(
                profile,
                pids=self.pids or None,
                tids=self.tids or None,
                comms=self.comms or None,
                cpus=self.cpus or None,
            )
        if self.focus is not None:
            profile = profile.focus(self.focus)
        if self.ignore is not None:
            profile = profile.ignore(self.ignore)
        return profile
