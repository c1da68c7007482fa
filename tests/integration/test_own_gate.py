"""What make bench-gate compares (benches/gate/bench.toml), between made-up sides: equal ones, and with a regression."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from stackhound.cli.main import main
from support_examples import ZIG
from support_workloads import require

CONFIG: Final = Path(__file__).parents[2] / "benches" / "gate" / "bench.toml"

#: In place of crates/core/examples/allocations.rs.
CORE: Final = """
#include <stdio.h>
int main(void) {
    for (int sample = 0; sample < 10000; sample++) {
#ifdef INSTRUCTION
        __asm__ volatile("nop");
#endif
        __asm__ volatile("" ::: "memory");
    }
    printf("{\\"samples\\": {\\"allocations\\": {\\"value\\": %d},", BLOCKS);
    printf(" \\"allocated\\": {\\"value\\": %d}}}", BYTES);
    return 0;
}
"""
#: In place of our programs.
BPF: Final = """
#include <linux/bpf.h>
__attribute__((section("xdp"), used)) int count_down(struct xdp_md *context)
{
    for (unsigned long long turns = TURNS; turns; turns--)
        __asm__ volatile("" : "+r"(turns));
    return XDP_PASS;
}
"""
PLAIN: Final = {"BLOCKS": "537", "BYTES": "80324", "TURNS": "100"}


class Side(Protocol):
    def __call__(self, name: str, programs: bool = False, **definitions: str) -> Path: ...


@pytest.fixture
def side(tmp_path: Path) -> Side:
    """Makes what prepare.sh leaves, with these definitions; without ``programs`` as of a time when there were none."""
    require("gcc")
    require("valgrind")

    def make(name: str, programs: bool = False, **definitions: str) -> Path:
        directory = tmp_path / name
        (directory / "target/gate").mkdir(parents=True)
        write(directory / "crates/core/examples/allocations.rs")
        flags = [f"-D{key}={value}" for key, value in (PLAIN | definitions).items()]
        compile_text(["gcc", "-O1"], CORE, [*flags, "-o", "target/gate/allocations"], directory)
        write(directory / "benches/gate/configured.bpf.c", wanted=programs or name == "new")
        for one in ("programs", "dump", "absent", "names") if programs else ():
            output = ["-c", "-mcpu=v3", "-O2", "-g", "-I/usr/include", f"-I/usr/include/{machine()}-linux-gnu"]
            compile_text(ZIG.split(), BPF, [*output, *flags, "-o", f"target/gate/{one}.bpf.o"], directory)
        return directory

    return make


def write(path: Path, wanted: bool = True) -> None:
    if wanted:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


def machine() -> str:
    return subprocess.run(("uname", "-m"), check=True, capture_output=True, text=True).stdout.strip()


def compile_text(compiler: list[str], text: str, flags: list[str], directory: Path) -> None:
    subprocess.run([*compiler, "-x", "c", "-", *flags], input=text, text=True, cwd=directory, check=True)


def gate(a: Path, b: Path) -> int:
    """As make bench-gate asks, of sides that are made already."""
    text, replaced = re.subn(r"^prepare = .*$", "", CONFIG.read_text(), flags=re.MULTILINE)
    assert replaced == 1
    config = a.parent / "bench.toml"
    config.write_text(text)
    return main(["bench", "gate", "--config", str(config), "--strict", str(a), str(b)])


def test_a_change_that_costs_nothing_passes(side: Side, capsys: pytest.CaptureFixture[str]) -> None:
    assert gate(side("old"), side("new")) == 0
    shown = capsys.readouterr()
    assert shown.err.splitlines()[-1] == "no regression"
    assert [line.split()[0] for line in shown.out.splitlines() if " exact " in line] == [
        "core/samples",
        "core/samples",
        "core-instructions",
    ]


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        ({"BLOCKS": "538"}, "core/samples"),
        ({"BYTES": "80325"}, "core/samples"),
        ({"INSTRUCTION": "1"}, "core-instructions"),
    ],
    ids=["one allocation", "one byte", "one instruction a sample"],
)
def test_the_least_that_the_core_costs_more_fails_the_gate(
    side: Side, planted: dict[str, Any], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gate(side("old"), side("new", **planted)) == 3
    assert capsys.readouterr().err.splitlines()[-1] == f"regression: {told}"


@pytest.mark.ebpf
def test_two_percent_more_for_the_verifier_fail_the_gate(side: Side, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = side("old", programs=True), side("new", programs=True)
    assert gate(old, new) == 0
    capsys.readouterr()
    assert gate(old, side("bad", programs=True, TURNS="102")) == 3
    names = ", ".join(f"{one}/count_down" for one in ("absent", "dump", "names", "programs"))
    assert capsys.readouterr().err.splitlines()[-1] == f"regression: {names}"
