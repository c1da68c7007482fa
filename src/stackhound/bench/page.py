"""The history as a page: one HTML file that opens offline and asks nothing of any network.

<meta http-equiv="Content-Security-Policy" …>    only this file's own script and style, by their hashes
<script type="application/json" id="history">    what is shown:
  [{"benchmark": "parse", "measure": "wall", "branch": "main", "testbed": "ci-3", "scales": [[1000000000, "s"], …],
    "values": [781e6, …], "commits": ["b7cddf3", …], "times": ["2026-11-22T03:00:00+00:00", …],
    "changes": [{"at": 11, "text": "781 ms → 1.20 s, +54%"}]}, …]
<script>…</script>                               uPlot, assets/history.js
"""

from __future__ import annotations

from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any, Final

from stackhound.bench.changes import find_changes
from stackhound.bench.text import describe_change
from stackhound.errors import OutputError
from stackhound.formats.html import embedded, policy, scales
from stackhound.profile.escape import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackhound.bench.history import Series

ASSETS: Final = files("stackhound.bench") / "assets"
#: Written by scripts/uplot.sh, when stackhound is built where there is npm.
UPLOT: Final = ("uPlot.iife.min.js", "uPlot.min.css")


def write_page(found: Sequence[Series]) -> str:
    """A page with a curve a series.

    Raises:
        OutputError: this build of stackhound has no uPlot.
    """
    if not all((ASSETS / name).is_file() for name in UPLOT):
        raise OutputError("this build of stackhound has no uPlot to draw with", "build it where there is npm")
    script, style = (
        _asset(library) + "\n" + _asset(own) for library, own in zip(UPLOT, ("history.js", "history.css"), strict=True)
    )
    return Template(_asset("history.html")).substitute(
        policy=policy(script, style),
        style=style,
        script=script,
        history=embedded([_content(one) for one in found]),
    )


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _content(series: Series) -> dict[str, Any]:
    names = {name: printable(getattr(series, name)) for name in ("benchmark", "measure", "branch", "testbed")}
    known = scales(series.unit)
    return {
        **names,
        "scales": known if series.unit in {"nanoseconds", "bytes"} else [(1, printable(series.unit))],
        "values": series.values,
        "commits": [printable(commit)[:12] for commit in series.commits],
        "times": [printable(time) for time in series.times],
        "changes": [{"at": one.at, "text": describe_change(one, series.unit)} for one in find_changes(series.values)],
    }
