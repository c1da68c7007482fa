"""``stackhound bench run``: real commands and functions, small ones."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stackhound.bench.configuration import Benchmark
from stackhound.bench.runner import run_once
from stackhound.cli.main import main
from stackhound.errors import BenchmarkError, UsageError

MEGABYTES = 64


def python(code, **fields):
    return Benchmark("b", (sys.executable, "-c", code), **fields)


def test_a_command_is_measured_with_its_children(tmp_path):
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', 'b = bytes([1]) * {MEGABYTES << 20}'])"
    values = run_once(python(code), tmp_path).benchmarks["b"]
    (wall_ns,), (cpu_ns,), (peak_bytes,) = values["wall"], values["cpu"], values["peak-memory"]
    assert wall_ns > 0
    assert cpu_ns > 0
    assert MEGABYTES << 20 < peak_bytes < 3 * MEGABYTES << 20


def test_the_memory_of_stackhound_itself_is_not_the_commands(tmp_path):
    ours = bytearray(256 << 20)  # a fork of this process has it
    ours[::4096] = b"x" * len(ours[::4096])
    values = run_once(Benchmark("b", ("true",)), tmp_path).benchmarks["b"]
    assert values.get("peak-memory", [0])[0] < len(ours) / 4


@pytest.mark.parametrize(
    ("benchmark", "told"),
    [
        (Benchmark("b", ("/nonexistent/program",)), "cannot be started: no such file"),
        (python("import sys; sys.exit('it \\x1b[31m broke')"), r"exit status 1: it \x1b[31m broke"),
        (python("import os; os.kill(os.getpid(), 9)"), "signal 9: it said nothing"),
        (python("import time; time.sleep(3600)", timeout_s=0.2), "still ran after 0.2 s"),
        (Benchmark("b", function="no_such_module:f"), "No module named"),
        (Benchmark("b", function="json:no_such_function"), "no_such_function"),
        (Benchmark("b", function="json:loads"), "missing 1 required positional argument"),
        (python("", results="none.json"), "wrote no results"),
    ],
)
def test_what_fails_is_told_in_one_line(benchmark, told, tmp_path):
    with pytest.raises(BenchmarkError) as error:
        run_once(benchmark, tmp_path)
    assert told in str(error.value)
    assert str(error.value).isprintable()


def state_of(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"


def test_what_a_command_leaves_running_is_ended(tmp_path):
    run_once(Benchmark("b", ("sh", "-c", "sleep 3600 & echo $! > pid")), tmp_path)
    pid = int((tmp_path / "pid").read_text())
    while state_of(pid) not in {"Z", "X", "gone"}:
        time.sleep(0.01)


def test_an_interrupt_ends_the_command_too(tmp_path):
    code = "import os, pathlib, time; part = pathlib.Path('part'); part.write_text(str(os.getpid())); "
    code += "part.rename('pid'); time.sleep(3600)"
    line = (sys.executable, "-m", "stackhound", "bench", "compare", shlex.join((sys.executable, "-c", code)), "true")
    ours = subprocess.Popen(line, cwd=tmp_path, start_new_session=True, stderr=subprocess.DEVNULL)
    while not (tmp_path / "pid").exists():
        assert ours.poll() is None
        time.sleep(0.01)
    os.killpg(ours.pid, signal.SIGINT)
    assert ours.wait(60) == 130
    assert state_of(int((tmp_path / "pid").read_text())) in {"Z", "X", "gone"}


def test_a_function_of_the_directory_is_called(tmp_path):
    (tmp_path / "app.py").write_text("class Codec:\n    def run():\n        print('noise')\n        sum(range(1000))\n")
    values = run_once(Benchmark("b", function="app:Codec.run"), tmp_path).benchmarks["b"]
    assert len(values["wall"]) == len(values["cpu"]) > 1
    assert all(0 < value < 1e9 for value in values["wall"])


def test_another_harness_is_run_and_read(tmp_path):
    code = "import json, pathlib; pathlib.Path('r.json').write_text(json.dumps({'x': {'latency': {'value': 5}}}))"
    found = run_once(python(code, results="r.json"), tmp_path)
    assert found.benchmarks == {"b/x": {"latency": [5.0]}}


def test_results_from_before_the_run_do_not_count(tmp_path):
    (tmp_path / "r.json").write_text('{"x": {"latency": {"value": 5}}}')
    with pytest.raises(BenchmarkError, match="wrote no results"):
        run_once(python("", results="r.json"), tmp_path)


def test_only_the_measures_asked_for_are_kept(tmp_path):
    assert list(run_once(python("", measures=("cpu",)), tmp_path).benchmarks["b"]) == ["cpu"]
    with pytest.raises(UsageError, match="no measure 'speed': it has wall, cpu"):
        run_once(python("", measures=("speed",)), tmp_path)


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bench.toml"
    path.write_text(f'[[benchmark]]\nname = "nothing"\ncommand = [{json.dumps(sys.executable)}, "-c", ""]\nruns = 2\n')
    return path


def test_results_go_to_a_file_and_their_medians_to_the_terminal(config, capsys, tmp_path):
    assert main(["bench", "run", str(config), "-o", "r.json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "running nothing\n"
    assert shown.out.splitlines()[1].split()[:2] == ["nothing", "wall"]
    document = json.loads((tmp_path / "r.json").read_text())
    assert len(document["benchmarks"]["nothing"]["wall"]) == 2
    assert document["measures"]["wall"]["unit"] == "nanoseconds"
    assert document["host"]["kernel"]


def test_bencher_s_format_goes_to_stdout(config, capsys):
    assert main(["bench", "run", str(config), "--bmf", "-o", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["nothing"]["wall"]["value"] > 0


def test_a_failed_benchmark_leaves_no_results(config, capsys, tmp_path):
    config.write_text(config.read_text() + '[[benchmark]]\nname = "broken"\ncommand = ["false"]\n')
    assert main(["bench", "run", str(config), "-o", "r.json"]) == 1
    assert "benchmark 'broken'" in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "r.json").exists()
