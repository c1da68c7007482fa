"""``stackhound bench compare`` and ``gate``: what is shown, written, and returned."""

from __future__ import annotations

import json
import sys
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from stackhound.bench.comparison import Comparison
from stackhound.bench.gate import decide
from stackhound.bench.measures import Measure
from stackhound.bench.reports import write_junit, write_markdown
from stackhound.bench.results import make_results
from stackhound.bench.statistics import Interval
from stackhound.bench.verdicts import Control, Finding, Limits, Verdict
from stackhound.cli.main import main
from stackhound.errors import TooNoisy

HOSTILE = "x|y](http://a) <b>\x1b[31m\x00"
SAME = Interval(1.0, 0.98, 1.02)


def finding(verdict, name="x"):
    return Finding(
        name, Measure("wall", "nanoseconds"), 1e6, 1.1e6, Interval(1.1, 1.05, 1.15), 0.001, 20, False, verdict
    )


def decided(*verdicts, control=Control.STEADY, strict=True):
    key = "x", "wall"
    return decide(Comparison([finding(one) for one in verdicts], {key: (control, SAME)}), Limits(), strict)


def test_each_verdict_has_its_exit_status():
    assert decided(Verdict.NOT_WORSE, Verdict.IMPROVED).status == 0
    assert decided(Verdict.NOT_WORSE, Verdict.REGRESSED, Verdict.INCONCLUSIVE).status == 3
    assert decided(Verdict.INCONCLUSIVE, Verdict.NOT_WORSE).status == 4
    assert decided(Verdict.INCONCLUSIVE, strict=False).status == 0


@pytest.mark.parametrize("strict", [True, False])
def test_a_machine_that_cannot_tell_never_passes(strict):
    with pytest.raises(TooNoisy, match=r"too noisy to tell 3%: wall of 'x' differs by -2\.0% … \+2\.0% from itself"):
        decided(Verdict.INCONCLUSIVE, control=Control.NOISY, strict=strict)
    for verdict in Verdict:
        with pytest.raises(TooNoisy):
            decided(verdict, control=Control.BIASED, strict=strict)


def test_noise_does_not_hide_what_is_clear():
    assert decided(Verdict.REGRESSED, Verdict.INCONCLUSIVE, control=Control.NOISY).status == 3
    assert decided(Verdict.NOT_WORSE, control=Control.NOISY).status == 0


def test_the_summary_has_what_changed_and_nothing_that_a_name_smuggles_in():
    shown = write_markdown(Comparison([finding(Verdict.REGRESSED, HOSTILE), finding(Verdict.NOT_WORSE)]))
    assert shown.startswith("**Benchmarks: 1 not worse, 1 regressed**\n")
    (row,) = [line for line in shown.splitlines() if "regressed |" in line]
    assert row.replace("\\|", "").count("|") == 8
    assert "](" not in shown
    assert "<b>" not in shown
    assert "\x1b" not in shown


def test_junit_counts_failures_and_survives_any_name():
    findings = [finding(one, HOSTILE) for one in (Verdict.REGRESSED, Verdict.INCONCLUSIVE, Verdict.NOT_WORSE)]
    suite = ET.fromstring(write_junit(Comparison(findings)))
    assert suite.attrib == {"name": "stackhound bench", "tests": "3", "failures": "1", "skipped": "1"}
    assert [[child.tag for child in case] for case in suite] == [["failure"], ["skipped"], []]
    assert suite[0][0].attrib["message"] == "regressed: +10% +5.0% … +15%"


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name, values, measure="wall"):
        (tmp_path / name).write_bytes(make_results({"parse": {measure: values}}).to_json())
        return name

    return write


def times(seed, slowdown=1.0):
    return (1e9 * slowdown * np.exp(np.random.default_rng(seed).normal(0, 0.01, 50))).tolist()


def test_a_slower_file_fails_the_gate_and_is_written_for_ci(files, capsys, tmp_path):
    a, b = files("a.json", times(1)), files("b.json", times(2, 1.1))
    assert main(["bench", "gate", a, b, "--junit", "g.xml", "--markdown", "g.md"]) == 3
    shown = capsys.readouterr()
    assert "regressed" in shown.out
    assert shown.err == "regression: parse\n"
    assert ET.parse(tmp_path / "g.xml").getroot().attrib["failures"] == "1"
    assert "parse" in (tmp_path / "g.md").read_text()
    assert main(["bench", "compare", a, b]) == 0


def test_equal_files_pass(files):
    assert main(["bench", "gate", files("a.json", times(1)), files("b.json", times(2)), "--strict"]) == 0


def test_one_instruction_more_fails_the_gate(files):
    a, b = files("a.json", [1000.0], "instructions"), files("b.json", [1001.0], "instructions")
    assert main(["bench", "gate", a, b]) == 3
    assert main(["bench", "gate", a, a, "--strict"]) == 0


def test_a_single_time_a_file_is_not_clear(files, capsys):
    a, b = files("a.json", [1e9]), files("b.json", [2e9])
    assert main(["bench", "gate", a, b, "--strict"]) == 4
    assert "too few values" in capsys.readouterr().out


def test_json_has_ratios_and_null_where_there_is_none(files, capsys):
    a, b = files("a.json", [0.0], "allocations"), files("b.json", [1.0], "allocations")
    assert main(["bench", "compare", a, b, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["benchmarks"]
    assert found["ratio"]["value"] is None
    assert found["verdict"] == "regressed"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["a.json", "true"], "not of one kind"),
        (["true 'x", "true"], "close its quotes"),
        (["true", ""], "a command is empty"),
        (["--tolerance", "3", "--detect", "3", "true", "true"], "leave nothing between them"),
        (["--tolerance", "nan", "true", "true"], "leave nothing between them"),
        (["--config", "none.toml", ".", "."], "cannot read none.toml"),
        (["--time", "never", "true", "true"], "is not a duration"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(arguments, told, files, capsys):
    files("a.json", [1.0])
    assert main(["bench", "gate", *arguments]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["false", "true"], ["true", "/nonexistent/program"]])
def test_a_command_that_fails_never_passes(arguments, capsys):
    assert main(["bench", "gate", *arguments, "--time", "10s"]) == 1
    assert "benchmark 'command'" in capsys.readouterr().err


def test_a_planted_allocation_in_a_build_fails_the_gate(tmp_path):
    """Real runs in two directories: a program that counts what it takes."""
    for name, size in (("old", 1000), ("new", 2000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "app.py").write_text(
            f"import json\nkept = bytes({size})\nsize = len(kept)\n"
            "open('r.json', 'w').write(json.dumps({'drain': {'allocated': {'value': size}}}))\n"
        )
    config = tmp_path / "bench.toml"
    python = json.dumps(sys.executable)
    config.write_text(f'[[benchmark]]\nname = "app"\ncommand = [{python}, "app.py"]\nresults = "r.json"\nwarmups = 0\n')
    sides = [str(tmp_path / "old"), str(tmp_path / "new")]
    assert main(["bench", "gate", "--config", str(config), *sides]) == 3
    assert main(["bench", "gate", "--config", str(config), sides[0], sides[0], "--strict"]) == 0
