"""The command line with real BPF programs on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fixtures.terminal import run_on_terminal
from stackhound.profile import load
from support_recordings import wait_for, wait_until_it_samples
from support_workloads import Program, build

pytestmark = pytest.mark.ebpf

HERE = [sys.executable, "-m", "stackhound"]
SPIN = "while :; do :; done"
#: A shell that works for a while and ends.
WORK = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("SUDO_UID", "SUDO_GID", "SUDO_USER"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(*arguments, status=0, **options):
    done = subprocess.run(
        [*HERE, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120, **options
    )
    assert done.returncode == status, done.stderr
    return done


@pytest.fixture
def spinner():
    """A process that is always on a CPU."""
    with subprocess.Popen(["sh", "-c", SPIN]) as process:
        yield process
        process.kill()


def sampled(profile, column="pid"):
    """The pids (comms, …) of the processes with samples."""
    threads = profile.numbers("samples", "thread")
    processes = profile.numbers("threads", "process")[threads]
    values = profile.table("processes")[column].to_pylist()
    return {values[process] for process in processes.tolist()}


def test_the_whole_machine_is_recorded_and_reported(spinner):
    told = run("record", "-F", "999", "-d", "0.5").stderr
    assert re.search(r"\d+ samples? · \d+ lost.* · [\d.]+ µs each.* · collector [\d.]+% of a CPU, \d+ MB\n", told)
    assert "wrote stackhound.hound (" in told
    profile = load("stackhound.hound")
    assert spinner.pid in sampled(profile)
    assert "sh" in run("report", "--sort", "comm").stdout


def test_only_the_processes_asked_for_are_recorded(spinner):
    run("record", "-F", "999", "-d", "0.5", "-p", spinner.pid)
    assert sampled(load("stackhound.hound")) == {spinner.pid}


def test_a_recording_of_processes_ends_with_the_last_of_them():
    with Program(build("busy.c"), "100") as first, Program(build("busy.c"), "200") as last:
        pids = f"{first.pid},{last.pid}"
        with subprocess.Popen([*HERE, "record", "-F", "999", "-p", pids], stderr=subprocess.DEVNULL) as recording:
            wait_until_it_samples(recording.pid)
            first.go()
            first.truth()
            last.go()
    assert recording.returncode == 0
    assert sampled(load("stackhound.hound")) == {first.pid, last.pid}


def test_a_command_is_recorded_from_its_first_instruction():
    """Its first page faults are in the kernel's exec and in the dynamic loader's start, before any code of its own."""
    run("record", "-e", "page-faults", "-c", "1", "--", "/bin/true")
    profile = load("stackhound.hound")
    assert sampled(profile, "comm") == {"true"}
    assert any(name.startswith("_dl_") or name in {"_start", "dl_main"} for name in profile.frames.name)


def test_children_of_a_command_are_recorded_unless_not_wanted():
    line = ["sh", "-c", f"{WORK}; sh -c '{WORK}'; exit 4"]
    run("record", "-F", "999", "--", *line, status=4)
    followed = sampled(load("stackhound.hound"))
    run("record", "-F", "999", "--no-inherit", "--", *line, status=4)
    alone = sampled(load("stackhound.hound"))
    assert (len(followed), len(alone)) == (2, 1)


def test_a_command_that_is_not_there_is_127_and_leaves_no_file():
    told = run("record", "--", "no-such-program", status=127).stderr
    assert told == "stackhound: cannot run 'no-such-program': No such file or directory: check its spelling and PATH\n"
    assert not list(Path.cwd().iterdir())


def kinds(profile):
    return {profile.frames.kind[frame] for frame in profile.frames.frames.tolist()}


def test_only_the_kernel_or_only_user_space_is_recorded():
    reading = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=300000"]
    run("record", "-F", "999", "--user-only", "--", *reading)
    assert "kernel" not in kinds(load("stackhound.hound"))
    run("record", "-F", "999", "--kernel-only", "--", *reading)
    assert kinds(load("stackhound.hound")) <= {"kernel", "bpf"}


@pytest.mark.usefixtures("spinner")
def test_only_threads_of_one_name_are_recorded():
    shutil.copy("/bin/sh", "spinner-x")
    with subprocess.Popen(["./spinner-x", "-c", SPIN]) as other:
        run("record", "-F", "999", "-d", "0.5", "--comm", "spinner-x")
        other.kill()
    assert sampled(load("stackhound.hound")) == {other.pid}


@pytest.fixture
def cgroup():
    from stackhound.recording.cgroups import cgroup_mount

    mount = cgroup_mount()
    if mount is None:
        pytest.skip("no cgroup v2 here")
    path = mount / f"stackhound-test-{os.getpid()}"
    path.mkdir()
    yield path
    path.rmdir()


def test_only_one_cgroup_is_recorded(spinner, cgroup):
    with subprocess.Popen(["sh", "-c", SPIN]) as inside:
        (cgroup / "cgroup.procs").write_text(str(inside.pid))
        run("record", "-F", "999", "-d", "0.5", "--cgroup", cgroup.name)
        inside.kill()
    assert sampled(load("stackhound.hound")) == {inside.pid}
    assert inside.pid != spinner.pid


def test_a_process_that_is_moved_to_another_cgroup_is_said_to_be_there_and_so_are_its_children(cgroup):
    with subprocess.Popen(["sh", "-c", f"while :; do {WORK}; sh -c '{WORK}'; done"]) as shell:
        recording = subprocess.Popen([*HERE, "record", "-F", "999"], stderr=subprocess.DEVNULL)
        wait_until_it_samples(recording.pid)
        (cgroup / "cgroup.procs").write_text(str(shell.pid))
        time.sleep(1)
        recording.send_signal(signal.SIGINT)
        assert recording.wait(60) == 0
        shell.kill()
    wait_for(lambda: not (cgroup / "cgroup.procs").read_text(), "the last of its children")
    processes = load("stackhound.hound").table("processes")
    pids, parents, cgroups = (processes[name].to_pylist() for name in ("pid", "parent_pid", "cgroup"))
    of_children = [path for path, parent in zip(cgroups, parents, strict=True) if parent == shell.pid]
    assert cgroups[pids.index(shell.pid)] == f"/{cgroup.name}"
    assert of_children[-1] == f"/{cgroup.name}"


def test_the_collector_leaves_itself_out_unless_asked_for(spinner):
    for options in ([], ["--include-self"]):
        line = [*HERE, "record", "-F", "4999", "-d", "0.5", *options]
        with subprocess.Popen(line, stderr=subprocess.DEVNULL) as recording:
            pass
        assert (recording.pid in sampled(load("stackhound.hound"))) == bool(options)
    assert spinner.poll() is None


def test_several_events_are_recorded_at_once_and_each_can_be_shown():
    busy = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); /bin/true; done"  # some hundred page faults each
    told = run("record", "-e", "cpu,page-faults", "-F", "999", "--", "sh", "-c", busy).stderr
    assert "cpu by " in told
    assert "page-faults at 999 Hz: " in told
    assert [event.name for event in load("stackhound.hound").events] == ["cpu", "page-faults"]
    assert re.match(r"(sh|true);.* \d+\n", run("export", "--event", "page-faults", "--format", "folded").stdout)


def test_a_tracepoint_is_recorded_each_time():
    run("record", "-e", "sched:sched_process_exec", "--", "sh", "-c", "/bin/true; /bin/true; :")
    profile = load("stackhound.hound")
    assert profile.events[0].name == "sched:sched_process_exec"
    assert profile.numbers("samples", "count").sum() >= 3  # sh and twice true


def test_hardware_events_that_are_not_here_are_one_line():
    missing = [event for event in json.loads(run("list", "hardware", "--json").stdout) if event["missing"]]
    if not missing:
        pytest.skip("this machine has all hardware counters")
    told = run("record", "-e", missing[0]["name"], "-d", "1", status=1).stderr
    assert told.count("\n") == 1
    assert missing[0]["name"] in told


def test_counted_in_the_kernel_the_sum_is_the_same_as_of_plain_samples(spinner):
    run("record", "-F", "999", "-d", "0.5", "--aggregate", "-p", spinner.pid)
    profile = load("stackhound.hound")
    count = int(profile.numbers("samples", "count").sum())
    assert profile.table("samples").num_rows < count
    assert profile.metadata["counters"]["entries"] >= count


def test_without_lines_there_are_names_but_no_lines(spinner):
    run("record", "-F", "999", "-d", "0.5", "--no-lines", "-p", spinner.pid)
    profile = load("stackhound.hound")
    assert profile.table("samples").num_rows > 0
    assert not profile.numbers("lines", "line").any()


def test_under_sudo_command_and_files_are_the_users(monkeypatch):
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    assert run("record", "--", "id", "-u").stdout == "65534\n"
    assert Path("stackhound.hound").stat().st_uid == 65534


@pytest.fixture
def full_disk(directory):
    """A file system without room for one more byte."""
    path = directory / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", path], check=True)
    (path / "filling").write_bytes(bytes(8192))
    yield path
    subprocess.run(["umount", path], check=True)


@pytest.mark.usefixtures("spinner")
def test_on_a_full_disk_the_recording_is_kept_in_the_temporary_directory(full_disk, directory, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(directory))
    told = run("record", "-F", "999", "-d", "0.5", "-o", full_disk / "x.hound", status=1).stderr
    kept, failed = told.splitlines()
    assert load(kept.removeprefix("stackhound: the recording is kept in ")).table("samples").num_rows > 0
    assert failed.endswith(": no space left on device: free some space, or write to another disk")
    assert [left.name for left in full_disk.iterdir()] == ["filling"]


def test_without_privileges_it_is_one_line_that_names_them():
    script = """
