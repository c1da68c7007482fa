"""A profile as HTML, for notebooks. Every text is escaped: names come from the profiled programs."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from stackhound.profile.escape import printable
from stackhound.profile.facts import cost_and_loss, describe_event

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stackhound.profile.profile import Profile

TOP_ROWS = 10


def profile_html(profile: Profile) -> str:
    """A line about the profile, and its top functions by event."""
    parts = [f"<p><b>stackhound</b>: {_escape(cost_and_loss(profile))}</p>"]
    for event in profile.events:
        parts.append(f"<p>{_escape(describe_event(profile, event))}</p>")
        parts.append(profile.top(TOP_ROWS, event.name)._repr_html_())
    return "".join(parts)


def table_html(headings: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """An HTML table."""
    above = f"<caption>{_escape(caption)}</caption>" if caption else ""
    head = "".join(f"<th>{_escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{_escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{above}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _escape(text: str) -> str:
    return html.escape(printable(text))
