"""``stackhound run`` and what is asked of its profile: a Python script from its start to its lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from support_recordings import run_stackhound

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.ebpf

SCRIPT = """\
import time
import zlib

def spin(until_s):
    total = 0
    while time.thread_time() < until_s:
        for number in range(200):
            total += number * number  # line 8

def pack(until_s):
    data = bytes(1 << 20)
    while time.thread_time() < until_s:
        zlib.crc32(data)  # line 13

spin(time.thread_time() + 1.2)
pack(time.thread_time() + 0.6)
raise SystemExit(7)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a script was run, with its profile."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "script.py").write_text(SCRIPT)
    done = run_stackhound("run", "-F", "499", "script.py", cwd=folder)
    assert done.returncode == 7
    (folder / "summary").write_bytes(done.stderr)
    return folder


def report(folder: Path, *options: str) -> list[dict[str, object]]:
    done = run_stackhound("report", "--json", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, object]] = json.loads(done.stdout)["rows"]
    return rows


def test_the_summary_names_the_scripts_functions_and_the_profile(folder: Path) -> None:
    summary = (folder / "summary").read_text()
    assert "script.spin" in summary
    assert " 0 lost " in summary
    assert "wrote stackhound.hound" in summary


def test_the_time_stands_beside_the_lines_that_took_it(folder: Path) -> None:
    rows = {row["line"]: row for row in report(folder, "--lines", "script.py")}
    total = {line: int(str(row["total"])) for line, row in rows.items()}
    assert rows[8]["text"] == "            total += number * number  # line 8"
    assert total[15] > 1.5 * total[16] > 0
    assert total[6] + total[7] + total[8] > 0.9 * total[15]
    assert total[13] > 0.7 * total[16]
    text = run_stackhound("report", "--lines", "script.py", cwd=folder).stdout.decode()
    assert f"{folder}/script.py: self " in text
    assert "8              total += number * number  # line 8" in text


def test_the_lock_is_held_by_python_code_and_given_away_by_what_releases_it(folder: Path) -> None:
    rows = {str(row["function"]).rpartition(".")[2]: row for row in report(folder, "--gil")}
    held, without = ({name: int(str(row[key])) for name, row in rows.items()} for key in ("held", "without"))
    assert held["spin"] > 0.9 * (held["spin"] + without["spin"])
    assert without["pack"] > 0.5 * (held["pack"] + without["pack"])
    assert rows["spin"]["waiting"] is None