import os, sys
from stackhound.cli import main, record
main.main(["record", "-F", "0"])  # imports what only a failure needs: soon it may lie where we cannot read
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
os.chdir("/tmp")
sys.exit(main.main(["record", "-d", "1", "-o", "/tmp/stackhound-unprivileged.hound"]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (_, line) = done.stderr.splitlines()
    assert "CAP_BPF" in line
    assert "sudo" in line
    assert not Path("/tmp/stackhound-unprivileged.hound").exists()


def test_on_a_terminal_a_line_says_how_it_goes(spinner):
    shown = run_on_terminal("record", "-d", "1.5", "-p", spinner.pid).decode()
    assert re.search(r"\r\x1b\[K[\d.]+ s · \d+ samples? · 0 lost · .* · Ctrl-C ends it", shown)
    last_line = shown.rindex(" lost · ", 0, shown.index("cpu by"))
    assert "\r\x1b[K" in shown[last_line : shown.index("cpu by")]  # taken away before the summary


def test_without_a_terminal_no_such_line_is_written(spinner):
    assert "\r" not in run("record", "-d", "0.5", "-p", spinner.pid).stderr


def test_the_doctor_finds_that_root_can_record_here():
    findings = {one["subject"]: one for one in json.loads(run("doctor", "--json").stdout)}
    assert findings["sampling programs"]["state"] == "ok"
    assert findings["CAP_BPF"]["state"] == "ok"


def test_list_names_software_events_and_tracepoints_of_this_kernel():
    events = {one["name"]: one for one in json.loads(run("list", "--json").stdout)}
    assert events["page-faults"]["missing"] == ""
    assert events["sched:sched_switch"]["missing"] == ""
