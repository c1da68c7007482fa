"""Requests to block devices: how many, of how many bytes, how long each took, and who asked for it where."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from stackhound.profile.requests import request_totals
from stackhound.profile.schema import USER_ENDS, SampleFlag
from support_devices import control_group, disk_counts, loop_device
from support_profiles import assert_accounted_for, samples_of
from support_recordings import record_whole, recorder, run_stackhound, wait_for
from support_workloads import BUILT, ChildOfShell, Program, build, line_of, require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stackhound import Profile
    from support_profiles import Sample

pytestmark = pytest.mark.ebpf

COUNT: Final = 200
#: By operation: the workload's function that asks for it.
FUNCTIONS: Final = {"read": "read_block", "write": "write_block", "flush": "flush_blocks"}


class Request(NamedTuple):
    sample: Sample
    device: str
    operation: str
    sync: bool
    bytes: int
    duration_ns: int
    queue_ns: int | None
    device_ns: int | None
    failed: bool


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    with loop_device(tmp_path) as path:
        yield path


def requests_of(profile: Profile) -> list[Request]:
    samples = dict(zip(profile.numbers("samples", "id").tolist(), samples_of(profile), strict=True))
    duration_ns = dict(zip(samples, profile.numbers("samples", "duration_ns").tolist(), strict=True))
    columns = ("device", "operation", "sync", "bytes", "queue_ns", "device_ns", "failed")
    rows = zip(*(profile.column("block_io", name) for name in ("sample", *columns)), strict=True)
    return [
        Request(samples[number], device, operation, sync, size, duration_ns[number], *rest)
        for number, device, operation, sync, size, *rest in rows
    ]


def record_requests(device: Path, *sites: str, count: int = COUNT, **options: Any) -> tuple[Profile, dict[str, int]]:
    """The workload, and what it says of itself."""
    options.setdefault("events", ("block-io",))
    with Program(build("requests.c"), device, str(count), *sites) as program:
        profile = record_whole(program, **options)
        truth = program.truth()
    assert_accounted_for(profile)
    return profile, truth


def lost_ends(profile: Profile) -> int:
    """Requests whose end was lost: the kernel may leave out a program while another one comes to its tracepoint."""
    return {loss.cause: loss.count for loss in profile.losses}["request without end"]


def test_every_request_is_a_sample_with_its_device_and_bytes(device: Path) -> None:
    profile, truth = record_requests(device, *FUNCTIONS)
    requests = requests_of(profile)
    assert {one.device for one in requests} == {device.name}
    for operation in FUNCTIONS:
        found = [one for one in requests if one.operation == operation]
        assert truth[operation] - lost_ends(profile) <= len(found) <= truth[operation]
        assert {one.bytes for one in found} == {truth[f"{operation}_bytes"] // truth[operation]}
        assert 0 < sum(one.sample.value for one in found) < truth[f"{operation}_ns"]  # its calls take longer
    assert not any(one.failed for one in requests)


def test_the_kernels_own_counts_are_met_exactly(device: Path) -> None:
    before = disk_counts(device.name)
    profile, _ = record_requests(device, "read", "write")
    counted = disk_counts(device.name) - before
    totals = {one.operation: one for one in request_totals(profile)}
    if lost_ends(profile):
        pytest.skip("somebody else came to the kernel's tracepoints")
    assert (totals["read"].requests, totals["read"].bytes) == (counted.reads, counted.read_bytes)
    assert (totals["write"].requests, totals["write"].bytes) == (counted.writes, counted.write_bytes)


def test_a_stack_leads_to_the_line_that_asked_for_it(device: Path) -> None:
    profile, _ = record_requests(device, *FUNCTIONS)
    for one in requests_of(profile):
        name = FUNCTIONS[one.operation]
        (frame,) = [frame for frame in one.sample.frames if frame.name == name]
        assert frame.file.endswith("requests.c")
        assert frame.line == line_of("requests.c", one.operation)
        assert one.sample.frames[-1].kind in ("kernel", "module")
        assert "main" in one.sample.names


def test_the_time_of_a_request_is_that_in_the_queue_and_on_the_device(device: Path) -> None:
    profile, _ = record_requests(device, "read")
    for one in requests_of(profile):
        assert one.queue_ns is not None
        assert one.device_ns is not None
        assert one.queue_ns + one.device_ns == one.duration_ns == one.sample.value


@pytest.mark.kernel_guest
def test_what_the_kernel_writes_later_is_charged_to_the_writers_control_group(tmp_path: Path) -> None:
    """The thread that submits it is one of the kernel's. Not in /tmp, which may be memory."""
    BUILT.mkdir(parents=True, exist_ok=True)
    path = BUILT / f"written-{os.getpid()}"
    write = f"echo $$ > $0/cgroup.procs && exec dd if=/dev/zero of={path} bs=1M count=8 status=none"
    with control_group("io", "memory") as group:
        try:
            with recorder(events=("block-io",)) as recording:
                subprocess.run(["sh", "-c", write, group], check=True)
                subprocess.run(["sync"], check=True)
        finally:
            path.unlink(missing_ok=True)
    profile = recording.profile
    charged = list(zip(requests_of(profile), profile.texts("block_io", "cgroup"), strict=True))
    bytes_of: Counter[str] = Counter()
    for request, cgroup in charged:
        if request.operation == "write" and request.sample.comm.startswith("kworker"):
            bytes_of[cgroup] += request.bytes
    assert bytes_of[f"/{group.name}"] >= 8 << 20
    profile.save(tmp_path / "w.hound")
    done = run_stackhound("report", tmp_path / "w.hound", "--sort", "charged", "--json")
    assert done.returncode == 0, done.stderr
    sums = {row["charged"]: row["self"] for row in json.loads(done.stdout)["rows"]}
    assert sums[f"/{group.name}"] == sum(one.sample.value for one, cgroup in charged if cgroup == f"/{group.name}")


