"""How much slower work gets while a sampler is at work.

Whoever else uses the machine's caches and cores only ever makes work slower, for a moment or for seconds: what is
compared is how fast it was in those parts of the windows that were faster than 80 % of them. Nothing against nothing
then differs by tenths of a percent, where whole windows differ by 5 %.

Only for what a sampler takes all the time, as in each interrupt. What its own processes take comes in turns, and is
told apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.estimate import Estimate, estimate, estimate_ratio
from harness.machine import cpus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.windows import Part, Round

#: Of the parts of windows, those that are slower than the ones to compare.
CALM = 0.8


def by_the_wall(part: Part) -> float:
    """Pieces of work in a second."""
    return part.work.pieces / part.wall_s


def by_cpu_time(part: Part) -> float:
    """Pieces of work in a second of their own CPU time: without what other processes take, and without pauses."""
    return part.work.rate


def slowdown(name: str, base: str, rounds: Sequence[Round], speed: Callable[[Part], float] = by_cpu_time) -> Estimate:
    """In percent of the speed beside another sampler."""
    speeds, base_speeds = ([[speed(part) for part in one[of].parts] for one in rounds] for of in (name, base))
    ratio = estimate_ratio(speeds, base_speeds, CALM)
    return Estimate(100 * (1 - ratio.mean), 100 * (1 - ratio.high), 100 * (1 - ratio.low), ratio.count)


def own_share(name: str, rounds: Sequence[Round]) -> Estimate:
    """What the sampler's own processes take of the machine's CPUs, in percent."""
    shares = [one[name].collector_cpu_s / (one[name].wall_s * len(cpus())) for one in rounds]
    return estimate([100 * share for share in shares])


def whole_slowdown(name: str, base: str, rounds: Sequence[Round]) -> Estimate:
    """What the work loses, and what is left less of the machine for it: in percent more than beside another sampler."""
    loss, own, others = slowdown(name, base, rounds), own_share(name, rounds), own_share(base, rounds)
    low, high = loss.low + own.low - others.high, loss.high + own.high - others.low
    return Estimate(loss.mean + own.mean - others.mean, low, high, len(rounds))
