"""How far the walks of user stacks came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from stackhound.profile.schema import USER_ENDS, SampleFlag

if TYPE_CHECKING:
    from stackhound.profile.columns import Numbers
    from stackhound.profile.profile import Samples

KERNEL_THREAD: Final = "kernel thread"
UNWALKED: Final = USER_ENDS[0]
COMPLETE: Final = USER_ENDS[1]
IN_PART_GUESSED: Final = f"{COMPLETE}, in part by frame pointers"
#: Of stacks whose native part is complete, or tells no root.
PYTHON_CUT: Final = "Python's functions cut"
PYTHON_GUESSED: Final = "Python's functions in part at guessed places"
OF_PYTHON: Final = frozenset({PYTHON_CUT, PYTHON_GUESSED})
#: What `ends` numbers.
END_NAMES: Final = (
    *USER_ENDS,
    *(f"({number})" for number in range(len(USER_ENDS), 16)),  # of another version
    KERNEL_THREAD,
    IN_PART_GUESSED,
    PYTHON_CUT,
    PYTHON_GUESSED,
)


#: Those of samples that have no user stack.
WITHOUT_STACK: Final = frozenset({KERNEL_THREAD, *USER_ENDS[11:]})


def ends(samples: Samples) -> Numbers:
    """How each sample's user stack ended: int64 (n_samples,), indexes of `END_NAMES`."""
    flags = samples.flags.astype(np.int64)
    end = (flags & SampleFlag.USER_END) >> SampleFlag.USER_END_SHIFT
    is_guess = (end == END_NAMES.index(COMPLETE)) & (flags & SampleFlag.USER_FRAME_POINTERS != 0)
    end[is_guess] = END_NAMES.index(IN_PART_GUESSED)
    is_sound = np.isin(end, [END_NAMES.index(name) for name in (UNWALKED, COMPLETE, IN_PART_GUESSED)])
    end[is_sound & (flags & SampleFlag.PYTHON_GUESSED != 0)] = END_NAMES.index(PYTHON_GUESSED)
    end[is_sound & (flags & SampleFlag.PYTHON_CUT != 0)] = END_NAMES.index(PYTHON_CUT)
    end[flags & SampleFlag.KERNEL_THREAD != 0] = END_NAMES.index(KERNEL_THREAD)
    return end


def count_ends(samples: Samples) -> dict[str, int]:
    """Observations by how their user stack ended; where stacks were not unwound, only what is to be said of Python's.

    Without those that have none: kernel threads, and threads at their end or at the beginning of a program.
    """
    end = ends(samples)
    counts = np.zeros(len(END_NAMES), np.int64)
    np.add.at(counts, end, samples.count.astype(np.int64))
    counts[[END_NAMES.index(name) for name in WITHOUT_STACK]] = 0
    known = {name: count for name, count in zip(END_NAMES, counts.tolist(), strict=True) if count}
    if known.keys() - OF_PYTHON - {UNWALKED}:
        return known
    return {name: count for name, count in known.items() if name in OF_PYTHON}
