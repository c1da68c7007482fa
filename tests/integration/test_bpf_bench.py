"""Programs of an object file: verified, measured by running them, and sampled while they run."""

from __future__ import annotations

import gc
import json
import os
import platform
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from stackhound import _native
from stackhound.bench.configuration import Benchmark
from stackhound.bench.runner import run_once
from stackhound.bpf.bench import Plan, bench
from stackhound.bpf.verify import list_contents, verify
from stackhound.errors import BenchmarkError, RecordingError, UsageError
from support_bpf import descriptors
from support_recordings import run_stackhound
from support_workloads import SOURCES, require

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.ebpf

#: Enough to see that it works; what it takes to know 2% is for a benchmark.
QUICK: Final = {"loads": 3, "most_loads": 3, "batches": 4}
SOURCE: Final = SOURCES / "measured.bpf.c"
INCLUDES: Final = ("/usr/include", f"/usr/include/{platform.machine()}-linux-gnu")


@pytest.fixture(scope="module")
def object_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bpf") / "measured.bpf.o"
    compiler = (sys.executable, "-m", "ziglang", "cc", "-target", "bpfel-freestanding", "-mcpu=v3", "-g", "-O2")
    flags = ("-nostdinc", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables")
    includes = [f"-I{directory}" for directory in INCLUDES]
    subprocess.run((*compiler, *flags, *includes, "-c", SOURCE, "-o", path), check=True)
    return path


def test_the_programs_of_a_file_are_listed(object_file: Path) -> None:
    contents = {one.name: one.type for one in list_contents(object_file)}
    assert contents == {
        "let_pass": "xdp",
        "add_up": "xdp",
        "add_in_loop": "xdp",
        "report": "xdp",
        "answer": "socket_filter",
        "classify": "sched_cls",
        "act": "sched_act",
        "let_out": "cgroup_skb",
        "dissect": "flow_dissector",
        "come_in": "lwt_in",
        "go_out": "lwt_out",
        "transmit": "lwt_xmit",
        "serve": "syscall",
        "compare": "raw_tracepoint",
        "on_switch": "tracing",
        "on_raw_switch": "raw_tracepoint",
        "on_told_switch": "tracepoint",
        "on_clock": "perf_event",
        "reach_too_far": "xdp",
    }


def test_the_verifier_says_what_it_had_to_do_and_why_it_refuses(object_file: Path) -> None:
    verdicts = {one.program: one for one in verify(object_file)}
    add_up = verdicts["add_up"]
    assert add_up.refusal is None
    assert add_up.figures
    assert add_up.figures.instructions > 100
    assert verdicts["let_pass"].figures
    assert verdicts["let_pass"].figures.instructions == 2
    refusal = verdicts["reach_too_far"].refusal
    assert refusal
    assert "invalid access to packet" in refusal.message
    assert "R1" in refusal.message
    assert "R1=ctx()" in refusal.registers
    assert refusal.instruction.endswith("+100)")
    assert refusal.source == "return data[100];"
    assert (Path(refusal.file).name, refusal.line) == ("measured.bpf.c", refusal_line())


def refusal_line() -> int:
    lines = SOURCE.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if "return data[100]" in line)


def test_work_takes_longer_than_none(object_file: Path) -> None:
    nothing = bench(object_file, "let_pass", Plan(**QUICK))
    work = bench(object_file, "add_up", Plan(**QUICK))
    assert nothing.ns_per_run.value < work.ns_per_run.value
    assert work.ns_per_run.low <= work.ns_per_run.value <= work.ns_per_run.high
    assert (work.return_value, work.way, len(work.loads)) == (2, "test run", 3)
    assert work.instructions > nothing.instructions


