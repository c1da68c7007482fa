"""Python's lock: who holds it, on the CPU and off it, and who waits for it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

import pytest

from stackhound.cli.lock import break_down_by_lock
from support_interpreters import find_interpreters
from support_recordings import record_whole
from support_workloads import SOURCES, Program

if TYPE_CHECKING:
    from stackhound.cli.lock import Row

pytestmark = pytest.mark.ebpf

SOURCE: Final = SOURCES / "python_lock.py"
MODULE: Final = "python_lock"
LOCKED: Final = [one for one in find_interpreters() if not one.version.endswith("t")]
#: What of a thread's time off the CPU may be in no function: it begins and ends in others.
UNSURE_US: Final = 20_000


@pytest.fixture(params=LOCKED, ids=str, scope="module")
def recording(request: pytest.FixtureRequest) -> tuple[dict[str, Row], dict[str, int]]:
    """The report by function, and what the workload says."""
    if subprocess.run([request.param.path, "-c", "import ctypes"], capture_output=True, check=False).returncode:
        pytest.skip("its ctypes has no libffi here")
    with Program(request.param.path, SOURCE) as program:
        profile = record_whole(program, events=("cpu", "off-cpu"), frequency_hz=499)
        truth = program.truth()
    rows = break_down_by_lock(profile, None).rows
    return {row.function.removeprefix(f"{MODULE}."): row for row in rows}, truth


@pytest.mark.parametrize("name", ["left", "right"])
def test_who_wants_the_lock_waits_for_it_whenever_off_the_cpu(
    recording: tuple[dict[str, Row], dict[str, int]], name: str
) -> None:
    (row, truth_us) = recording[0][name], recording[1][name]
    assert abs((row.waiting + row.away) / 1000 - truth_us) < 0.12 * truth_us + UNSURE_US  # others have the CPU, too
    assert row.waiting / 1000 > recording[1]["slept"] / 2


def test_who_sleeps_with_the_lock_is_told_from_who_gives_it_away(
    recording: tuple[dict[str, Row], dict[str, int]],
) -> None:
    rows, truth = recording
    assert rows["hogs"].away / 1000 >= truth["slept"] - UNSURE_US
    assert (rows["hogs"].away + rows["hogs"].waiting) / 1000 < 1.05 * truth["hogs"] + UNSURE_US
    assert "naps" not in rows or rows["naps"].away < rows["naps"].waiting < truth["naps"] * 1000


def test_who_fights_for_the_lock_holds_it_while_on_the_cpu(
    recording: tuple[dict[str, Row], dict[str, int]],
) -> None:
    for name in ("left", "right"):
        row = recording[0][name]
        assert row.held > 0.75 * (row.held + row.without)  # it also spends some time on getting it
