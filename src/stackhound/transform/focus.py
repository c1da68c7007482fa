"""Samples chosen, and stacks cut, by the functions in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stackhound.transform.locations import slice_locations
from stackhound.transform.match import first_true, matching_frames, matching_locations, matching_stacks
from stackhound.transform.samples import keep_samples
from stackhound.transform.stacks import read_used_paths, replace_stacks

if TYPE_CHECKING:
    from stackhound.profile import Profile


def focus(profile: Profile, pattern: str) -> Profile:
    """Keep the samples whose stack has a function that matches, stacks whole (as pprof's ``focus``).

    Args:
        profile: where from.
        pattern: a regular expression, found anywhere in a function's demangled name; for a frame without a name,
            in its label, such as ``[libx.so]``.

    Raises:
        UsageError: ``pattern`` is no regular expression.
    """
    keep = matching_stacks(profile, pattern)[profile.numbers("samples", "stack")]
    return profile.derive(keep_samples(profile, keep), f"focus {pattern}")


def ignore(profile: Profile, pattern: str) -> Profile:
    """Drop the samples whose stack has a function that matches (as pprof's ``ignore``): the rest of `focus`.

    Raises:
        UsageError: ``pattern`` is no regular expression.
    """
    drop = matching_stacks(profile, pattern)[profile.numbers("samples", "stack")]
    return profile.derive(keep_samples(profile, ~drop), f"ignore {pattern}")


def show_from(profile: Profile, pattern: str) -> Profile:
    """Keep what `focus` keeps, and let each stack start at its outermost match (as pprof's ``show_from``).

    What called the matching function is gone, also when that was inlined into its caller. A picture then has the
    matching functions side by side at its root.

    Raises:
        UsageError: ``pattern`` is no regular expression.
    """
    return _cut_callers(profile.derive(focus(profile, pattern).tables, f"show-from {pattern}"), pattern)


def without_callers(profile: Profile, pattern: str) -> Profile:
    """Let each stack start at its outermost match, as `show_from`; a stack without one stays whole.

    Raises:
        UsageError: ``pattern`` is no regular expression.
    """
    return _cut_callers(profile.derive({}, f"without-callers {pattern}"), pattern)


def _cut_callers(profile: Profile, pattern: str) -> Profile:
    first_frame = matching_locations(profile, matching_frames(profile, pattern))
    used, offsets, locations = read_used_paths(profile)
    first = first_true(offsets, first_frame[locations] >= 0)
    start = np.where(first < 0, offsets[:-1], first)
    cut = first[first >= 0]
    n_frames = np.diff(profile.frames.offsets).astype(np.int64)
    begin = first_frame[locations[cut]]
    locations = locations.copy()
    tables, locations[cut] = slice_locations(profile, locations[cut], begin, n_frames[locations[cut]])
    keep = np.arange(offsets[-1]) >= np.repeat(start, np.diff(offsets))
    return profile.derive(replace_stacks(tables, used, offsets, locations, keep))
