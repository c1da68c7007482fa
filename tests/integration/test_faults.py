"""Targets that pull the rug, recorders that are ended: no crash, no hang, nothing left behind, nothing passed on."""

from __future__ import annotations

import gc
import os
import shlex
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest

import stackhound
from support_bpf import bpf_ids, descriptors, lives
from support_profiles import (
    assert_accounted_for,
    assert_every_miss_has_one_reason,
    count,
    misses,
    samples_of,
    where,
)
from support_recordings import (
    command_line,
    record_some,
    record_whole,
    recorder,
    run_stackhound,
    wait_for,
    wait_for_samples,
    wait_for_work,
    wait_until_it_samples,
)
from support_workloads import FOR_EVER, HANG_S, LIBRARY, Program, build, require

pytestmark = pytest.mark.ebpf


# Targets


@pytest.fixture
def plugins(tmp_path: Path) -> list[Path]:
    """Two libraries that may be harmed, with their only function at the same place."""
    return [
        Path(shutil.copy(build("plugin.c", *LIBRARY, f"-DWORK={name}_work"), tmp_path / f"{name}.so"))
        for name in ("first", "second")
    ]


def test_libraries_that_take_turns_at_one_address_are_told_apart(plugins: list[Path]) -> None:
    work = [f"{plugin}:{plugin.stem}_work" for plugin in plugins]
    with Program(build("loader.c", "-ldl"), "5", *work) as program:
        profile = record_some(1000, program, frequency_hz=1999)
    samples = samples_of(profile)
    assert_every_miss_has_one_reason(profile)
    for plugin in plugins:
        inside = where(samples, lambda sample, path=str(plugin): path in {frame.path for frame in sample.frames})
        functions = {frame.name for sample in inside for frame in sample.frames if frame.path == str(plugin)}
        assert f"{plugin.stem}_work" in functions
        assert not functions & {"first_work", "second_work"} - {f"{plugin.stem}_work"}
    worked = count(samples, "first_work") + count(samples, "second_work")
    assert worked > 0.7 * count(samples), misses(samples)


@pytest.mark.parametrize("harm", ["truncate", "delete", "overwrite"])
def test_a_library_that_is_harmed_while_it_is_recorded_costs_names_at_most(plugins: list[Path], harm: str) -> None:
    victim, other = plugins
    harms = {
        "truncate": lambda: os.truncate(victim, 0),
        "delete": victim.unlink,
        "overwrite": lambda: victim.write_bytes(os.urandom(victim.stat().st_size)),
    }
    with (
        Program(build("loader.c", "-ldl"), FOR_EVER, f"{victim}:first_work") as program,
        recorder(pids=(program.pid,), frequency_hz=999) as recording,
    ):
        program.go()
        wait_for_samples(recording, 50)
        harms[harm]()
        program.end()  # unless it died of it
        with Program(build("loader.c", "-ldl"), FOR_EVER, f"{other}:second_work") as survivor:
            recording._session.add_pid(survivor.pid)
            survivor.go()
            wait_for_work(survivor.pid, 0.1)
    assert_accounted_for(recording.profile)
    assert_every_miss_has_one_reason(recording.profile)
    samples = samples_of(recording.profile)
    assert count(samples, "second_work") > 0
    reasons = {reason for (path, reason), _ in misses(samples).items() if path == str(victim)}
    if harm == "delete":
        assert count(samples, "first_work") > 0
        assert not reasons
    else:
        assert len(reasons) == 1, reasons


def test_a_program_that_unmaps_and_maps_its_code_is_recorded() -> None:
    library = build("plugin.c", *LIBRARY, "-DWORK=quick_work")
    with Program(build("loader.c", "-ldl"), "0", f"{library}:quick_work") as program:
        profile = record_some(500, program, frequency_hz=4999)
    assert_accounted_for(profile)
    assert_every_miss_has_one_reason(profile)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_process_with_60000_mappings_stops_nothing(when: str) -> None:
    with Program(build("mappings.c"), "60000", when, "100") as program:
        profile = record_whole(program, frequency_hz=999)
    assert_accounted_for(profile)
    assert profile.metadata["counters"]["lost_ring_full"] == 0, "the recorder had no time for samples"
    samples = samples_of(profile)
    assert count(samples, "work_among_mappings") > 0
    assert_every_miss_has_one_reason(profile)


