"""What got slower in a benchmark, recorded and drawn beside the verdict."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from stackhound.cli.main import main
from support_workloads import require

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.ebpf

PROGRAM = """
#include <time.h>
static volatile unsigned long sum;
__attribute__((noinline)) static void parse(void) { for (int i = 0; i < 10000000; i++) sum += i; }
__attribute__((noinline)) static void check(void) { for (int i = 0; i < 10000000 * CHECKS; i++) sum += i; }
__attribute__((noinline)) static void pause_it(void) { nanosleep(&(struct timespec){0, 20000000 * CHECKS}, NULL); }
int main(void) { parse(); check(); pause_it(); return 0; }
"""


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("builds")
    (directory / "work.c").write_text(PROGRAM)
    for name, checks in (("old", 1), ("new", 3)):
        (directory / name).mkdir()
        command = (require("gcc"), "-O1", "-g", f"-DCHECKS={checks}", "work.c", "-o", f"{name}/work")
        subprocess.run(command, cwd=directory, check=True)
    return directory


def content(path: Path) -> dict[str, Any]:
    found = re.search(r'id="profile">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found
    shown: dict[str, Any] = json.loads(found[1])
    return shown


def labels(path: Path) -> dict[str, str]:
    shown = content(path)
    faces, texts = shown["faces"], shown["strings"]
    return {texts[name]: shown["fills"][fill] for name, fill in zip(faces["name"], faces["fill"], strict=True)}


def test_flame_graphs_of_what_regressed_show_where(
    builds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "bench.toml"
    config.write_text('[[benchmark]]\nname = "the work"\ncommand = ["./work"]\nmeasures = ["wall"]\n')
    flames = tmp_path / "flames"
    sides = [str(builds / "old"), str(builds / "new")]
    assert main(["bench", "gate", "--config", str(config), "--time", "60s", "--flame", str(flames), *sides]) in (1, 3)
    on_cpu, off_cpu = labels(flames / "the-work.cpu.html"), labels(flames / "the-work.off-cpu.html")
    assert on_cpu["check"].startswith("more by more than 10%")
    assert not on_cpu["parse"].startswith("more by more than 10%")
    assert off_cpu["pause_it"].startswith("more by more than 10%")
    assert "sh" not in on_cpu
    assert f"note: what changed in the work: {flames}/the-work.cpu.html" in capsys.readouterr().out