def test_a_measurement_that_comes_to_no_end_is_ended(object_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stackhound.bpf.bench.FINEST_NS", -1)  # never are two loads so much alike
    result = bench(object_file, "add_in_loop", Plan(loads=2, most_loads=1_000, most_s=0, batches=2, spread=-1))
    assert len(result.loads) == 2
    assert not result.is_conclusive


def test_measuring_xdp_leaves_this_thread_in_its_network_and_nothing_open(object_file: Path) -> None:
    def here() -> tuple[Path, list[str]]:
        return Path("/proc/thread-self/ns/net").readlink(), descriptors()

    bench(object_file, "let_pass", Plan(**QUICK))  # what Python opens for itself is open then
    before = here()
    bench(object_file, "let_pass", Plan(**QUICK))
    with pytest.raises(RecordingError):
        bench(object_file, "let_pass", Plan(expected=1, **QUICK))
    gc.collect()
    assert here() == before


def test_maps_are_prepared_and_return_values_are_checked(object_file: Path) -> None:
    element = (bytes(4), (42).to_bytes(4, "little"))
    result = bench(object_file, "answer", Plan(maps={"answers": [element]}, expected=42, **QUICK))
    assert result.return_value == 42
    with pytest.raises(RecordingError, match="returned 0, not 42"):
        bench(object_file, "answer", Plan(expected=42, **QUICK))


def test_a_ring_buffer_that_nobody_reads_does_not_change_what_is_measured(object_file: Path) -> None:
    """A full one would make it return XDP_ABORTED."""
    result = bench(object_file, "report", Plan(expected=2, **QUICK))
    assert result.return_value == 2


@pytest.mark.parametrize(
    ("program", "returned"),
    [
        ("answer", 0),
        ("classify", 2),
        ("act", 2),
        ("let_out", 1),
        ("dissect", 2),
        ("come_in", 2),
        ("go_out", 2),
        ("transmit", 2),
        ("serve", 1),
        ("compare", 1),
    ],
)
def test_the_kernel_runs_programs_of_each_type_with_the_input_that_they_are_given(
    object_file: Path, program: str, returned: int
) -> None:
    """What they return is told by the length of the packet, or by the context."""
    plan = Plan(packet=bytes(64), context=(7).to_bytes(8, "little"), expected=returned, **QUICK)
    result = bench(object_file, program, plan)
    assert (result.return_value, result.way, len(result.loads)) == (returned, "test run", 3)
    assert result.empty_ns > 0
    if program != "answer":
        other = replace(plan, packet=bytes(20), context=(3).to_bytes(8, "little"), expected=0)
        assert bench(object_file, program, other).return_value == 0


@pytest.mark.parametrize("program", ["on_switch", "on_raw_switch", "on_told_switch", "on_clock"])
def test_programs_of_each_type_are_measured_where_they_are_attached(object_file: Path, program: str) -> None:
    result = bench(object_file, program, Plan(place=time.sleep, **QUICK))
    assert (result.way, len(result.loads), result.return_value) == ("in place", 3, None)
    assert result.empty_ns > 0


def test_a_program_is_measured_where_it_is_attached(object_file: Path) -> None:
    done = run_stackhound(
        "bpf", "bench", object_file, "--program", "on_switch", "--in-place", "sleep 0.01", "--json",
        "--loads", "2", "--most-loads", "2", "--batches", "2",
    )  # fmt: skip
    document = json.loads(done.stdout)
    assert done.returncode in (0, 4)
    assert document["way"] == "in place"
    assert document["low"] <= document["ns_per_run"] <= document["high"]


@pytest.fixture
def cable() -> Iterator[str]:
    """The end of a virtual cable at which what is sent arrives; its other end has another last letter."""
    ip = require("ip")
    sender, receiver = f"hound{os.getpid()}s", f"hound{os.getpid()}r"
    subprocess.run((ip, "link", "add", sender, "type", "veth", "peer", "name", receiver), check=True)
    try:
        for end in (sender, receiver):
            subprocess.run((ip, "link", "set", end, "up"), check=True)
        yield receiver
    finally:
        subprocess.run((ip, "link", "delete", sender), check=True)


def test_an_xdp_program_is_measured_with_the_packets_of_an_interface(object_file: Path, cable: str) -> None:
    def send(seconds: float) -> None:
        end_s = time.monotonic() + seconds
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
            sender.bind((f"{cable[:-1]}s", 0))
            while time.monotonic() < end_s:
                sender.send(bytes(60))

    result = bench(object_file, "report", Plan(place=send, interface=cable, **QUICK))
    assert (result.way, len(result.loads)) == ("in place", 3)
    assert result.empty_ns > 0
    assert result.ns_per_run.value > 0


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("bench", "OBJECT", "--program", "reach_too_far"), 1, "refuses reach_too_far"),
        (("bench", "OBJECT", "--program", "on_switch"), 2, "only where they are attached"),
        (("bench", "OBJECT", "--program", "add_up", "--in-place", "true"), 2, "--interface"),
        (("bench", "OBJECT", "--program", "add_up", "--interface", "lo"), 2, "--in-place"),
        (
            ("bench", "OBJECT", "--program", "add_up", "--in-place", "true", "--interface", "none"),
            2,
            "no network interface",
        ),
        (("bench", "OBJECT", "--program", "none"), 2, "let_pass"),
        (("bench", "OBJECT", "--program", "add_up", "--packet", "/none.pcap"), 2, "cannot read /none.pcap"),
        (("bench", "OBJECT", "--program", "add_up", "--packet", "OBJECT"), 2, "is no packet"),
        (("bench", "OBJECT", "--program", "answer", "--maps", "none:maps"), 2, "No module named 'none'"),
        (("bench", "OBJECT", "--program", "on_switch", "--in-place", "echo no >&2; exit 3"), 2, "exited with 3: no"),
        (("bench", "/etc/hostname", "--program", "none"), 2, "not an object file"),
        (("verify", "OBJECT", "--program", "none"), 2, "let_pass"),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    object_file: Path, arguments: tuple[str, ...], status: int, told: str
) -> None:
    done = run_stackhound("bpf", *(str(object_file) if one == "OBJECT" else one for one in arguments))
    assert (done.returncode, done.stderr.count(b"\n")) == (status, 1), done.stderr
    assert told in done.stderr.decode()


