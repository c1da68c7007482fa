"""Samples kept and dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stackhound.profile.columns import take_rows, to_numpy
from stackhound.profile.schema import TABLES
from stackhound.transform.totals import without_whole

if TYPE_CHECKING:
    from arro3.core import Table

    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers


def keep_samples(profile: Profile, keep: Numbers) -> dict[str, Table]:
    """All tables, with the samples that are to be kept, bool (n_samples,), and what their side tables say of them."""
    tables = dict(profile.tables)
    if keep.all():
        return tables
    tables["samples"] = take_rows(tables["samples"], np.flatnonzero(keep))
    kept = profile.numbers("samples", "id")[keep]
    for name in side_tables(profile):
        rows = np.flatnonzero(np.isin(to_numpy(tables[name]["sample"]), kept))
        tables[name] = take_rows(tables[name], rows)
    return without_whole(tables)


def side_tables(profile: Profile) -> list[str]:
    """The tables that say more about samples, also those of later versions: each has a column ``sample``."""
    return [name for name, table in profile.tables.items() if name not in TABLES and "sample" in table.column_names]
