"""``stackhound dump``: every thread's stack, state and lock, of processes that go on meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import stackhound
from fixtures.terminal import run_on_terminal
from stackhound.errors import NoSuchProcess, UsageError
from stackhound.profile.threads import NOT_TAKEN, read_threads
from support_bpf import descriptors
from support_interpreters import Interpreter, interpreters
from support_kernels import needs
from support_recordings import run_stackhound, wait_for
from support_silent_files import silent_file
from support_workloads import SOURCES, Program, build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.profile.threads import Process, Thread

pytestmark = pytest.mark.ebpf

#: System call and state of each thread of waits.c.
WAITS: Final = {
    "lock_up": ("futex", "sleeping"),
    "read_pipe": ("read", "sleeping"),
    "nap": ("clock_nanosleep", "sleeping"),
    "poll_pipe": ("poll", "sleeping"),
}


@pytest.fixture(autouse=True, scope="module")
def iterator() -> None:
    needs("task iterator")


@pytest.fixture(scope="module")
def waiting() -> Iterator[tuple[Program, dict[str, int]]]:
    with Program(build("waits.c", "-pthread"), "0") as program:
        tids = tids_of(program)
        wait_until_asleep(program.pid, [tids[name] for name in WAITS])
        yield program, tids


def tids_of(program: Program) -> dict[str, int]:
    return {name: int(tid) for name, tid in map(str.split, program.preface)}


def state_of(pid: int, tid: int) -> str:
    return Path(f"/proc/{pid}/task/{tid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_until_asleep(pid: int, tids: list[int]) -> None:
    wait_for(lambda: all(state_of(pid, tid) == "S" for tid in tids), "threads to fall asleep")


def process_of(pid: int, **options: Any) -> Process:
    (process,) = read_threads(stackhound.dump([pid], **options))
    assert process.pid == pid
    return process


def threads_of(pid: int, **options: Any) -> dict[int, Thread]:
    return {thread.tid: thread for thread in process_of(pid, **options).threads}


def names(thread: Thread, kind: str) -> list[str]:
    return [frame.name for frame in thread.frames if frame.kind == kind]


@pytest.mark.kernel_guest
def test_each_thread_is_in_the_function_that_it_waits_in(waiting: tuple[Program, dict[str, int]]) -> None:
    program, tids = waiting
    threads = threads_of(program.pid)
    assert set(threads) == {program.pid, *tids.values()}
    for name, tid in tids.items():
        functions = names(threads[tid], "user")
        assert name in functions, (name, functions)
        assert functions[functions.index(name) + 1] == "run"
        assert threads[tid].stack == "complete"
    assert "main" in names(threads[program.pid], "user")


@pytest.mark.kernel_guest
def test_what_a_thread_waits_for_is_said(waiting: tuple[Program, dict[str, int]]) -> None:
    program, tids = waiting
    threads = threads_of(program.pid)
    found = {name: (threads[tids[name]].system_call, threads[tids[name]].state) for name in WAITS}
    assert found == WAITS


def test_a_thread_on_a_cpu_has_its_stack_too(waiting: tuple[Program, dict[str, int]]) -> None:
    program, tids = waiting
    spinning = threads_of(program.pid)[tids["spin_on"]]
    assert spinning.state in {"running", "runnable"}
    assert spinning.stack == "complete"
    assert "spin_on" in names(spinning, "user")
    assert spinning.cpu_ns > 0


def test_a_source_line_is_the_one_that_waits(waiting: tuple[Program, dict[str, int]]) -> None:
    program, tids = waiting
    frames = threads_of(program.pid)[tids["nap"]].frames
    (frame,) = [frame for frame in frames if frame.name == "nap"]
    lines = (SOURCES / "waits.c").read_text().splitlines()
    assert frame.file.endswith("waits.c")
    assert "nanosleep" in lines[frame.line - 1]


def test_the_kernel_is_left_out_when_asked(waiting: tuple[Program, dict[str, int]]) -> None:
    program, tids = waiting
    thread = threads_of(program.pid, user_only=True)[tids["nap"]]
    assert not names(thread, "kernel")
    assert "nap" in names(thread, "user")


def test_no_process_is_stopped(waiting: tuple[Program, dict[str, int]]) -> None:
    """Looked at all the while, no thread is ever stopped, and nobody traces the process."""
    program, tids = waiting
    over, states, tracers = threading.Event(), set(), set()

    def watch() -> None:
        while not over.is_set():
            states.update(state_of(program.pid, tid) for tid in tids.values())
            status = Path(f"/proc/{program.pid}/status").read_text()
            tracers.add(next(line for line in status.splitlines() if line.startswith("TracerPid")).split()[1])

    watcher = threading.Thread(target=watch)
    watcher.start()
    done = run_stackhound("dump", "-p", str(program.pid))
    over.set()
    watcher.join()
    assert done.returncode == 0, done.stderr
    assert states <= {"R", "S"}
    assert tracers == {"0"}


def test_threads_that_sleep_are_not_woken(waiting: tuple[Program, dict[str, int]]) -> None:
    program, tids = waiting
    asleep = [tids[name] for name in WAITS]
    before = [switches(program.pid, tid) for tid in asleep]
    stackhound.dump([program.pid])
    assert [switches(program.pid, tid) for tid in asleep] == before


def switches(pid: int, tid: int) -> int:
    status = Path(f"/proc/{pid}/task/{tid}/status").read_text()
    return sum(int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line)


def test_a_stopped_process_shows_where_it_was_stopped() -> None:
    with Program(build("waits.c", "-pthread"), "0") as program:
        tids = tids_of(program)
        os.kill(program.pid, signal.SIGSTOP)
        wait_for(lambda: state_of(program.pid, tids["spin_on"]) == "T", "the process to stop")
        threads = threads_of(program.pid)
        assert {thread.state for thread in threads.values()} == {"stopped"}
        assert "spin_on" in names(threads[tids["spin_on"]], "user")


def test_a_thread_that_cannot_be_interrupted_is_shown() -> None:
    with Program(build("uninterruptible.c")) as program:
        wait_for(lambda: state_of(program.pid, program.pid) == "D", "vfork")
        (thread,) = process_of(program.pid).threads
        assert thread.state == "uninterruptible"
        assert thread.system_call == "clone"
        assert "wait_for_child" in names(thread, "user")


def test_a_stack_that_nobody_serves_is_unreadable_and_hangs_nothing() -> None:
    with Program(build("unserved_stack.c", "-fomit-frame-pointer")) as program:
        wait_until_asleep(program.pid, [program.pid])
        (thread,) = process_of(program.pid).threads
        assert thread.stack == "stack unreadable"
        assert thread.system_call == "nanosleep"
        assert names(thread, "user") == ["sleep_on"]


def test_memory_that_may_never_come_is_not_waited_for(tmp_path: Path) -> None:
    """A stack in a file of FUSE: whoever reads there would wait for its server, and hold up others meanwhile."""
    with silent_file(tmp_path) as silent:
        with Program(build("unserved_stack.c", "-fomit-frame-pointer"), silent.path) as program:
            wait_until_asleep(program.pid, [program.pid])
            (thread,) = process_of(program.pid).threads
        assert not silent.readers.is_set()
    assert thread.stack == "stack unreadable"
    assert names(thread, "user") == ["sleep_on"]


def test_several_processes_are_shown_one_after_the_other(waiting: tuple[Program, dict[str, int]]) -> None:
    program, _ = waiting
    with Program(build("waits.c", "-pthread"), "0") as second:
        processes = read_threads(stackhound.dump([second.pid, program.pid, second.pid]))
        assert [process.pid for process in processes] == sorted([program.pid, second.pid])
        assert all(len(process.threads) == 6 for process in processes)


def test_thousands_of_threads_are_all_there() -> None:
    with Program(build("waits.c", "-pthread"), "2000") as program:
        threads = process_of(program.pid).threads
        assert len(threads) == 2006
        naps = [thread for thread in threads if "nap" in names(thread, "user")]
        assert len(naps) == 2001
        assert {thread.stack for thread in naps} == {"complete"}


def test_threads_alike_are_shown_once_when_asked() -> None:
    with Program(build("waits.c", "-pthread"), "500") as program:
        done = run_stackhound("dump", "--group", "-p", str(program.pid))
        text = done.stdout.decode()
        assert done.returncode == 0
        assert "500 threads, " in text
        assert " and 492 more: sleeping, waits for a timer (clock_nanosleep)" in text
        assert len(text.splitlines()) < 150


@pytest.fixture(params=interpreters(), scope="module")
def interpreter(request: pytest.FixtureRequest) -> Interpreter:
    found: Interpreter = request.param
    return found


def test_python_threads_are_where_python_says_that_they_are(interpreter: Interpreter) -> None:
    with Program(interpreter.path, SOURCES / "python_threads.py") as program:
        truth = [json.loads(line) for line in program.preface]
        wait_until_asleep(program.pid, [one["native_id"] for one in truth])
        process = process_of(program.pid)
        assert process.python is not None
        assert process.python.startswith(interpreter.version.rstrip("t"))
        threads = {thread.tid: thread for thread in process.threads}
        for one in truth:
            thread = threads[one["native_id"]]
            said = [name for _, name, _, _ in one["frames"] if name != "report"]
            found = [frame.name.rpartition(".")[2] for frame in thread.frames if frame.kind == "python"]
            assert found == said
            assert thread.python == "complete"


def test_lines_of_python_are_those_that_wait(interpreter: Interpreter) -> None:
    source = SOURCES / "python_waits.py"
    lines = source.read_text().splitlines()
    calls = {"sleeps": "time.sleep", "locks": "acquire", "receives": "recv"}
    with Program(interpreter.path, source) as program:
        by_tid = {int(tid): name for name, tid in map(str.split, program.preface)}
        wait_until_asleep(program.pid, [tid for tid, name in by_tid.items() if name in calls])
        for thread in process_of(program.pid).threads:
            if (name := by_tid.get(thread.tid, "")) in calls:
                python = [frame for frame in thread.frames if frame.kind == "python"]
                assert python, thread
                leaf = python[0]
                assert leaf.file == str(source)
                assert calls[name] in lines[leaf.line - 1]


def test_the_lock_has_one_holder_and_others_wait_for_it(interpreter: Interpreter) -> None:
    if interpreter.version.endswith("t"):
        pytest.skip("a free-threaded build has no lock")
    seen: set[str | None] = set()
    with Program(interpreter.path, SOURCES / "python_waits.py") as program:
        by_tid = {int(tid): name for name, tid in map(str.split, program.preface)}
        wait_until_asleep(program.pid, [tid for tid, name in by_tid.items() if name != "computes"])
        for _ in range(5):
            threads = process_of(program.pid).threads
            lock = {thread.tid: thread.gil for thread in threads}
            assert {lock[tid] for tid, name in by_tid.items() if name != "computes"} == {"released"}
            seen |= {lock[tid] for tid, name in by_tid.items() if name == "computes"}
    assert {"held", "waiting"} <= seen


def test_the_json_says_all_that_is_documented(waiting: tuple[Program, dict[str, int]]) -> None:
    program, tids = waiting
    done = run_stackhound("dump", "--json", "-p", str(program.pid))
    known = json.loads(done.stdout)
    documented = (Path(__file__).parents[2] / "docs" / "dump.md").read_text()
    (process,) = known["processes"]
    thread = next(one for one in process["threads"] if one["tid"] == tids["nap"])
    frame = next(one for one in thread["frames"] if one["name"] == "nap")
    for field in (*known, *process, *thread, *frame):
        assert f"`{field}`" in documented, field
    assert (thread["state"], thread["waits_for"], frame["kind"]) == ("sleeping", "a timer", "user")


def test_a_reader_finds_the_waiting_function_in_the_text(waiting: tuple[Program, dict[str, int]]) -> None:
    program, tids = waiting
    done = run_stackhound("dump", "-p", str(program.pid))
    paragraphs = done.stdout.decode().split("\n\n")
    nap = next(one for one in paragraphs if one.startswith(f"Thread {tids['nap']} (waits): "))
    assert nap.splitlines()[0].endswith("of CPU time")
    assert "sleeping, waits for a timer (clock_nanosleep)" in nap
    assert any(line.startswith("    nap  ") and "waits.c:" in line for line in nap.splitlines())
    assert b"\x1b" not in done.stdout


def test_a_dump_can_be_kept_and_read_again(waiting: tuple[Program, dict[str, int]], tmp_path: Path) -> None:
    program, _ = waiting
    profile = stackhound.dump([program.pid])
    profile.save(tmp_path / "dump.hound")
    assert read_threads(stackhound.load(tmp_path / "dump.hound")) == read_threads(profile)


def test_a_process_that_is_gone_is_named() -> None:
    with subprocess.Popen(["true"]) as child:
        wait_for(lambda: state_of(child.pid, child.pid) == "Z", "the child to end")
        with pytest.raises(NoSuchProcess, match=f"process {child.pid} has ended"):
            stackhound.dump([child.pid])
    with pytest.raises(NoSuchProcess, match=f"there is no process {child.pid}"):
        stackhound.dump([child.pid])


def test_without_a_process_there_is_nothing_to_look_at() -> None:
    with pytest.raises(UsageError, match="no process"):
        stackhound.dump([])
    assert run_stackhound("dump").returncode == 2


def test_a_kernel_thread_has_its_kernel_stack() -> None:
    if not Path("/proc/2/stat").exists():
        pytest.skip("no kernel threads are seen here")
    (thread,) = process_of(2).threads
    assert thread.comm == "kthreadd"
    assert thread.stack == "kernel thread"
    assert "kthreadd" in names(thread, "kernel")


def test_a_process_may_look_at_itself() -> None:
    process = process_of(os.getpid())
    own = next(thread for thread in process.threads if thread.tid == threading.get_native_id())
    assert own.stack in {"complete", NOT_TAKEN}
    assert process.python == ".".join(map(str, sys.version_info[:3]))


def test_the_terminal_shows_colours() -> None:
    with Program(build("waits.c", "-pthread"), "0") as program:
        shown = run_on_terminal("dump", "-p", program.pid)
    assert b"\x1b[" in shown


def test_nothing_is_left_in_the_kernel(waiting: tuple[Program, dict[str, int]]) -> None:
    stackhound.dump([waiting[0].pid])
    wait_for(lambda: not any("bpf" in one for one in descriptors()), "the end of what the dump had in the kernel")
