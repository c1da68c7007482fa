"""Commands that are run beside a measurement: to their end, or to the end of their time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from stackhound.bpf.commands import keep_running, run_command
from stackhound.errors import RecordingError, UsageError

HOUR_S = 3600.0


def test_a_command_is_run_again_and_again_in_its_directory(tmp_path):
    keep_running(("sh", "-c", "echo x >> runs"), tmp_path, HOUR_S)(0.2)
    assert len((tmp_path / "runs").read_text().splitlines()) > 1


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    script = "sleep 3600 & echo $$ $! > pids; wait"
    with pytest.raises(RecordingError, match=r"pids; wait' still ran after 0\.5 s"):
        keep_running(("sh", "-c", script), tmp_path, 0.5)(0.01)
    expect_gone(tmp_path / "pids")


def test_what_a_command_leaves_behind_ends_with_it(tmp_path):
    ended = run_command(("sh", "-c", "sleep 3600 & echo $! > pids"), tmp_path, HOUR_S)
    assert ended.status == 0
    expect_gone(tmp_path / "pids")


def expect_gone(path: Path) -> None:
    """A process that was killed may take a moment."""
    pids = list(map(int, path.read_text().split()))
    assert pids
    while any(is_running(pid) for pid in pids):
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("sh", "-c", "echo first >&2; echo no wire >&2; exit 3"), "exited with 3: no wire"),
        (("false",), "'false' exited with 1"),
        (("sh", "-c", "kill -9 $$"), "exited with -9"),
        (("/no/such/program",), "cannot run '/no/such/program'"),
    ],
)
def test_a_command_that_fails_is_told_with_what_it_said(command, told, tmp_path):
    with pytest.raises(UsageError, match=told):
        keep_running(command, tmp_path, HOUR_S)(0.01)


def test_nothing_is_left_open(tmp_path):
    before = os.listdir("/proc/self/fd")  # noqa: PTH208 - pathlib opens more
    run_command(("true",), tmp_path, HOUR_S)
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208
