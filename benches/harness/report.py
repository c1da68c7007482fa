"""What a benchmark found: printed as tables, written as JSON.

A target is reported met or missed and decides nothing. A control that does not come out as it must makes the figures
worthless, and the benchmark fails.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.machine import describe_machine

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True)
class Target:
    what: str
    wanted: str
    got: str
    met: bool


@dataclass(frozen=True)
class Control:
    what: str
    got: str
    passed: bool


@dataclass
class Report:
    """One benchmark's findings."""

    name: str
    settings: dict[str, Any]
    machine: dict[str, Any] = field(default_factory=describe_machine)
    tables: list[dict[str, Any]] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    controls: list[Control] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], data: object) -> None:
        """Print a table; ``data`` is the same in numbers, for the JSON file."""
        self.tables.append({"title": title, "columns": columns, "rows": rows, "data": data})
        print_table(title, columns, rows)

    def target(self, what: str, wanted: str, got: str, met: bool) -> None:
        self.targets.append(Target(what, wanted, got, bool(met)))
        print(f"{'met   ' if met else 'MISSED'}  {what}: {got}, wanted {wanted}")

    def control(self, what: str, got: str, passed: bool) -> None:
        self.controls.append(Control(what, got, bool(passed)))
        print(f"control {'ok' if passed else 'FAILED'}: {what}: {got}")

    def note(self, text: str) -> None:
        self.notes.append(text)
        print(f"note: {text}")

    def finish(self) -> None:
        """Write the file; exit with 1 where a control failed."""
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.name}.json"
        path.write_text(json.dumps(asdict(self), indent=1, default=_plain) + "\n")
        print(f"-> {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}\n", flush=True)
        if not all(control.passed for control in self.controls):
            sys.exit(1)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    print(f"\n{title}")
    for row in (columns, *rows):
        first, *others = (cell.ljust(width) if not place else cell.rjust(width)
                          for place, (cell, width) in enumerate(zip(row, widths, strict=True)))  # fmt: skip
        print("  ".join((first, *others)))


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return float(value)  # type: ignore[arg-type]  # numpy's numbers
