"""``stackhound bpf top``: what each program costs, as it happens."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from stackhound.cli.bpf_list import cells_of, owners_of, places_of
from stackhound.cli.examples import ExampleCommand
from stackhound.cli.parameters import parse_duration
from stackhound.cli.verbosity import verbose_option
from stackhound.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stackhound.bpf import Monitor, Program, Rate, Reading

EXAMPLES: Final = (
    ("until Ctrl-C, the most expensive first", "sudo stackhound bpf top"),
    ("once, for a script", "sudo stackhound bpf top -n 1 --json"),
    ("programs of one owner, by runs", "sudo stackhound bpf top cilium --sort runs"),
)
HOME: Final = "\x1b[H"
CLEAR_LINE: Final = "\x1b[K"
CLEAR_BELOW: Final = "\x1b[J"
CLEAR_SCREEN: Final = "\x1b[2J"
WIDTH: Final = 120  # where there is no terminal
LINES_AROUND: Final = 4  # of the screen's: above and below the programs
#: Between two looks at who holds programs and where they are attached, which takes some 4 to 8 ms.
LOOKS_S: Final = 30.0


class Row(NamedTuple):
    """One program in one reading."""

    program: Program
    rate: Rate
    elapsed_ns: int

    @property
    def cpu_percent(self) -> float:
        """Of one CPU."""
        return 100 * self.rate.run_ns / self.elapsed_ns

    @property
    def runs_per_s(self) -> float:
        return 1e9 * self.rate.runs / self.elapsed_ns

    @property
    def skipped_per_s(self) -> float:
        return 1e9 * self.rate.recursion_misses / self.elapsed_ns

    def as_object(self) -> dict[str, object]:
        """What changes from reading to reading, for JSON."""
        if self.rate.is_idle:
            return IDLE
        return {
            "cpu_percent": round(self.cpu_percent, 4),
            "runs": self.rate.runs,
            "runs_per_s": round(self.runs_per_s, 1),
            "ns_per_run": round(self.rate.ns_per_run, 1),
            "skipped": self.rate.recursion_misses,
        }


#: Of a program that did not run.
IDLE: Final[dict[str, object]] = {"cpu_percent": 0.0, "runs": 0, "runs_per_s": 0.0, "ns_per_run": 0.0, "skipped": 0}
#: Columns to sort by: the largest comes first; by name and id the smallest.
SORTS: Final[dict[str, Callable[[Row], float | str]]] = {
    "cpu": lambda row: -row.rate.run_ns,
    "runs": lambda row: -row.rate.runs,
    "ns": lambda row: -row.rate.ns_per_run,
    "skipped": lambda row: -row.rate.recursion_misses,
    "memory": lambda row: -row.program.memory_bytes,
    "id": lambda row: row.program.id,
    "name": lambda row: row.program.name,
}


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.argument("text", metavar="[FILTER]", default="")
@click.option("-i", "--interval", "interval_s", type=parse_duration, default="2s", metavar="TIME", help="[default: 2s]")
@click.option("-n", "--count", type=click.IntRange(min=0), default=0, help="So many readings; 0: until Ctrl-C.")
@click.option("-s", "--sort", type=click.Choice(tuple(SORTS)), default="cpu", help="What comes first.  [default: cpu]")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON a reading.")
@verbose_option
def command(text: str, interval_s: float, count: int, sort: str, as_json: bool) -> None:
    """Show what each BPF program costs; with FILTER, those with it in name, type, place or owner.

    The kernel's statistics are switched on while this runs. What they take of each run is found out with an empty
    program, subtracted, and shown.
    """
    import orjson

    from stackhound.bpf import Monitor

    if interval_s < 0.1:
        raise UsageError("readings that close to each other tell nothing", "use -i 100ms or more")
    is_screen = sys.stdout.isatty() and not as_json
    with Monitor() as monitor:
        top = Top(monitor, text, sort)
        done = 0
        while not count or done < count:
            time.sleep(interval_s)
            done += 1
            reading = monitor.read()
            if as_json:
                click.echo(orjson.dumps(top.as_object(reading)))
            elif is_screen:
                _redraw(list(top.draw(reading, *shutil.get_terminal_size())), first=done == 1)
            else:
                click.echo("\n".join(top.draw(reading, WIDTH, 0)) + "\n")


class Top:
    """What is shown of readings. What does not change is put in words when a program is first seen."""

    def __init__(self, monitor: Monitor, text: str, sort: str) -> None:
        self._monitor = monitor
        self._text = text
        self._sort = sort
        self._known: set[int] = set()
        self._new: set[int] = set()  # of which only they themselves are known
        self._looked_s = -LOOKS_S
        self._programs: dict[int, Program] = {}  # that are shown
        self._objects: dict[int, dict[str, object]] = {}
        self._cpu_ns = time.process_time_ns()

    def rows(self, reading: Reading) -> list[Row]:
        """Programs that are wanted, in order."""
        self._look_at_new(reading.rates.keys() - self._known)
        rates, elapsed_ns = reading.rates, reading.elapsed_ns
        rows = [Row(program, rates[id_], elapsed_ns) for id_, program in self._programs.items() if id_ in rates]
        return sorted(rows, key=SORTS[self._sort])

    def _look_at_new(self, unknown: set[int]) -> None:
        """At once at the programs themselves, now and then at what is around them."""
        from stackhound.bpf import list_programs, list_programs_alone

        now_s = time.monotonic()
        if (unknown or self._new) and now_s >= self._looked_s + LOOKS_S:
            self._looked_s = now_s
            self._known, self._new, self._programs, self._objects = set(), set(), {}, {}
            self._add(list_programs())
        elif unknown:
            self._add(list_programs_alone(sorted(unknown)))
            self._new |= unknown

    def _add(self, programs: list[Program]) -> None:
        """They come in the order of their ids, which sorting keeps where they are equal."""
        self._known |= {one.id for one in programs}
        self._programs |= {one.id: one for one in programs if any(self._text in cell for cell in cells_of(one))}
        self._objects |= {id_: _describe(self._programs[id_]) for id_ in self._programs.keys() - self._objects.keys()}

    def as_object(self, reading: Reading) -> dict[str, object]:
        """For JSON."""
        overhead = self._monitor.overhead
        return {
            "elapsed_ns": reading.elapsed_ns,
            "statistics": {
                "ns_per_run": round(overhead.whole_ns, 1),
                "counted_ns_per_run": round(overhead.counted_ns, 1),
                "cpu_percent": round(100 * reading.statistics_ns / reading.elapsed_ns, 4),
            },
            "own_cpu_percent": round(self._own_percent(reading), 4),
            "programs": [self._objects[row.program.id] | row.as_object() for row in self.rows(reading)],
        }

    def draw(self, reading: Reading, columns: int, lines: int) -> Iterator[str]:
        """As many lines as there is room for; 0: all."""
        rows = self.rows(reading)
        running = sum(row.rate.runs > 0 for row in rows)
        percent = sum(row.cpu_percent for row in rows)
        yield f"{len(rows)} programs, {running} ran: {percent:.2f}% of a CPU in {reading.elapsed_ns / 1e9:.1f} s"
        yield click.style(
            f"{'id':>6}  {'cpu %':>8} {'runs/s':>10} {'ns/run':>8} {'skipped/s':>9} {'memory':>9}  {'type':14}name",
            bold=True,
        )
        for row in rows[: max(1, lines - LINES_AROUND) if lines else None]:
            yield _line(row, columns)
        yield self._costs(reading)

    def _costs(self, reading: Reading) -> str:
        percent = 100 * reading.statistics_ns / reading.elapsed_ns
        each_ns = self._monitor.overhead.whole_ns
        statistics = f"statistics {percent:.2f}% of a CPU ({each_ns:.0f} ns a run, subtracted)"
        return click.style(f"{statistics} · stackhound {self._own_percent(reading):.2f}%", dim=True)

    def _own_percent(self, reading: Reading) -> float:
        """CPU time of this process since the last reading."""
        now_ns = time.process_time_ns()
        used_ns, self._cpu_ns = now_ns - self._cpu_ns, now_ns
        return 100 * used_ns / reading.elapsed_ns


def _describe(program: Program) -> dict[str, object]:
    """For JSON."""
    return {
        "id": program.id,
        "name": program.name,
        "type": program.type,
        "memory_bytes": program.memory_bytes,
        "attachments": [one.place for one in program.attachments],
        "owners": [one._asdict() for one in program.owners],
    }


def _line(row: Row, columns: int) -> str:
    from stackhound.profile.escape import printable
    from stackhound.profile.units import format_value

    program = row.program
    memory = format_value(program.memory_bytes, "bytes")
    numbers = f"{row.cpu_percent:8.3f} {row.runs_per_s:10,.0f} {row.rate.ns_per_run:8,.0f} {row.skipped_per_s:9,.0f}"
    said = " · ".join(part for part in (program.name, places_of(program), owners_of(program)) if part)
    return printable(f"{program.id:6}  {numbers} {memory:>9}  {program.type:14}{said}")[:columns]


def _redraw(lines: list[str], *, first: bool) -> None:
    """Over the old lines, which do not flicker so."""
    start = CLEAR_SCREEN + HOME if first else HOME
    sys.stdout.write(start + "".join(f"{line}{CLEAR_LINE}\n" for line in lines) + CLEAR_BELOW)
    sys.stdout.flush()