def test_a_program_that_replaces_itself_again_and_again_is_recorded() -> None:
    script = "echo ready; read go; i=0; while [ $i -lt 300 ]; do sh -c 'exec sh -c true'; i=$((i+1)); done"
    with Program("sh", "-c", script) as program, recorder(pids=(program.pid,), frequency_hz=1999) as recording:
        program.go()
        wait_for(lambda: recording.wait(0) == "targets-exited", "the end of the workload")
    assert_accounted_for(recording.profile)
    assert_every_miss_has_one_reason(recording.profile)
    assert count(samples_of(recording.profile)) > 0


# Hostile names

HOSTILE_COMM = b"a;b\x1b[2J<i>\xff\n"
HOSTILE_SYMBOL = "evil;\x1b[31m<script>alert(1)</script>\u202e\n".encode()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a program whose name and whose only busy function are traps."""
    directory = tmp_path_factory.mktemp("hostile")
    program = directory / "hostile"
    rename = b"hostile_work=" + HOSTILE_SYMBOL
    options = ("--strip-debug", "--redefine-sym", rename)
    subprocess.run([require("objcopy"), *options, build("hostile.c"), program], check=True)
    with Program(program, os.fsdecode(HOSTILE_COMM)) as running:
        record_some(100, running, frequency_hz=999).save(directory / "hostile.hound")
    return directory / "hostile.hound"


def test_a_symbol_that_is_no_utf8_is_shown_as_far_as_it_is(tmp_path: Path) -> None:
    program = tmp_path / "busy"
    options = ("--strip-debug", "--redefine-sym", b"main=ma\xffin")
    subprocess.run([require("objcopy"), *options, build("busy.c"), program], check=True)
    with Program(program, FOR_EVER) as running:
        samples = samples_of(record_some(100, running, frequency_hz=999))
    for name in ("churn", "ma\N{REPLACEMENT CHARACTER}in"):
        assert count(samples, name) > 0.9 * count(samples), misses(samples)
    assert not [reason for (path, reason) in misses(samples) if path == str(program)]


def test_hostile_names_are_kept_as_they_are_in_the_profile(hostile: Path) -> None:
    samples = samples_of(stackhound.load(hostile))
    assert {sample.comm for sample in samples} == {HOSTILE_COMM.decode(errors="replace")}
    assert count(samples, HOSTILE_SYMBOL.decode(errors="replace")) > 0.9 * count(samples)


def output_of(*arguments: str | Path) -> str:
    """What the command line prints; never an escape."""
    result = run_stackhound(*arguments)
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"\x1b" not in result.stdout
    text = result.stdout.decode()
    assert "evil" in text
    return text


@pytest.mark.parametrize("options", [(), ("--sort", "comm,symbol,object"), ("--json",)], ids=" ".join)
def test_hostile_names_are_escaped_in_a_report(hostile: Path, options: tuple[str, ...]) -> None:
    assert "\u202e" not in output_of("report", hostile, *options)


@pytest.mark.parametrize("format_name", ["folded", "counted", "text", "jsonl", "speedscope", "svg", "html"])
def test_hostile_names_are_escaped_in_every_format(hostile: Path, format_name: str) -> None:
    text = output_of("export", hostile, "--format", format_name, "-o", "-")
    if format_name in ("svg", "html"):
        assert "<script>alert" not in text
        assert "<i>" not in text
    if format_name in ("folded", "counted", "text"):
        assert "\u202e" not in text


def test_a_hostile_name_stays_one_frame_of_a_folded_line(hostile: Path) -> None:
    lines = output_of("export", hostile, "--format", "folded", "-o", "-").splitlines()
    for line in lines:
        stack, _, value = line.rpartition(" ")
        assert value.isdecimal()
        frames = stack.split(";")
        assert frames[0].startswith("a")
        assert "b" in frames[0]
        assert sum("evil" in frame for frame in frames) == ("evil" in line)


def test_a_hostile_name_is_harmless_in_what_record_and_stream_say(tmp_path: Path, hostile: Path) -> None:
    program = hostile.with_name("hostile")
    with Program(program, os.fsdecode(HOSTILE_COMM)) as running:
        running.go()
        result = run_stackhound("record", "-F", "999", "-d", "0.5", "-p", str(running.pid), "-o", tmp_path / "x.hound")
        assert result.returncode == 0
        assert b"evil" in result.stderr
        assert b"\x1b" not in result.stderr
        streamed = first_bytes_of_a_stream(running.pid, 20_000)
    assert b"evil" in streamed
    assert b"\x1b" not in streamed


def first_bytes_of_a_stream(pid: int, wanted: int) -> bytes:
    command = command_line("stream", "-f", "999", "-p", str(pid))
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        watchdog = threading.Timer(HANG_S, process.kill)
        watchdog.start()
        assert process.stdout
        found = process.stdout.read(wanted)
        process.send_signal(signal.SIGINT)
        found += process.stdout.read()
        watchdog.cancel()
    return found


def test_on_a_kernel_without_btf_it_is_one_line_that_says_so(tmp_path: Path) -> None:
    recorder_alone = shlex.join(str(word) for word in command_line("record", "-d", "1"))
    hidden = f"mount -t tmpfs none /sys/kernel/btf && exec {recorder_alone}"
    command = [require("unshare"), "--mount", "sh", "-c", hidden]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=HANG_S, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "this kernel has no BTF" in line
    assert "CONFIG_DEBUG_INFO_BTF=y" in line
    assert not list(tmp_path.iterdir())


# The end of a recorder


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_recording_and_writes_it(tmp_path: Path, ending: signal.Signals) -> None:
    path = tmp_path / "x.hound"
    with Program(build("busy.c"), FOR_EVER) as program:
        program.go()
        command = command_line("record", "-F", "999", "-p", str(program.pid), "-o", path)
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            wait_until_it_samples(process.pid)
            wait_for_work(program.pid, 0.2)
            process.send_signal(ending)
            _, said = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, said
    assert f"wrote {path} (" in said.decode()
    assert count(samples_of(stackhound.load(path)), "churn") > 50


def test_a_recorder_that_is_killed_leaves_no_program_map_or_link_behind(tmp_path: Path) -> None:
    with Program(build("busy.c"), FOR_EVER) as program:
        program.go()
        for options in (("--aggregate",), ("-e", "cpu,sched:sched_switch"), ()):
            command = command_line("record", *options, "-p", str(program.pid), "-o", tmp_path / "x.hound")
            with subprocess.Popen(command) as process:
                wait_until_it_samples(process.pid)
                ids = bpf_ids(process.pid)
                assert {kind for kind, _ in ids} == {"prog_id", "map_id", "link_id"}
                assert all(map(lives, ids))
                process.kill()
            wait_for(lambda ids=ids: not any(map(lives, ids)), "the kernel to free what the recorder had")
    assert list(tmp_path.iterdir()) == [], "not even a half-written file"


def test_recordings_in_one_process_leave_its_descriptors_and_threads_as_they_were() -> None:
    with Program(build("shares.c"), FOR_EVER) as program:
        program.go()
        record_some(20, program, frequency_hz=999)  # what is only made once
        before, threads = stable_descriptors(), thread_count()
        for turn in range(10):
            with recorder(pids=(program.pid,), frequency_hz=9999, aggregate=turn % 5 == 0):
                pass
        assert stable_descriptors() == before
        wait_for(lambda: thread_count() <= threads, "threads to end")


def thread_count() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def stable_descriptors() -> list[str]:
    gc.collect()
    return [name for name in descriptors() if not name.startswith("/proc/")]
