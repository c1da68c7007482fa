"""A tar that unpacks an archive, recorded in one go: time on the CPU, sleeps, requests to the disk, page faults.

The archive is on a device of its own and in no cache; the compressor is one with known functions. What is seen of it
goes down to the source line and the instruction, in the terminal and in the Firefox Profiler's own code.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pytest

from fixtures.front_end import open_in_front_end, serving
from stackhound import load
from stackhound.profile.totals import exact_totals
from stackhound.server.firefox import make_server
from support_devices import loop_device
from support_kernels import needs
from support_profiles import assert_accounted_for, samples_of, where
from support_recordings import run_stackhound
from support_workloads import build, line_of, require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fixtures.front_end import FrontEnd
    from stackhound import Profile
    from stackhound.server.local import LocalServer
    from support_profiles import Sample

pytestmark = pytest.mark.ebpf

EVENTS: Final = ("cpu", "off-cpu", "block-io", "major-faults", "minor-faults")
HZ: Final = 999
FILES: Final = 20
RUNS: Final = 100_000  # of bytes, in each
PAGE_BYTES: Final = 4096


class Unpacking(NamedTuple):
    """The recording, and what is known of it otherwise."""

    path: Path
    profile: Profile
    archive: Path
    archive_bytes: int
    device: str
    check_ns: int

    def samples(self, event: str, comm: str) -> dict[int, Sample]:
        """By their ids."""
        rows = zip(self.profile.numbers("samples", "id").tolist(), samples_of(self.profile), strict=True)
        return {number: one for number, one in rows if (one.event, one.comm) == (event, comm)}

    def sides(self, table: str, *columns: str) -> dict[int, tuple[Any, ...]]:
        """What a side table says, by the ids of samples."""
        rows = zip(*(self.profile.column(table, name) for name in ("sample", *columns)), strict=True)
        return {number: tuple(rest) for number, *rest in rows}


def make_tree(tree: Path) -> None:
    """Files of short runs of bytes."""
    random = np.random.default_rng(1)
    tree.mkdir()
    for number in range(FILES):
        values, lengths = random.integers(0, 256, RUNS, np.uint8), random.integers(1, 8, RUNS)
        (tree / str(number)).write_bytes(np.repeat(values, lengths).tobytes())


@pytest.fixture(scope="module")
def unpacking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unpacking]:
    for name in ("task storage", "bpf_get_attach_cookie"):
        needs(name)
    tar, mount = require("tar"), require("mount")
    directory = tmp_path_factory.mktemp("unpacking")
    tree, mounted = directory / "tree", directory / "mounted"
    make_tree(tree)
    mounted.mkdir()
    with loop_device(directory) as device:
        subprocess.run([require("mkfs.ext4"), "-q", device], check=True)
        subprocess.run([mount, device, mounted], check=True)
        try:
            archive, compressor = mounted / "tree.tar", build("squeeze.c")
            subprocess.run([tar, "-I", compressor, "-cf", archive, "-C", tree, "."], check=True)
            size = archive.stat().st_size
            subprocess.run(["umount", mounted], check=True)  # nothing of it stays in the page cache
            subprocess.run([mount, device, mounted], check=True)
            path = directory / "unpacking.hound"
            how = ("record", "--as-root", "-F", str(HZ), "-e", ",".join(EVENTS), "-o", path, "--")
            done = run_stackhound(*how, tar, "-I", compressor, "-xf", archive, "-C", mounted)
            assert done.returncode == 0, done.stderr
            for number in range(FILES):
                assert (mounted / str(number)).read_bytes() == (tree / str(number)).read_bytes()
        finally:
            subprocess.run(["umount", mounted], check=True)
        (told,) = (line for line in done.stderr.decode().splitlines() if line.startswith("check_ns "))
        yield Unpacking(path, load(path), archive, size, device.name, int(told.split()[1]))


def test_every_event_is_there_and_every_sample_accounted_for(unpacking: Unpacking) -> None:
    assert [event.name for event in unpacking.profile.events] == list(EVENTS)
    assert_accounted_for(unpacking.profile)


def test_time_on_the_cpu_is_found_by_function(unpacking: Unpacking) -> None:
    samples = where(unpacking.samples("cpu", "squeeze").values(), lambda one: "check" in one.names)
    assert sum(one.value for one in samples) == pytest.approx(unpacking.check_ns, rel=0.2)
    stirring = Counter(one.frames[-1].line for one in samples if one.leaf == "stir")
    assert abs(stirring.most_common(1)[0][0] - line_of("squeeze.c", "stir")) <= 1  # the loop, or what is in it


def test_sleeps_tell_what_they_are_for(unpacking: Unpacking) -> None:
    said = unpacking.sides("off_cpu", "state", "reason")
    reading = [one for number, one in unpacking.samples("off-cpu", "tar").items() if said[number][1] == "pipe"]
    # tar has little to do itself: it waits for what the compressor writes
    assert sum(one.value for one in reading) > 0.5 * unpacking.check_ns
    asleep = unpacking.samples("off-cpu", "squeeze")
    of_disk = [one for number, one in asleep.items() if said[number] == ("disk", "disk")]
    assert of_disk
    assert all("unsqueeze" in one.names for one in of_disk if "main" in one.names)


def test_requests_have_their_latency_and_the_stack_that_made_them(unpacking: Unpacking) -> None:
    said = unpacking.sides("block_io", "device", "operation", "bytes", "queue_ns", "device_ns")
    requests = unpacking.samples("block-io", "squeeze")
    own = {number: one for number, one in requests.items() if said[number][0] == unpacking.device}
    assert {said[number][1] for number in own} <= {"read", "read ahead"}
    lost = {loss.cause: loss.count for loss in unpacking.profile.losses}["request without end"]
    pages = sum(said[number][2] * one.count for number, one in own.items()) / PAGE_BYTES
    assert pages == pytest.approx(unpacking.archive_bytes / PAGE_BYTES, rel=0.05, abs=lost)
    durations = dict(zip(*(unpacking.profile.numbers("samples", name).tolist() for name in ("id", "duration_ns")),
                         strict=True))  # fmt: skip
    for number, one in own.items():
        queue_ns, device_ns = said[number][3:]
        assert 0 < queue_ns + device_ns == durations[number]
        assert {"expand", "unsqueeze"} & set(one.names)
        assert one.frames[-1].kind in ("kernel", "module")


def test_faults_have_the_file_and_the_function_that_touched_it(unpacking: Unpacking) -> None:
    faults = unpacking.samples("major-faults", "squeeze")
    (event,) = (event for event in unpacking.profile.events if event.name == "major-faults")
    pages = unpacking.archive_bytes / PAGE_BYTES
    (pid,) = {one.pid for one in faults.values()}
    assert exact_totals(unpacking.profile, event)[pid] >= 0.95 * pages
    paths = unpacking.profile.texts("objects", "path")
    said = unpacking.sides("faults", "object", "offset")
    of_archive = {number: one for number, one in faults.items() if "unsqueeze" in one.names}
    assert sum(one.value for one in of_archive.values()) == pytest.approx(pages, rel=0.3)
    known = [said[number] for number in of_archive if number in said]
    assert {paths[at] for at, _ in known} <= {str(unpacking.archive), "(unknown)"}
    assert all(offset < unpacking.archive_bytes for _, offset in known)


def test_one_page_says_where_the_wall_time_went(unpacking: Unpacking) -> None:
    done = run_stackhound("report", unpacking.path, "--why", "squeeze", "--json")
    assert done.returncode == 0, done.stderr
    places = {row["place"]: row for row in json.loads(done.stdout)["places"]}
    assert places["user code"]["ns"] > 0.8 * unpacking.check_ns
    assert places["disk"]["ns"] > 0
    assert any("expand" in stack["frames"] for stack in places["disk"]["stacks"])


def thread_of(front_end: FrontEnd, name: str) -> str:
    """The handle of the thread with this name that used the CPU most, which is chosen, too."""
    processes = front_end.ask("profile", "info", "--all")["processes"]
    threads = [thread for process in processes for thread in process["threads"] if thread["name"] == name]
    handle: str = max(threads, key=lambda thread: thread["cpuMs"])["threadHandle"]
    assert front_end.run("thread", "select", handle).returncode == 0
    return handle


@pytest.fixture(scope="module")
def server(unpacking: Unpacking) -> Iterator[LocalServer]:
    with serving(make_server(unpacking.profile)) as server:
        yield server


@pytest.fixture(scope="module")
def front_end(server: LocalServer) -> Iterator[FrontEnd]:
    with open_in_front_end(server.profile_url) as front_end:
        yield front_end


def test_the_front_end_shows_requests_sleeps_and_faults_with_their_stacks(
    unpacking: Unpacking, front_end: FrontEnd
) -> None:
    thread = thread_of(front_end, "squeeze")
    markers = front_end.ask("thread", "markers", "--list", "--thread", thread, "--limit", "0")["flatMarkers"]
    numbers = Counter(marker["name"] for marker in markers)
    for event in ("off-cpu", "block-io", "major-faults"):
        assert numbers[event] == len(unpacking.samples(event, "squeeze"))
    assert {"read 4,096B", "disk", str(unpacking.archive)} <= {marker["label"] for marker in markers}
    for event in ("block-io", "major-faults"):
        (marker, *_) = (marker for marker in markers if marker["name"] == event and marker["hasStack"])
        frames = front_end.ask("marker", "info", marker["handle"])["stack"]["frames"]
        assert "squeeze!unsqueeze" in {frame["nameWithLibrary"] for frame in frames}
    assert all(marker["duration"] > 0 for marker in markers if marker["name"] == "block-io")
    assert front_end.complaints() == []


def test_the_front_end_draws_what_the_compressor_used_over_time(front_end: FrontEnd) -> None:
    counters = front_end.ask("counter", "list")["counters"]
    of_compressor = {one["label"] for one in counters if one["processName"] == "squeeze"}
    assert {"CPU", "Disk", "major-faults"} <= of_compressor


def test_the_front_end_shows_the_compressor_down_to_its_lines_and_instructions(
    server: LocalServer, front_end: FrontEnd
) -> None:
    thread_of(front_end, "squeeze")
    shown = front_end.annotate(server, "check")
    lines = {line["lineNumber"]: line for line in shown["srcAnnotation"]["lines"]}
    assert "stir(sum + block[i])" in lines[line_of("squeeze.c", "check")]["sourceText"]
    assert lines[line_of("squeeze.c", "check")]["totalSamples"] > 0
    (assembly,) = shown["asmAnnotations"]
    assert assembly["symbolName"] == "check"
    assert any("mul" in one["decodedString"] for one in assembly["instructions"])
    assert sum(one["totalSamples"] for one in assembly["instructions"]) > 0
    assert front_end.complaints() == []
