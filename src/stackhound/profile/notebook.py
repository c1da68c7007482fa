"""A profile as HTML, for notebooks. Every text is escaped: names come from the profiled programs."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from stackhound.profile.escape import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stackhound.profile.profile import Profile

TOP_ROWS = 10


def profile_html(profile: Profile) -> str:
    """A line about the profile, and its top functions by event."""
    lost = sum(loss.count for loss in profile.losses)
    facts = f"{profile.table('samples').num_rows:,} samples in {profile.duration_ns / 1e9:.1f} s, {lost:,} lost"
    parts = [f"<p><b>stackhound</b>: {facts}</p>"]
    for event in profile.events:
        parts.append(f"<p>{_escape(event.name)} ({_escape(event.unit)})</p>")
        parts.append(profile.top(TOP_ROWS, event.name)._repr_html_())
    return "".join(parts)


def table_html(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table."""
    head = "".join(f"<th>{_escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{_escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _escape(text: str) -> str:
    return html.escape(printable(text))
