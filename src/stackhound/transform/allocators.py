"""Allocations without the allocator's own functions, which each such stack ends in; and those that are in use alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from stackhound.errors import UsageError
from stackhound.profile.allocations import HEAP, fates, tells_memory
from stackhound.transform.leaves import end_before
from stackhound.transform.locations import functions_named, outermost
from stackhound.transform.samples import keep_samples

if TYPE_CHECKING:
    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers

#: What programs call for memory: the C library's functions and those that pass on to them in C++, Rust and CPython; of
#: jemalloc (``je_``), mimalloc (``mi_``) and tcmalloc (``tc_``), too; and for mappings.
ALLOCATORS: Final = re.compile(
    r"""(
    (__libc_|__GI___libc_|__GI_|__|je_|mi_|tc_)?
        (malloc|calloc|realloc|reallocarray|memalign|posix_memalign|aligned_alloc|valloc|pvalloc|new(array)?)
    |(__GI_)?(__)?(mmap(64)?|mremap)
    |mi_(zalloc|mallocn|rezalloc|recalloc|reallocn|new_n|new_nothrow|new_aligned)(_aligned)?|(je_)?(mallocx|rallocx)
    |_?Py(Object|Mem)_(Raw)?(Malloc|Calloc|Realloc)|pymalloc_(alloc|realloc)
    |operator\ new(\[\])?\(.*\)
    |__rust_(alloc|alloc_zeroed|realloc)|__r[dg]l_(alloc|alloc_zeroed|realloc)
    |_?_R\w*___rust_(alloc|alloc_zeroed|realloc)|alloc::alloc::\w+|<?std::alloc::System\b.*
    )(@plt|\.\w+)*""",
    re.VERBOSE,
)

#: The library in which programs choose samples (`stackhound.recording.heap_library`), all its functions.
LIBRARY: Final = re.compile(r"(.*/)?stackhound-heap-[0-9a-f]+\.so")


def fold_allocators(profile: Profile) -> Profile:
    """Let samples of ``heap`` end in the function that asked for memory, instead of in what it asked."""
    if profile.inverted or all(event.name != HEAP for event in profile.events):
        return profile
    is_allocator = outermost(profile, functions_named(profile, ALLOCATORS)) | _in_library(profile)
    return end_before(profile, HEAP, is_allocator, "fold-allocators")


def _in_library(profile: Profile) -> Numbers:
    is_library = np.array([bool(LIBRARY.fullmatch(path)) for path in profile.texts("objects", "path")], bool)
    return is_library[profile.numbers("locations", "object")]


def keep_live(profile: Profile) -> Profile:
    """Keep of the allocations those that were in use when their program or the recording ended.

    Raises:
        UsageError: no allocations were recorded.
    """
    found = [event for event in profile.events if tells_memory(profile, event)]
    if not found:
        raise UsageError("what is in use is known of allocations", "record them with -e heap")
    keep = np.ones(profile.table("samples").num_rows, bool)
    for event in found:
        keep[profile.numbers("samples", "event") == event.id] = fates(profile, event, "in use")
    return profile.derive(keep_samples(profile, keep), "live")
