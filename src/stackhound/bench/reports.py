"""A comparison as JSON, as Markdown for a pull request, and as JUnit's XML."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

from stackhound.bench.text import format_number, format_ratio
from stackhound.bench.verdicts import Verdict

if TYPE_CHECKING:
    from stackhound.bench.comparison import Comparison
    from stackhound.bench.statistics import Interval
    from stackhound.bench.verdicts import Finding

COLORS: Final = {Verdict.REGRESSED: "red", Verdict.IMPROVED: "green", Verdict.INCONCLUSIVE: "yellow"}

#: What XML 1.0 cannot have, also not escaped (section 2.2).
_NOT_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def cells_of(finding: Finding) -> tuple[str, str, str, str, str, str, str]:
    """Benchmark, measure, A, B, change, its interval, values a side; the names as they are."""
    unit = finding.measure.unit
    numbers = (format_number(finding.a, unit), format_number(finding.b, unit))
    return (finding.benchmark, finding.measure.name, *numbers, _change(finding), _bounds(finding), str(finding.values))


def as_object(comparison: Comparison) -> dict[str, Any]:
    """For JSON; a ratio that is not finite is null."""
    return {
        "benchmarks": [
            {
                "benchmark": one.benchmark,
                "measure": one.measure._asdict(),
                "a": one.a,
                "b": one.b,
                "ratio": _plain(one.ratio),
                "probability": one.probability,
                "values": one.values,
                "exact": one.exact,
                "verdict": one.verdict.value,
            }
            for one in comparison.findings
        ],
        "controls": [
            {"benchmark": name, "measure": measure, "control": control.value, "ratio": _plain(interval)}
            for (name, measure), (control, interval) in comparison.controls.items()
        ],
        "notes": comparison.notes,
    }


def write_markdown(comparison: Comparison) -> str:
    """A summary, and a table of all that changed or may have."""
    counts = [f"{len(comparison.having(one))} {one.value}" for one in Verdict if comparison.having(one)]
    lines = [f"**Benchmarks: {', '.join(counts)}**", ""]
    shown = [one for one in comparison.findings if one.verdict != Verdict.NOT_WORSE]
    if shown:
        lines += ["| benchmark | measure | A | B | change | interval | verdict |", "|---|---|---:|---:|---:|---|---|"]
        lines += [f"| {' | '.join(map(_escape, (*cells_of(one)[:6], one.verdict.value)))} |" for one in shown]
        lines.append("")
    lines += [f"- {_escape(note)}" for note in comparison.notes]
    return "\n".join(lines).rstrip() + "\n"


def write_junit(comparison: Comparison) -> str:
    """A test case a measure: one that regressed has failed, one that is not clear was skipped."""
    failures, skipped = (len(comparison.having(one)) for one in (Verdict.REGRESSED, Verdict.INCONCLUSIVE))
    attributes = {"tests": str(len(comparison.findings)), "failures": str(failures), "skipped": str(skipped)}
    suite = ET.Element("testsuite", {"name": "stackhound bench", **attributes})
    for one in comparison.findings:
        names = {"classname": one.benchmark, "name": one.measure.name}
        case = ET.SubElement(suite, "testcase", {key: _NOT_IN_XML.sub("?", name) for key, name in names.items()})
        message = f"{one.verdict.value}: {_change(one)} {_bounds(one)}"
        if one.verdict == Verdict.REGRESSED:
            ET.SubElement(case, "failure", {"message": message})
        elif one.verdict == Verdict.INCONCLUSIVE:
            ET.SubElement(case, "skipped", {"message": message})
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _change(finding: Finding) -> str:
    return format_ratio(finding.ratio.value) if math.isfinite(finding.ratio.value) else "from 0"


def _bounds(finding: Finding) -> str:
    if finding.exact:
        return "exact"
    if not math.isfinite(finding.ratio.high):
        return "too few values"
    return f"{format_ratio(finding.ratio.low)} … {format_ratio(finding.ratio.high)}"


def _plain(interval: Interval) -> dict[str, float | None]:
    return {name: one if math.isfinite(one) else None for name, one in interval._asdict().items()}


def _escape(text: str) -> str:
    """As Markdown shows it: no markup, no links, no mentions, no end of the cell."""
    shown = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return re.sub(r"([\\`*_{}\[\]<>()#|~!&@])", r"\\\1", shown)
