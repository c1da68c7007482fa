"""What a machine lacks of an event: the event says so in one line, and the others are recorded."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Final

import pytest

import stackhound
from stackhound.recording.catalogue import list_events
from stackhound.recording.events import WHERE_TIME_GOES
from support_recordings import command_line
from support_workloads import HANG_S, require

pytestmark = pytest.mark.ebpf

BTF: Final = Path("/sys/kernel/btf/vmlinux")
#: Computes, sleeps, and starts programs, which fault.
WORK: Final = ("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 0.2; ls / >/dev/null")
#: COMMAND was not, as of env(1).
NOT_STARTED: Final = 125
#: A name in the kernel's BTF, the event that needs it, and how it is told.
NEEDED: Final = [
    pytest.param("in_iowait", "off-cpu", "this kernel has no struct task_struct.in_iowait", id="member"),
    pytest.param("btf_trace_block_rq_complete", "block-io", "this kernel has no block_rq_complete", id="tracepoint"),
]


@pytest.mark.kernel_guest
def test_all_records_what_is_possible_and_lists_the_rest(tmp_path: Path) -> None:
    done, profile = record_on(tmp_path, BTF, "all")
    assert profile is not None, done.stderr
    told = [name for name in WHERE_TIME_GOES if f"note: {name} is not recorded: " in done.stderr]
    assert [event.name for event in profile.events] == [name for name in WHERE_TIME_GOES if name not in told]
    for name in {"cpu", "off-cpu"} - set(told):
        assert has_samples(profile, name), name


@pytest.mark.parametrize(("name", "event", "reason"), NEEDED)
def test_an_event_whose_programs_miss_something_says_so_and_the_others_go_on(
    tmp_path: Path, name: str, event: str, reason: str
) -> None:
    done, profile = record_on(tmp_path, without(tmp_path, name), "cpu,block-io,off-cpu")
    assert profile is not None, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "is not recorded" in line]
    assert line.startswith(f"note: {event} is not recorded: ")
    assert line.endswith(reason)
    assert [one.name for one in profile.events] == [one for one in ("cpu", "block-io", "off-cpu") if one != event]
    assert has_samples(profile, "cpu")


def test_two_events_may_miss_something(tmp_path: Path) -> None:
    lacking = without(tmp_path, "in_iowait", "btf_trace_block_rq_complete")
    done, profile = record_on(tmp_path, lacking, "off-cpu,block-io,cpu")
    assert profile is not None, done.stderr
    assert [one.name for one in profile.events] == ["cpu"]
    assert has_samples(profile, "cpu")
    notes = [line for line in done.stderr.splitlines() if "is not recorded" in line]
    assert [line.split()[1] for line in notes] == ["off-cpu", "block-io"]
    assert notes[0].endswith("task_struct.in_iowait")
    assert notes[1].endswith("block_rq_complete"), "each has its own reason"


@pytest.mark.parametrize(("name", "event", "reason"), NEEDED)
def test_an_event_that_is_alone_and_misses_something_is_an_error_of_one_line(
    tmp_path: Path, name: str, event: str, reason: str
) -> None:
    done, profile = record_on(tmp_path, without(tmp_path, name), event)
    assert profile is None
    assert done.returncode == NOT_STARTED
    (line,) = done.stderr.splitlines()
    assert reason in line


def test_a_counter_that_this_machine_lacks_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    lacking = [event.name for event in list_events() if event.missing and event.kind in {"hardware", "cache"}]
    if not lacking:
        pytest.skip("this machine has every counter")
    done, profile = record_on(tmp_path, BTF, f"{lacking[0]},cpu")
    assert profile is not None, done.stderr
    assert f"note: {lacking[0]} is not recorded: this machine has no event {lacking[0]}" in done.stderr
    assert [one.name for one in profile.events] == ["cpu"]
    assert has_samples(profile, "cpu")
    alone, nothing = record_on(tmp_path, BTF, lacking[0])
    assert (alone.returncode, nothing) == (NOT_STARTED, None)


def has_samples(profile: stackhound.Profile, event: str) -> bool:
    return len(profile.samples_of(profile.event(event)).thread) > 0


def without(directory: Path, *names: str) -> Path:
    """The kernel's BTF, in which these names are others."""
    if not BTF.exists():
        pytest.skip("this kernel has no BTF")
    contents = BTF.read_bytes()
    for name in names:
        text = b"\0" + name.encode() + b"\0"
        if contents.count(text) != 1:
            pytest.skip(f"this kernel has no {name}")
        contents = contents.replace(text, text[:-2] + b"_\0")
    path = directory / "vmlinux"
    path.write_bytes(contents)
    return path


def record_on(
    directory: Path, btf: Path, events: str
) -> tuple[subprocess.CompletedProcess[str], stackhound.Profile | None]:
    """A recording where the kernel's BTF is this file; None where none was written."""
    path = directory / "x.hound"
    path.unlink(missing_ok=True)
    command = command_line("record", "-F", "999", "-e", events, "-o", path, "--", *WORK)
    here = f"mount --bind {shlex.quote(str(btf))} {BTF} && exec {shlex.join(map(str, command))}"
    done = subprocess.run(
        [require("unshare"), "--mount", "sh", "-c", here],
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=HANG_S,
        check=False,
    )
    return done, stackhound.load(path) if path.exists() else None