def test_a_load_that_hangs_is_ended_and_told(object_file: Path) -> None:
    command = ("bench", object_file, "--program", "on_switch", "--in-place", "sleep 3600", "--most-time", "1s")
    done = run_stackhound("bpf", *command)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1), done.stderr
    assert "'sleep 3600' still ran after 1 s" in done.stderr.decode()


def test_a_python_function_gives_what_a_program_is_measured_with(object_file: Path, tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(
        "def long():\n    return bytes(64)\ndef maps():\n    return {'answers': [(bytes(4), bytes([9, 0, 0, 0]))]}\n"
        "def context():\n    return bytes([7]) + bytes(7)\n"
    )
    quick = ("--loads", "2", "--most-loads", "2", "--batches", "2", "--json")
    given = {
        "classify": ("--packet", "made:long", "--expect", "2"),
        "answer": ("--maps", "made:maps", "--expect", "9"),
        "serve": ("--context", "made:context", "--expect", "1"),
    }
    for program, options in given.items():
        done = run_stackhound("bpf", "bench", object_file, "--program", program, *options, *quick, cwd=tmp_path)
        assert done.returncode in (0, 4), done.stderr
        assert str(json.loads(done.stdout)["return_value"]) == options[-1]


def test_a_refused_program_makes_verify_fail(object_file: Path) -> None:
    done = run_stackhound("bpf", "verify", object_file)
    assert done.returncode == 1
    assert "add_up: accepted" in done.stdout.decode()
    assert "measured.bpf.c" in done.stdout.decode()


def test_a_program_is_a_benchmark_of_the_configuration(object_file: Path) -> None:
    benchmark = Benchmark("sum", bpf=object_file.name, program="add_up", expect=2)
    values = run_once(benchmark, object_file.parent).benchmarks["sum"]
    assert len(values["ns-per-run"]) == 8
    assert all(value > 0 for value in values["ns-per-run"])
    assert values["verifier-states"][0] > 1
    counted = replace(benchmark, measures=("verifier-instructions",))
    alone = run_once(counted, object_file.parent).benchmarks["sum"]
    assert alone == {"verifier-instructions": values["verifier-instructions"]}
    assert alone["verifier-instructions"][0] > 100


def test_a_benchmark_of_the_configuration_can_be_in_place(object_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stackhound.bench.programs.LOADS", 2)
    benchmark = Benchmark("switch", bpf=object_file.name, program="on_switch", in_place=("sleep", "0.01"))
    values = run_once(benchmark, object_file.parent).benchmarks["switch"]
    assert len(values["ns-per-run"]) == 2


@pytest.mark.parametrize(
    ("program", "told"), [("reach_too_far", "refuses reach_too_far"), ("none", "no program 'none'")]
)
def test_a_program_that_cannot_be_a_benchmark_never_passes(object_file: Path, program: str, told: str) -> None:
    benchmark = Benchmark("b", bpf=object_file.name, program=program, measures=("verifier-instructions",))
    with pytest.raises(BenchmarkError, match=f"benchmark 'b': .*{told}"):
        run_once(benchmark, object_file.parent)


def test_a_packet_that_is_too_short_is_refused(object_file: Path) -> None:
    with pytest.raises(UsageError, match="14 bytes"):
        bench(object_file, "let_pass", Plan(packet=b"short", **QUICK))


def test_samples_lead_to_the_lines_of_the_program_that_ran(object_file: Path, tmp_path: Path) -> None:
    ended = threading.Event()
    worker = threading.Thread(target=add_up_until, args=(ended, object_file))
    worker.start()
    done = run_stackhound("bpf", "profile", "-d", "2", "-F", "999", "-o", tmp_path / "bpf.hound", "--json")
    ended.set()
    worker.join()
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (mine,) = [one for one in document["programs"] if one["name"] == "add_up"]
    assert mine["sampled_ns"] > 0
    assert not mine["is_unseen"]
    of_add_up = [one for one in document["lines"] if one["function"].endswith("_add_up")]
    lines = SOURCE.read_text().splitlines()
    loop = [number for number, text in enumerate(lines, 1) if "byte[i]" in text or "for (int i" in text]
    hottest = of_add_up[0]["line"]
    assert hottest.rpartition(":")[0].endswith("measured.bpf.c")
    assert int(hottest.rpartition(":")[2]) in loop
    report = run_stackhound("report", tmp_path / "bpf.hound", "--sort", "symbol")
    assert "add_up" in report.stdout.decode()


def add_up_until(ended: threading.Event, path: Path) -> None:
    loaded = _native.BpfObject(str(path), ["add_up"], False)
    while not ended.is_set():
        loaded.run("add_up", bytes(range(64)), b"", 200_000)
    loaded.close()
