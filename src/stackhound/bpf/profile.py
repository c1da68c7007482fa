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
_NAMED: Final = re.compile(r"bpf_prog_[0-9a-f]{16}_(.*)", re.DOTALL)
#: Sampled and counted time are worth a word when one is more than twice the other, and half a percent of a CPU.
DISAGREEMENT: Final = 2.0
LEAST_SHARE: Final = 0.005


@dataclass(frozen=True)
class Share:
    """What the programs of a name took of the CPUs while they were sampled: samples do not tell loads of one apart.

    Attributes:
        ids: of those that were loaded in the end.
        sampled_ns: samples in them, and in what they called.
        counted_ns: by the kernel's statistics, without their own part; None: none was there all the time.
        elapsed_ns: meanwhile.
    """

    name: str
    ids: tuple[int, ...]
    sampled_ns: int
    counted_ns: float | None
    elapsed_ns: int

    @property
    def is_unseen(self) -> bool:
        """Whether samples show far less of it than there was: the clock cannot see what runs with interrupts off."""
        if self.counted_ns is None or self.counted_ns < LEAST_SHARE * self.elapsed_ns:
            return False
        return self.counted_ns > DISAGREEMENT * self.sampled_ns


def within_programs(profile: Profile) -> Profile:
    """The samples within BPF programs, each stack from there on."""
    return profile.show_from(FUNCTIONS)


def share_out(inside: Profile, reading: Reading, programs: Iterable[Program]) -> list[Share]:
    """What the programs of each name took; the largest first.

    Args:
        inside: samples `within_programs`, of time on the CPU.
        reading: of the same time.
        programs: that are loaded.
    """
    sampled = _sampled_by_name(inside)
    ids: dict[str, list[int]] = {name: [] for name in sampled}
    for program in programs:
        ids.setdefault(program.name, []).append(program.id)
    shares = []
    for name, of_name in ids.items():
        rates = [reading.rates[id_] for id_ in of_name if id_ in reading.rates]
        counted_ns = sum(rate.run_ns for rate in rates) if rates else None
        shares.append(Share(name, tuple(of_name), sampled.get(name, 0), counted_ns, reading.elapsed_ns))
    ran = [one for one in shares if one.sampled_ns or one.counted_ns]
    return sorted(ran, key=lambda one: -max(one.sampled_ns, one.counted_ns or 0))


def _sampled_by_name(inside: Profile) -> dict[str, int]:
    """Time of the samples by the name of their outermost BPF program."""
    tree = inside.tree(inside.events[0].name)
    sums: dict[str, int] = {}
    for node in range(1, len(tree)):
        if tree.parent[node] == 0 and (found := _NAMED.match(tree.name(node))):
            sums[found[1]] = sums.get(found[1], 0) + int(tree.total_value[node])
    return sums
