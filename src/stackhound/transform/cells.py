"""Functions of notebook cells, called as the notebook calls the cell."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from stackhound.profile.columns import with_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackhound.profile import Profile


def name_cells(profile: Profile, cells: Mapping[str, str]) -> Profile:
    """Let functions of cells say so: ``In[3].work`` in ``Cell In[3]`` instead of ``4119.work`` in ``/tmp/…/4119.py``.

    Args:
        cells: what the notebook calls the code of a file, by the name that the interpreter has for the file.
    """
    files = profile.texts("functions", "file")
    kinds, objects = profile.texts("objects", "kind"), profile.numbers("functions", "object").tolist()
    rows = [row for row, file in enumerate(files) if file in cells and kinds[objects[row]] in {"python", "task"}]
    if not rows:
        return profile
    names, paths = profile.texts("functions", "name"), profile.texts("objects", "path")
    for row in rows:
        cell = cells[files[row]]
        names[row] = f"{cell}.{names[row].removeprefix(f'{PurePosixPath(files[row]).stem}.')}"
        files[row] = paths[objects[row]] = f"Cell {cell}"
    tables = {
        "functions": with_columns(profile.table("functions"), name=names, file=files),
        "objects": with_columns(profile.table("objects"), path=paths),
    }
    return profile.derive(tables, "name-cells")
