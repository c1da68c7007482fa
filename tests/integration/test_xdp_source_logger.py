"""The example that logs where packets come from: in a network namespace, and as a benchmark of both its halves."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from stackhound.bench.configuration import read_configuration
from stackhound.bench.runner import run_once
from stackhound.bpf import list_programs
from stackhound.bpf.bench import Plan, bench
from stackhound.bpf.verify import verify
from support_examples import copy_example, make
from support_recordings import wait_for
from support_workloads import HANG_S, require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.ebpf

PASS, ABORTED = 2, 0
IPV6 = bytes(12) + b"\x86\xdd" + bytes(46)
QUICK = {"loads": 3, "most_loads": 3, "batches": 4}


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = copy_example("xdp_source_logger", tmp_path_factory.mktemp("example"))
    make(directory)
    return directory


@pytest.fixture(scope="module")
def program(example: Path) -> Path:
    return example / "build" / "xdp_source_logger.bpf.o"


def test_packets_of_a_generator_are_logged_with_their_sources(example: Path, tmp_path: Path) -> None:
    if shutil.which("ip") is None:
        pytest.skip("needs iproute2")
    log = tmp_path / "log"
    command = (example / "in_namespace.sh", "1", str(log))
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    sent = int(re.fullmatch(r"(\d+) packets\n", done.stdout)[1])  # type: ignore[index]
    lines = log.read_text().splitlines()
    logged = [line for line in lines if re.fullmatch(r"192\.0\.2\.\d+ 60", line)]
    assert 0 < len(logged) <= sent
    assert len(set(logged)) == min(256, len(logged))


def test_it_is_listed_with_the_interface_of_this_network_namespace_alone(example: Path) -> None:
    ip, unshare = require("ip"), require("unshare")
    name = f"xl{os.getpid()}"
    subprocess.run((ip, "link", "add", name, "type", "veth", "peer", "name", f"{name}p"), check=True)
    try:
        assert place_of_logger(example, name) == f"xdp {name}"
    finally:
        subprocess.run((ip, "link", "delete", name), check=True)
    elsewhere = place_of_logger(example, "lo", unshare, "--net")  # it has the number of this one's
    assert re.fullmatch(r"xdp interface \d+ of another network namespace", elsewhere)


def place_of_logger(example: Path, interface: str, *prefix: str) -> str:
    """Where its program is attached, as it is listed."""
    build = example / "build"
    command = (*prefix, build / "xdp_source_logger", build / "xdp_source_logger.bpf.o", interface, str(HANG_S))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as logger:
        try:
            wait_for(lambda: any(places_of(logger.pid)), "it to be attached")
            return next(places_of(logger.pid))
        finally:
            logger.terminate()


def places_of(pid: int) -> Iterator[str]:
    """Of the programs that a process holds."""
    for program in list_programs():
        if pid in {owner.pid for owner in program.owners}:
            yield from (attachment.place for attachment in program.attachments)


def test_the_verifier_takes_the_kernel_half(program: Path) -> None:
    (verdict,) = verify(program)
    assert verdict.refusal is None


@pytest.mark.parametrize(
    ("packet", "returned"), [("packet", PASS), (IPV6, PASS), (bytes(12) + b"\x08\x00" + bytes(10), ABORTED)]
)
def test_packets_pass_and_damaged_ones_are_errors(
    example: Path, program: Path, packet: str | bytes, returned: int
) -> None:
    data = (example / "build" / packet).read_bytes() if isinstance(packet, str) else packet
    assert bench(program, "log_source", Plan(packet=data, expected=returned, **QUICK)).return_value == returned


def test_the_kernel_half_in_rust_does_the_same(example: Path) -> None:
    require("bpf-linker")
    toolchain = (require("cargo"), "+nightly")
    command = (*toolchain, "build", "--release", "--locked", "--quiet", "--target-dir", "target")
    subprocess.run(command, cwd=example / "rust", check=True)
    path = example / "rust/target/bpfel-unknown-none/release/xdp_source_logger"
    packet = (example / "build/packet").read_bytes()
    assert bench(path, "log_source", Plan(packet=packet, expected=PASS, **QUICK)).return_value == PASS
    short = bytes(12) + b"\x08\x00" + bytes(10)
    assert bench(path, "log_source", Plan(packet=short, expected=ABORTED, **QUICK)).return_value == ABORTED


def test_both_halves_are_benchmarks(example: Path) -> None:
    kernel, _, user = read_configuration(example / "bench.toml").benchmarks
    measured = run_once(kernel, example).benchmarks["kernel half"]
    assert all(value > 0 for value in measured["ns-per-run"])
    assert measured["verifier-instructions"][0] > 10
    assert measured["verifier-states"][0] > 0
    if shutil.which("valgrind"):
        counted = run_once(user, example).benchmarks["user half"]
        assert counted["allocations"] == [1]  # stdio's buffer


def test_the_kernel_half_is_a_benchmark_between_the_packets_of_a_generator(example: Path) -> None:
    """On the cable of its own network namespace; with less than the whole plan, which takes a minute."""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("needs iproute2 and util-linux")
    (placed,) = [one for one in read_configuration(example / "bench.toml").benchmarks if one.in_place]
    stackhound = (sys.executable, "-m", "stackhound", "bpf", "bench", placed.bpf, "--program", placed.program)
    place = ("--in-place", shlex.join(placed.in_place), "--interface", placed.interface)
    few = ("--loads", "2", "--most-loads", "2", "--batches", "2", "--json")
    line = (example / "on_cable.sh", *stackhound, *place, *few)
    done = subprocess.run(line, cwd=example, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode in (0, 4), done.stderr
    document = json.loads(done.stdout)
    assert (document["way"], document["program"], len(document["loads"])) == ("in place", "log_source", 2)
    assert document["ns_per_run"] > 0
