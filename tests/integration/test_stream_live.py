"""``stackhound stream`` on a live workload: every line is as documented, and appears while the workload runs."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

import pytest

from support_recordings import command_line, wait_until_it_samples
from support_workloads import FOR_EVER, HANG_S, Program, build, line_of, require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.ebpf


HEADER = re.compile(r"\[(\d+\.\d{9})\] COMM: (.*) \(pid=(\d+)\) @ CPU (\d+)")
INDEX_HEADER = re.compile(r"COMM: (.*) \(pid=(\d+)\) @ CPU (\d+)")
PLACE = r"(?: \S.*:\d+(?::\d+)?| \S+)?"
FRAME = re.compile(rf"(0x[0-9a-f]{{14,16}}): (\S.*) @ (0x[0-9a-f]+)\+(0x[0-9a-f]+){PLACE}")
MISS = re.compile(r"(0x[0-9a-f]{14,16}): <no-symbol> \((\S.*)\)")
INLINED = re.compile(rf" {{18}}(\S.*?)(?: @{PLACE})? \[inlined\]")
INDEX_FRAME = re.compile(r"( *\d+) \[<([0-9a-f]{16})>\] (\S.*?)\+0x[0-9a-f]+(?: \S.*:\d+)?")
INDEX_MISS = re.compile(r"( *\d+) \[<([0-9a-f]{16})>\] <no-symbol> \(\S.*\)")
INDEX_INLINED = re.compile(r" {8}(\S.*?)(?: \S.*:\d+)?")
FOLDED = re.compile(r"([^;]+)((?:;[^;]+)*) 1")


@contextmanager
def streaming(*options: str) -> Iterator[IO[str]]:
    with subprocess.Popen(command_line("stream", *options), stdout=subprocess.PIPE, text=True) as process:
        watchdog = threading.Timer(HANG_S, process.kill)
        watchdog.start()
        try:
            assert process.stdout
            yield process.stdout
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.stdout.read() if process.stdout else ""
            watchdog.cancel()
    assert process.returncode == 0
    assert not rest or rest.endswith("\n"), "the last sample is whole"


def blocks(lines: IO[str], wanted: int) -> list[list[str]]:
    """So many samples, each the lines up to a blank one."""
    found: list[list[str]] = [[]]
    for line in lines:
        assert line.endswith("\n")
        if line != "\n":
            found[-1].append(line[:-1])
        elif len(found) == wanted:
            return found
        else:
            found.append([])
    pytest.fail(f"the stream ended after {len(found)} samples")


def halves(block: list[str]) -> tuple[list[str], list[str]]:
    """The lines of the kernel's frames and of user space's, without their headings."""
    rest = block[1:]
    kernel: list[str] = []
    assert rest[0] in ("No Kernel Stack", "Kernel:")
    at = next(index for index, line in enumerate(rest) if line in ("No Userspace Stack", "Userspace:"))
    kernel, user = rest[1:at], rest[at + 1 :]
    assert bool(kernel) == (rest[0] == "Kernel:")
    assert bool(user) == (rest[at] == "Userspace:")
    return kernel, user


def test_each_sample_of_a_stream_is_as_documented() -> None:
    started = time.time()
    with Program(build("shares.c"), FOR_EVER) as program:
        program.go()
        with streaming("-p", str(program.pid), "-f", "199") as lines:
            found = blocks(lines, 50)
    times = []
    for block in found:
        header = HEADER.fullmatch(block[0])
        assert header, block[0]
        times.append(float(header[1]))
        assert (header[2], header[3]) == ("shares", str(program.pid))
        for line in (line for half in halves(block) for line in half):
            match = FRAME.fullmatch(line) or MISS.fullmatch(line) or INLINED.fullmatch(line)
            assert match, line
            if match.re is FRAME:
                assert int(match[1], 16) == int(match[3], 16) + int(match[4], 16)
                assert len(match[1]) >= 16
    assert started - 1 <= times[0] <= time.time() + 1
    assert any("Kernel:" in block for block in found)
    text = "\n".join("\n".join(block) for block in found)
    assert re.search(r"^0x[0-9a-f]{16}: vfs_read @ 0xf+", text, re.MULTILINE) or "takes_half" in text


def test_inlined_functions_stand_below_their_address_in_the_default_style() -> None:
    with Program(build("busy.c"), FOR_EVER) as program:
        program.go()
        with streaming("-p", str(program.pid), "-f", "199") as lines:
            found = blocks(lines, 30)
    stirring = [half for half in (halves(block)[1] for block in found) if any("stir" in line for line in half)]
    assert stirring
    for half in stirring:
        at = next(index for index, line in enumerate(half) if ": churn @ " in line)
        mix, stir = half[at + 1], half[at + 2]
        assert re.fullmatch(rf" {{18}}mix @ \S+busy\.c:{line_of('busy.c', 'mix')}(:\d+)? \[inlined\]", mix), mix
        assert re.fullmatch(r" {18}stir @ \S+busy\.c:\d+(:\d+)? \[inlined\]", stir), stir


def test_names_of_a_stream_come_from_a_debug_directory_too(tmp_path: Path) -> None:
    program, debug = tmp_path / "busy", tmp_path / "debug" / tmp_path.relative_to("/") / "busy.debug"
    debug.parent.mkdir(parents=True)
    whole = build("busy.c")
    subprocess.run((require("objcopy"), "--only-keep-debug", whole, debug), check=True)
    subprocess.run(("objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", whole, program), check=True)
    with Program(program, FOR_EVER) as running:
        running.go()
        with streaming("-p", str(running.pid), "-f", "199", "-E", "--debug-dir", str(tmp_path / "debug")) as lines:
            found = [next(lines) for _ in range(20)]
    assert sum(";churn;" in line for line in found) >= 15, found


def test_each_sample_of_an_indexed_stream_is_as_documented() -> None:
    with Program(build("busy.c"), FOR_EVER) as program:
        program.go()
        with streaming("-p", str(program.pid), "-f", "199", "--style", "index") as lines:
            found = blocks(lines, 30)
    for block in found:
        assert INDEX_HEADER.fullmatch(block[0]), block[0]
        for half in halves(block):
            numbers = []
            for line in half:
                match = INDEX_FRAME.fullmatch(line) or INDEX_MISS.fullmatch(line) or INDEX_INLINED.fullmatch(line)
                assert match, line
                if match.re is not INDEX_INLINED:
                    assert len(match[1]) >= 3
                    numbers.append(int(match[1]))
            assert numbers == list(range(len(numbers)))
    user = [line for block in found for line in halves(block)[1]]
    assert any(re.fullmatch(r"  \d \[<0000[0-9a-f]{12}>\] churn\+0x[0-9a-f]+ \S+busy\.c:\d+", line) for line in user)
    assert any(re.fullmatch(r" {8}stir \S+busy\.c:\d+", line) for line in user)


def test_each_line_of_a_folded_stream_is_a_whole_sample() -> None:
    with Program(build("shares.c"), FOR_EVER) as program:
        program.go()
        with streaming("-p", str(program.pid), "-f", "199", "-E") as lines:
            found = [next(lines) for _ in range(60)]
    for line in found:
        assert line.endswith("\n")
        match = FOLDED.fullmatch(line[:-1])
        assert match, line
        assert match[1] == "shares"
        in_kernel = [frame.endswith("_[k]") for frame in match[2].split(";")[1:]]
        assert in_kernel == sorted(in_kernel), "user frames come before kernel frames"
    assert any(line.startswith("shares;") and ";takes_half" in line for line in found)
    assert any("_[k]" in line for line in found)


def test_a_stream_ends_with_its_process() -> None:
    with Program(build("busy.c"), "300") as program:
        command = command_line("stream", "-p", str(program.pid), "-f", "99", "-E")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            wait_until_it_samples(process.pid)
            program.go()
            out, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == 0
    assert out
    assert all(FOLDED.fullmatch(line) for line in out.splitlines())


def test_a_stream_of_the_whole_system_shows_names_of_many_programs() -> None:
    with Program(build("busy.c"), FOR_EVER) as one, Program(build("shares.c"), FOR_EVER) as other:
        one.go()
        other.go()
        with streaming("-f", "199", "-E") as lines:
            names = set()
            for line in lines:
                names.add(line.split(";")[0])
                if {"busy", "shares"} <= names:
                    break
    assert {"busy", "shares"} <= names


def test_a_stream_into_a_pipe_that_closes_ends_quietly() -> None:
    with Program(build("busy.c"), FOR_EVER) as program:
        program.go()
        command = " ".join(map(str, command_line("stream", "-p", str(program.pid), "-f", "499", "-E")))
        result = subprocess.run(
            ["bash", "-o", "pipefail", "-c", f"{command} | head -3"], capture_output=True, timeout=HANG_S, check=False
        )
    assert result.returncode == 128 + signal.SIGPIPE
    assert len(result.stdout.splitlines()) == 3
    assert result.stderr == b""
