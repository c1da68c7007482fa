"""``%%stackhound`` for IPython and notebooks, after ``%load_ext stackhound``: a cell, recorded, and shown below it."""

from __future__ import annotations

import asyncio
import html
import io
from typing import TYPE_CHECKING, Final

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from stackhound import formats
from stackhound.errors import StackhoundError
from stackhound.profile.facts import cost_and_loss, describe_event, notes
from stackhound.recording import record

if TYPE_CHECKING:
    from argparse import Namespace

    from IPython.core.interactiveshell import InteractiveShell

    from stackhound.profile import Profile

#: Our function and IPython's that run a cell, in Python's names with and without packages and classes.
MAGIC: Final = r"(^|\.)ipython\.(\w+\.)?stackhound$"
RUN_CODE: Final = r"(^|\.)interactiveshell\.(\w+\.)?run_code$"

PICTURE_HEIGHT: Final = "600px"


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add the magic: what ``%load_ext`` calls."""
    shell.register_magics(StackhoundMagics)


@magics_class
class StackhoundMagics(Magics):
    @magic_arguments()
    @argument("-F", "--frequency", type=int, metavar="HZ", help="Samples a second, on each CPU; 99 without it.")
    @argument("-e", "--event", default="cpu", help="What to sample, as in 'stackhound list'; cpu without it.")
    @argument("-o", "--output", metavar="PATH", help="Write the profile, too, the format by its suffix.")
    @argument("-n", "--rows", type=int, default=10, help="So many functions in the table; 10 without it.")
    @argument("-t", "--table", action="store_true", help="Only the table, no flame graph.")
    @argument("-a", "--whole-system", action="store_true", help="The whole machine, not only this process.")
    @argument("--as", dest="variable", metavar="NAME", help="Keep the profile in this variable.")
    @cell_magic
    def stackhound(self, line: str, cell: str) -> None:
        """Record a cell while it runs: this process with all its threads, and its children.

        A notebook shows the flame graph, a terminal the functions with the most time of their own.
        """
        given = parse_argstring(self.stackhound, line)
        if self.shell.should_run_async(cell, transformed_cell=self.shell.transform_cell(cell)) and _in_event_loop():
            raise UsageError(
                "a notebook's magic cannot await: put 'with stackhound.record() as recording:' into the cell"
            )
        try:
            profile = self._record(given, cell)
            if given.output:
                profile.export(given.output)
        except StackhoundError as error:
            raise UsageError(f"stackhound: {error}") from error  # shown as one line
        if given.variable:
            self.shell.user_ns[given.variable] = profile
        display(CellView(profile, given.rows, with_picture=not given.table))

    def _record(self, given: Namespace, cell: str) -> Profile:
        recording = record(frequency_hz=given.frequency, events=[given.event], whole_system=given.whole_system)
        with recording:
            self.shell.run_cell(cell)
        # The magic may itself be called by a cell. What then still has it in its stack prepared the cell, or showed it.
        return recording.profile.without_callers(MAGIC).without_callers(RUN_CODE).ignore(MAGIC)


def _in_event_loop() -> bool:
    """Whether an event loop runs this: a notebook's, where it cannot run another cell of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class CellView:
    """What is shown below a cell."""

    def __init__(self, profile: Profile, rows: int, *, with_picture: bool) -> None:
        self.profile = profile
        self.rows = rows
        self.with_picture = with_picture

    def __repr__(self) -> str:
        if not self._samples:
            return self._summary
        return f"{self._summary}\n{self.profile.top(self.rows)}"

    def _repr_html_(self) -> str:
        summary = f"<p>{html.escape(self._summary)}</p>".replace("\n", "<br>")
        if not self._samples:
            return summary
        shown = self._picture() if self.with_picture else self.profile.top(self.rows)._repr_html_()
        return summary + shown

    @property
    def _samples(self) -> int:
        return self.profile.table("samples").num_rows

    @property
    def _summary(self) -> str:
        event = describe_event(self.profile, self.profile.event())
        said = [event, cost_and_loss(self.profile), *(f"note: {note}" for note in notes(self.profile))]
        if not self._samples:
            said.append("no sample: the cell ended too soon, or slept; -F takes more samples a second")
        return "\n".join(said)

    def _picture(self) -> str:
        """The flame graph in a frame without an origin of its own: it can reach nothing of the notebook."""
        page = io.BytesIO()
        formats.by_name("html").write(self.profile, page)
        source = html.escape(page.getvalue().decode())
        style = f"width:100%;height:{PICTURE_HEIGHT};border:0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{source}"></iframe>'
