"""The notebook, or the IPython session, that this process runs, if it runs one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def find_cells(files: Iterable[str]) -> dict[str, str]:
    """Which of these are cells, no files: what IPython calls them, like ``In[3]``, by the name that code has."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)  # since IPython 7.31
    if name_of is None:
        return {}
    named = {file: name_of(file) for file in set(files)}
    return {file: name[1] for file, name in named.items() if name}
