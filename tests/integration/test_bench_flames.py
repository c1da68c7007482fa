"""What got slower in a benchmark, recorded and drawn beside the verdict."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from stackhound.bench.comparison import Comparison, Side
from stackhound.bench.configuration import Benchmark
from stackhound.bench.flames import write_flames
from stackhound.bench.measures import known_measure
from stackhound.bench.statistics import Interval
from stackhound.bench.verdicts import Finding, Verdict
from support_workloads import require

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.ebpf

#: By the clock: how long a loop takes that adds to memory, differs by half from one process to the next.
PROGRAM = """
#include <time.h>
static long used_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * 1000000000L + used.tv_nsec;
}
static void spin(long until_ns) { while (used_ns() < until_ns) for (volatile int i = 0; i < 10000; i++) {} }
__attribute__((noinline)) static int parse(void) { spin(used_ns() + 20000000); return 1; }
__attribute__((noinline)) static int check(void) { spin(used_ns() + 20000000 * CHECKS); return 1; }
__attribute__((noinline)) static int pause_it(void)
{
    return nanosleep(&(struct timespec){0, 20000000 * CHECKS}, NULL) + 1;
}
int main(void) { return parse() + check() + pause_it() - 3; }
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


def regressed(name: str) -> Comparison:
    """A verdict, which a busy machine may take its time for."""
    ratio = Interval(2.0, 1.9, 2.1)
    return Comparison([Finding(name, known_measure("wall"), 1e8, 2e8, ratio, 0.0, 10, False, Verdict.REGRESSED)])


def test_flame_graphs_of_what_regressed_show_where(builds: Path, tmp_path: Path) -> None:
    benchmark = Benchmark("the work", ("./work",))
    a, b = Side(builds / "old", (benchmark,)), Side(builds / "new", (benchmark,))
    told = list(write_flames(regressed("the work"), a, b, tmp_path / "flames", lambda _: None))
    on_cpu, off_cpu = (tmp_path / "flames" / f"the-work.{event}.html" for event in ("cpu", "off-cpu"))
    assert told == [f"what changed in the work: {path}" for path in (on_cpu, off_cpu)]
    assert labels(on_cpu)["check"].startswith("more by more than 10%")
    assert not labels(on_cpu)["parse"].startswith("more by more than 10%")
    assert labels(off_cpu)["pause_it"].startswith("more by more than 10%")
    assert "sh" not in labels(on_cpu)


def test_what_cannot_be_recorded_has_a_line_instead(tmp_path: Path) -> None:
    inside = Benchmark("filter", bpf="x.o", program="p")
    broken = Benchmark("broken", ("false",))
    for benchmark, reason in ((inside, "it runs inside the kernel"), (broken, "'false' failed with exit status 1")):
        side = Side(tmp_path, (benchmark,))
        (told,) = write_flames(regressed(benchmark.name), side, side, tmp_path / "flames", lambda _: None)
        assert told.startswith(f"no flame graph of {benchmark.name}: ")
        assert reason in told
    assert not (tmp_path / "flames").exists()


def test_nothing_that_regressed_is_nothing_to_draw(tmp_path: Path) -> None:
    side = Side(tmp_path, ())
    told = list(write_flames(Comparison([]), side, side, tmp_path / "flames", lambda _: None))
    assert told == ["nothing has regressed: there is no flame graph"]
