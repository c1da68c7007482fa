"""The Firefox Profiler's format, before the front-end's own code (npm's @firefox-devtools/profiler-cli)."""

from __future__ import annotations

import numpy as np
import pytest

from fixtures.everything import every_event
from fixtures.examples import two_events, web_server
from fixtures.firefox import Document
from fixtures.front_end import open_in_front_end
from fixtures.profiles import build_profile
from stackhound.profile.columns import to_arrow

PERIOD_MS = 10.10101
MANY = 1_000_000


@pytest.fixture(scope="module")
def front_end(tmp_path_factory):
    path = tmp_path_factory.mktemp("firefox") / "web.firefox.json"
    path.write_bytes(Document(web_server()).data)
    with open_in_front_end(path) as front_end:
        yield front_end


def handles(front_end):
    """The handle of each thread by its name."""
    (*processes,) = front_end.ask("profile", "info", "--all")["processes"]
    return {thread["name"]: thread["threadHandle"] for process in processes for thread in process["threads"]}


def branches(node):
    """A call tree as {name: (total, self, what it called)}."""
    return {child["name"]: (child["totalSamples"], child["selfSamples"], branches(child)) for child in node["children"]}


def test_the_front_end_has_nothing_to_complain_of(front_end):
    assert front_end.ask("profile", "info")["threadCount"] == 3
    assert front_end.complaints() == []


def test_processes_and_threads_have_their_names_and_what_they_used_of_the_cpu(front_end):
    processes = front_end.ask("profile", "info", "--all")["processes"]
    shown = {
        (process["name"], process["pid"], thread["name"], thread["tid"]): thread["cpuMs"]
        for process in processes
        for thread in process["threads"]
    }
    assert shown == {
        ("nginx", "7", "nginx", 7): pytest.approx(2 * PERIOD_MS, abs=0.2),
        ("nginx", "7", "nginx: worker", 8): pytest.approx(PERIOD_MS),
        ("java", "9", "java", 9): pytest.approx(PERIOD_MS),
    }


def test_the_call_tree_has_kernel_and_inlined_functions(front_end):
    tree = front_end.ask("thread", "samples-top-down", "--thread", handles(front_end)["nginx"])["regularCallTree"]
    assert branches(tree) == {"_start": (2, 0, {"main": (2, 0, {"parse": (2, 0, {"vfs_read": (2, 2, {})})})})}
    inlined = tree["children"][0]["children"][0]["children"][0]
    assert (inlined["name"], inlined["inlineStatus"], inlined["nameWithLibrary"]) == ("parse", "inlined", "app!parse")


def test_a_frame_without_a_name_is_shown_as_its_file(front_end):
    tree = front_end.ask("thread", "samples-top-down", "--thread", handles(front_end)["nginx: worker"])
    assert branches(tree["regularCallTree"]) == {"_start": (1, 0, {"main": (1, 0, {"[libz.so.1]": (1, 1, {})})})}


def test_the_recording_is_described(front_end):
    meta = front_end.ask("profile", "meta")
    assert (meta["product"], meta["importedFrom"]) == ("cpu on web-1", "stackhound 0.1.0")
    assert meta["interval"] == pytest.approx(PERIOD_MS)
    assert meta["startTimeFormatted"].startswith("2025-11-21T09:43:1")


def test_the_cpu_has_a_curve(front_end):
    counters = front_end.ask("counter", "list")["counters"]
    assert [(one["label"], one["processName"]) for one in counters] == [("CPU", "nginx"), ("CPU", "java")]


def test_other_events_are_markers_with_their_stacks(tmp_path):
    path = tmp_path / "two.firefox.json"
    path.write_bytes(Document(two_events()).data)
    with open_in_front_end(path) as front_end:
        (marker,) = front_end.ask("thread", "markers", "--list")["flatMarkers"]
        assert (marker["name"], marker["fields"][0]["formattedValue"]) == ("page-faults", "3")
        stack = front_end.ask("marker", "info", marker["handle"])["stack"]
        assert [frame["nameWithLibrary"] for frame in stack["frames"]] == ["app!load", "app!main"]
        assert front_end.complaints() == []


def test_sleeps_requests_and_faults_are_markers_that_say_what_is_known(tmp_path):
    path = tmp_path / "all.firefox.json"
    path.write_bytes(Document(every_event()).data)
    with open_in_front_end(path) as front_end:
        handle = handles(front_end)["app"]
        markers = front_end.ask("thread", "markers", "--list", "--thread", handle)["flatMarkers"]
        assert {marker["name"]: (marker["label"], marker.get("duration")) for marker in markers} == {
            "off-cpu": ("futex", pytest.approx(30)),
            "block-io": ("read 4,096B", pytest.approx(15)),
            "major-faults": ("/usr/bin/app", pytest.approx(5)),
            "minor-faults": ("/usr/bin/app", None),
        }
        said = {
            marker["name"]: {field["label"]: field["formattedValue"] for field in marker["fields"]}
            for marker in markers
        }
        assert (said["off-cpu"]["Woken by"], said["off-cpu"]["From"]) == ("worker (8)", "compute ← main")
        assert (said["block-io"]["Device"], said["block-io"]["On the device"]) == ("vda", "14ms")
        assert said["major-faults"]["Latency"] == "5ms"
        assert "Latency" not in said["minor-faults"]
        counters = front_end.ask("counter", "list")["counters"]
        assert [one["label"] for one in counters] == ["CPU", "Disk", "major-faults", "minor-faults"]
        assert front_end.complaints() == []


def test_a_million_samples_load_without_a_warning(tmp_path):
    few = build_profile([
        ("app", 7, 7 + one % 9, 0, 1_000_000 * one, ["main", f"work {one % 500}", "i:add", "k:vfs_read"], 999_000, 1)
        for one in range(2_000)
    ])  # fmt: skip
    path = tmp_path / "many.firefox.json"
    path.write_bytes(Document(repeated(few, MANY // 2_000)).data)
    with open_in_front_end(path) as front_end:
        processes = front_end.ask("profile", "info", "--all")["processes"]
        assert sum(thread["cpuMs"] for one in processes for thread in one["threads"]) == pytest.approx(MANY, rel=0.01)
        main = front_end.ask("thread", "samples-top-down", "--thread", "t-0")["regularCallTree"]["children"][0]
        assert (main["name"], main["totalSamples"]) == ("main", pytest.approx(MANY / 9, rel=0.01))
        assert front_end.complaints() == []


def repeated(profile, times):
    """The profile's samples again and again, one after the other."""
    samples = profile.table("samples")
    columns = {name: np.tile(profile.numbers("samples", name), times) for name in samples.column_names}
    step_ns = 1_000_000 * samples.num_rows
    passed_ns = np.repeat(np.arange(times, dtype=np.uint64) * np.uint64(step_ns), samples.num_rows)
    columns |= {name: columns[name] + passed_ns for name in ("boottime_ns", "last_ns")}
    columns["id"] = np.arange(samples.num_rows * times, dtype=np.uint64)
    arrays = {name: to_arrow(column.astype(profile.numbers("samples", name).dtype)) for name, column in columns.items()}
    return profile.derive({"samples": type(samples).from_pydict(arrays)})
