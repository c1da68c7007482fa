"""From a comparison to an exit status: never a pass where nobody can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stackhound.bench.text import format_ratio
from stackhound.bench.verdicts import Control, Verdict
from stackhound.errors import TooNoisy
from stackhound.profile.escape import printable

if TYPE_CHECKING:
    from stackhound.bench.comparison import Comparison
    from stackhound.bench.verdicts import Key, Limits

PASSED: Final = 0
REGRESSED: Final = 3
INCONCLUSIVE: Final = 4


class Decision(NamedTuple):
    """An exit status, and why in a line."""

    status: int
    reason: str


def decide(comparison: Comparison, limits: Limits, strict: bool) -> Decision:
    """Decide.

    Args:
        comparison: what was found.
        limits: what was asked.
        strict: whether what is unclear does not pass, either.

    Raises:
        TooNoisy: a side differs from itself; or nothing regressed, something is unclear, and there a side compared
            with itself is no clearer.
    """
    for key, (control, _) in comparison.controls.items():
        if control == Control.BIASED:
            raise _too_noisy(comparison, key, limits)
    if regressed := comparison.having(Verdict.REGRESSED):
        names = ", ".join(sorted({one.benchmark for one in regressed}))
        return Decision(REGRESSED, printable(f"regression: {names}"))
    unclear = comparison.having(Verdict.INCONCLUSIVE)
    for one in unclear:
        key = one.benchmark, one.measure.name
        if key in comparison.controls and comparison.controls[key][0] == Control.NOISY:
            raise _too_noisy(comparison, key, limits)
    if unclear:
        names = ", ".join(sorted({one.benchmark for one in unclear}))
        return Decision(INCONCLUSIVE if strict else PASSED, printable(f"not clear: {names}"))
    return Decision(PASSED, "no regression")


def _too_noisy(comparison: Comparison, key: Key, limits: Limits) -> TooNoisy:
    interval = comparison.controls[key][1]
    bounds = f"{format_ratio(interval.low)} … {format_ratio(interval.high)}"
    what = f"{key[1]} of {key[0]!r} differs by {bounds} from itself"
    return TooNoisy(
        f"this machine is too noisy to tell {100 * limits.detect:g}%: {what}",
        "give it more --time, a quieter machine, a larger --detect, or measures that are counts",
    )