def test_requests_of_other_processes_are_left_out(device: Path) -> None:
    with Program(build("requests.c"), device, "1000000", "write") as other:
        other.go()
        profile, truth = record_requests(device, "read")
    requests = requests_of(profile)
    assert {one.operation for one in requests} == {"read"}
    assert truth["read"] - lost_ends(profile) <= len(requests) <= truth["read"]
    assert profile.metadata["counters"]["filtered"] > 0


@pytest.mark.parametrize("whose", ["the whole system's", "children's"])
def test_the_same_requests_are_found_among_others(device: Path, whose: str) -> None:
    with ChildOfShell(build("requests.c"), device, str(COUNT), *FUNCTIONS) as program:
        options = {"pids": (program.pid,)} if whose == "children's" else {}
        with recorder(events=("block-io",), **options) as recording:
            program.go()
            program.wait_until_ready()
            program.go()
            truth = program.truth()
    assert_accounted_for(recording.profile)
    requests = [one for one in requests_of(recording.profile) if one.device == device.name]
    assert {one.sample.comm for one in requests} == {"requests"}
    for operation, function in FUNCTIONS.items():
        found = [one for one in requests if one.operation == operation]
        assert truth[operation] - lost_ends(recording.profile) <= len(found) <= truth[operation]
        assert sum(one.bytes for one in found) == len(found) * truth[f"{operation}_bytes"] // truth[operation]
        # the first ones come before the mappings of a new program are known, and say so
        assert all(function in one.sample.names for one in found if is_complete(one.sample))


def is_complete(sample: Sample) -> bool:
    return USER_ENDS[(sample.flags & SampleFlag.USER_END) >> SampleFlag.USER_END_SHIFT] == "complete"


def test_requests_that_kernel_threads_make_are_theirs(device: Path) -> None:
    with Program(build("requests.c"), device, "20", "write", "flush") as program:
        with recorder(events=("block-io",)) as recording:
            program.go()
            program.truth()
        requests = requests_of(recording.profile)
    assert_accounted_for(recording.profile)
    below = [one for one in requests if any(name.startswith(("lo_", "loop_")) for name in one.sample.names)]
    assert below  # a loop device's worker writes the file
    for one in below:
        assert one.device != device.name
        assert one.sample.comm.startswith("kworker")
        assert one.sample.flags & SampleFlag.KERNEL_THREAD
        assert {frame.kind for frame in one.sample.frames} <= {"kernel", "module", "bpf"}


def test_the_report_sums_requests_and_tells_their_latency(device: Path, tmp_path: Path) -> None:
    profile, truth = record_requests(device, "read", "write")
    profile.save(tmp_path / "r.hound")
    done = run_stackhound("report", tmp_path / "r.hound", "--sort", "device,operation", "--json")
    assert done.returncode == 0, done.stderr
    sums = {(row["device"], row["operation"]): row["self"] for row in json.loads(done.stdout)["rows"]}
    assert set(sums) == {(device.name, "read"), (device.name, "write")}
    done = run_stackhound("report", tmp_path / "r.hound", "--latency", "--json")
    assert done.returncode == 0, done.stderr
    for row in json.loads(done.stdout)["rows"]:
        assert truth[row["operation"]] - lost_ends(profile) <= row["count"] <= truth[row["operation"]]
        assert row["bytes"] * truth[row["operation"]] == row["count"] * truth[f"{row['operation']}_bytes"]
        assert (
            0 < row["p50_ns"] <= row["p95_ns"] <= row["p99_ns"] <= row["max_ns"] <= sums[device.name, row["operation"]]
        )


