"""Where BPF programs spend their time on the CPU: samples within them, beside what the kernel's statistics say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackhound.bpf.monitor import Reading
    from stackhound.bpf.programs import Program
    from stackhound.profile import Profile

#: How the kernel calls the functions of programs.
FUNCTIONS: Final = "^bpf_prog_[0-9a-f]{16}_"
_TAGGED: Final = re.compile(r"bpf_prog_([0-9a-f]{16})_(.*)", re.DOTALL)
#: Sampled and counted time are worth a word when one is more than twice the other, and half a percent of a CPU.
DISAGREEMENT: Final = 2.0
LEAST_SHARE: Final = 0.005


@dataclass(frozen=True)
class Share:
    """What a program took of the CPUs while they were sampled.

    Attributes:
        sampled_ns: samples in it, and in what it called.
        counted_ns: by the kernel's statistics, without their own part; None: it was not there all the time.
        elapsed_ns: meanwhile.
    """

    program: Program
    sampled_ns: int
    counted_ns: float | None
    elapsed_ns: int

    @property
    def is_unseen(self) -> bool:
        """Whether samples show far less of it than there was: the clock cannot see what runs with interrupts off."""
        if self.counted_ns is None or self.counted_ns < LEAST_SHARE * self.elapsed_ns:
            return False
        return self.counted_ns > DISAGREEMENT * self.sampled_ns


def within_programs(profile: Profile, program: Program | None = None) -> Profile:
    """The samples within BPF programs, or within one, each stack from there on."""
    pattern = FUNCTIONS if program is None else f"^bpf_prog_{program.tag}_"
    return profile.show_from(pattern)


def share_out(profile: Profile, reading: Reading, programs: Iterable[Program]) -> list[Share]:
    """What each program took; the largest first.

    Args:
        profile: of the whole machine, of time on the CPU.
        reading: of the same time.
        programs: that were loaded.
    """
    sampled = _sampled_by_tag(profile)
    shares = []
    for program in programs:
        rate = reading.rates.get(program.id)
        counted_ns = rate.run_ns if rate else None
        share = Share(program, sampled.get(program.tag, 0), counted_ns, reading.elapsed_ns)
        if share.sampled_ns or share.counted_ns:
            shares.append(share)
    return sorted(shares, key=lambda one: -max(one.sampled_ns, one.counted_ns or 0))


def _sampled_by_tag(profile: Profile) -> dict[str, int]:
    """Time of the samples by the tag of their outermost BPF program."""
    event = profile.events[0].name
    inside = within_programs(profile)
    tree = inside.tree(event)
    sums: dict[str, int] = {}
    for node in range(1, len(tree)):
        if tree.parent[node] == 0 and (found := _TAGGED.match(tree.name(node))):
            sums[found[1]] = sums.get(found[1], 0) + int(tree.total_value[node])
    return sums
