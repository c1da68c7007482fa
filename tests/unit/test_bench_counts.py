"""Counts of what commands do: by valgrind, by the machine's counters, and by programs that print them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from stackhound.bench import runner
from stackhound.bench.configuration import Benchmark
from stackhound.bench.runner import run_once
from stackhound.cli.main import main
from stackhound.errors import BenchmarkError
from support_workloads import require

#: PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS: counted on every machine.
PAGE_FAULTS = (1, 2)
PAGE_BYTES = 4096

ITERATIONS = 1000
PROGRAM = """
#include <stdlib.h>
int main(void) {
    void *volatile block;
    for (int i = 0; i < 1000; i++) {
#ifdef INSTRUCTION
        __asm__ volatile("nop");
#endif
        __asm__ volatile("" ::: "memory");
    }
    for (int i = 0; i < 10; i++) {
        block = malloc(100);
        free(block);
    }
#ifdef ALLOCATION
    block = malloc(1);
#endif
    return 0;
}
"""


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    """``plain``, ``instr`` (an instruction a turn more), ``alloc`` (an allocation more): their paths are as long."""
    require("gcc")
    require("valgrind")
    directory = tmp_path_factory.mktemp("builds")
    (directory / "work.c").write_text(PROGRAM)
    for name, flags in (("plain", ()), ("instr", ("-DINSTRUCTION",)), ("alloc", ("-DALLOCATION",))):
        (directory / name).mkdir()
        command = ("gcc", "-O1", *flags, "work.c", "-o", f"{name}/work")
        subprocess.run(command, cwd=directory, check=True)
    return directory


def counted(directory, *measures):
    return run_once(Benchmark("b", ("./work",), measures=measures), directory).benchmarks["b"]


def test_valgrind_counts_each_instruction_and_each_allocation(builds):
    measures = ("callgrind-instructions", "allocations", "allocated")
    plain = counted(builds / "plain", *measures)
    assert plain == counted(builds / "plain", *measures)
    more = counted(builds / "instr", *measures)["callgrind-instructions"][0]
    extra = more - plain["callgrind-instructions"][0]
    assert extra == ITERATIONS
    assert plain["allocations"] == [10]
    assert plain["allocated"] == [1000]


def test_what_children_do_is_counted_too(builds):
    benchmark = Benchmark("b", ("sh", "-c", "./work & ./work; wait"), measures=("allocations",))
    assert run_once(benchmark, builds / "plain").benchmarks["b"]["allocations"][0] >= 20


@pytest.mark.parametrize(("planted", "measure"), [("instr", "callgrind-instructions"), ("alloc", "allocations")])
def test_one_instruction_an_iteration_or_one_allocation_more_fails_the_gate(builds, tmp_path, planted, measure):
    config = tmp_path / "bench.toml"
    config.write_text(
        f'[[benchmark]]\nname = "work"\ncommand = ["./work"]\nwarmups = 0\nmeasures = ["{measure}"]\n'
        f"[measure.{measure}]\nexact = true\n"
    )
    gate = ["bench", "gate", "--config", str(config), "--strict"]
    assert main([*gate, str(builds / "plain"), str(builds / planted)]) == 3
    assert main([*gate, str(builds / "plain"), str(builds / "plain")]) == 0


def test_without_valgrind_it_says_what_to_install(builds, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(BenchmarkError, match=r"there is no valgrind, .*: install it"):
        counted(builds / "plain", "allocations")


def test_the_machines_counters_count_a_command_with_its_children(monkeypatch, tmp_path):
    """By page faults, which every machine counts in the same way as others count instructions."""
    monkeypatch.setattr(runner, "COUNTER", PAGE_FAULTS)
    pages = 20_000
    touch = f"import mmap; m = mmap.mmap(-1, {pages * PAGE_BYTES}); m.madvise(mmap.MADV_NOHUGEPAGE)\n"
    touch += f"for place in range(0, len(m), {PAGE_BYTES}): m[place] = 1"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {touch!r}])"
    alone = count(tmp_path, "pass")
    assert alone < pages <= count(tmp_path, touch) < pages + 2 * alone
    assert pages <= count(tmp_path, child)


def count(directory, code):
    benchmark = Benchmark("b", (sys.executable, "-c", code), measures=("instructions",))
    return run_once(benchmark, directory).benchmarks["b"]["instructions"][0]


def test_a_machine_without_the_counter_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(runner, "COUNTER", (0, 999))
    with pytest.raises(BenchmarkError, match=r"this machine does not count instructions: .*callgrind-instructions"):
        count(tmp_path, "pass")


def test_results_that_a_command_prints_are_read(tmp_path):
    printed = json.dumps({"drain": {"allocations": {"value": 12}}})
    benchmark = Benchmark("b", ("echo", printed), results="-")
    assert run_once(benchmark, tmp_path).benchmarks == {"b/drain": {"allocations": [12.0]}}
    with pytest.raises(BenchmarkError, match="is no JSON"):
        run_once(Benchmark("b", ("echo", "nonsense"), results="-"), tmp_path)