def test_a_command_and_other_events_are_recorded_together(device: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.hound"
    events = ("-e", "cpu,off-cpu,block-io")
    read = ("dd", f"if={device}", "of=/dev/null", "bs=4k", f"count={COUNT}", "iflag=direct")
    done = run_stackhound("record", "--as-root", *events, "-o", out, "--", *read)
    assert done.returncode == 0, done.stderr
    assert any(line.split()[-2:] == [device.name, "read"] for line in done.stderr.decode().splitlines() if line)
    done = run_stackhound("report", out, "--event", "block-io", "--latency", "--sort", "comm,device", "--json")
    document = json.loads(done.stdout)
    (row,) = [row for row in document["rows"] if row["device"] == device.name]
    assert COUNT - document["losses"]["request without end"] <= row["count"] <= COUNT
    assert (row["comm"], row["bytes"]) == ("dd", row["count"] * 4096)


def read_cold_file(path: Path) -> None:
    path.read_bytes()


def test_reading_a_cold_file_shows_what_was_read_ahead(tmp_path: Path) -> None:
    path = tmp_path / "cold"
    size = 8 << 20
    path.write_bytes(os.urandom(size))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with recorder(events=("block-io",), pids=(os.getpid(),), include_self=True) as recording:
        read_cold_file(path)
    profile = recording.profile
    requests = requests_of(profile) if "block_io" in profile.tables else []
    if not requests:
        pytest.skip("the file is on no block device, or its pages stay")
    here = [one for one in requests if any(name.endswith(".read_cold_file") for name in one.sample.names)]
    assert "read ahead" in {one.operation for one in here} <= {"read", "read ahead"}
    assert size <= sum(one.bytes for one in here) < 1.5 * size  # and where the file system keeps it


def test_a_data_base_waits_for_its_flushes(tmp_path: Path) -> None:
    script = (
        "import sqlite3, sys; sys.stdin.readline()\n"
        f"base = sqlite3.connect({str(tmp_path / 'base')!r}, isolation_level=None)\n"
        "base.execute('pragma synchronous = full'); base.execute('create table t (x)')\n"
        "def insert(): base.execute('insert into t values (randomblob(1000))')\n"
        "for _ in range(20): insert()\n"
        "import time; time.sleep(0.3)\n"  # code is read from a program that lives
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    with process, recorder(events=("block-io",), pids=(process.pid,)) as recording:
        process.communicate(b"go\n")
    if "block_io" not in recording.profile.tables:
        pytest.skip("the directory is on no block device")
    requests = requests_of(recording.profile)
    inserts = [one for one in requests if any(name.endswith("insert") for name in one.sample.names)]
    assert inserts
    assert any(one.operation in ("write", "flush") and one.sync for one in inserts)
    assert any("sync" in name for one in inserts for name in one.sample.names)


def test_unpacking_an_archive_shows_who_writes(tmp_path: Path, device: Path) -> None:
    tar, _ = require("tar"), require("zstd")
    tree, mounted = tmp_path / "tree", tmp_path / "mounted"
    for number in range(100):
        part = tree / str(number % 10)
        part.mkdir(parents=True, exist_ok=True)
        (part / str(number)).write_bytes(os.urandom(100_000))
    subprocess.run([tar, "--zstd", "-cf", tmp_path / "a.tar.zst", "-C", tree, "."], check=True)
    nothing_later = ("-E", "lazy_itable_init=0,lazy_journal_init=0")
    subprocess.run([require("mkfs.ext4"), "-q", *nothing_later, device], check=True)
    mounted.mkdir()
    subprocess.run(["mount", device, mounted], check=True)
    try:
        subprocess.run([require("sync")], check=True)
        before = disk_counts(device.name)
        with recorder(events=("block-io",)) as recording:
            subprocess.run([tar, "--zstd", "-xf", tmp_path / "a.tar.zst", "-C", mounted], check=True)
            subprocess.run(["sync"], check=True)  # not os.sync: a recorder leaves itself out
            time.sleep(0.1)  # a request is counted a moment after it has ended
        counted = disk_counts(device.name) - before
    finally:
        subprocess.run(["umount", mounted], check=True)
    assert_accounted_for(recording.profile)
    if lost_ends(recording.profile):
        pytest.skip("somebody else came to the kernel's tracepoints")
    totals = [one for one in request_totals(recording.profile) if one.device == device.name]
    writes = [one for one in totals if one.operation in ("write", "flush")]
    assert sum(one.bytes for one in writes) == counted.write_bytes >= 10_000_000
    assert sum(one.requests for one in writes) == counted.writes
    assert sum(one.bytes for one in totals if one.operation.startswith("read")) == counted.read_bytes


def test_many_requests_share_samples_that_stand_for_all_of_them(device: Path) -> None:
    count = 30_000
    room = 8 << 20  # for all of them: a collector that gets no CPU for a while may not keep up with 150,000 a second
    profile, truth = record_requests(device, "read", count=count, ring_bytes=room)
    (total,) = request_totals(profile)
    assert truth["read"] - lost_ends(profile) <= total.requests <= truth["read"]
    assert total.bytes * truth["read"] == total.requests * truth["read_bytes"]
    stand_for = sum(one.sample.count for one in requests_of(profile))
    assert stand_for == pytest.approx(count, rel=0.05)


def test_requests_under_way_at_the_end_are_told_and_not_lost(device: Path) -> None:
    with Program(build("requests.c"), device, "1000000", "read") as program:
        program.go()
        with recorder(events=("block-io",), pids=(program.pid,)) as recording:
            wait_for(lambda: recording.status().samples > 100, "some requests")
    assert_accounted_for(recording.profile)
    metadata = recording.profile.metadata
    under_way = sum(int(note.split()[0]) for note in metadata["notes"] if "had not ended" in note)
    assert metadata["counters"]["held"] <= under_way + lost_ends(recording.profile)
    assert under_way <= 1  # the program waits for each
