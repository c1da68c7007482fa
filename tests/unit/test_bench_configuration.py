"""What a benchmark's declaration says, and which mistakes in it are told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stackhound.bench import read_configuration
from stackhound.bench.configuration import Benchmark
from stackhound.bench.measures import Measure
from stackhound.bench.thresholds import Threshold
from stackhound.errors import UsageError

ROOT = Path(__file__).parents[2]

WHOLE = """
[[benchmark]]
name = "parse"
command = ["./parse", "big.json"]
runs = 3
warmups = 0
timeout_s = 1.5
measures = ["cpu"]

[[benchmark]]
name = "decode"
function = "app.codec:Decoder.run"

[measure.rate]
unit = "requests/second"
better = "higher"
floor = 2

[[threshold]]
measure = "wall"
test = "t-test"
upper = 0.99
branch = "main"
"""


def read(tmp_path, text):
    path = tmp_path / "bench.toml"
    path.write_text(text)
    return read_configuration(path)


def test_commands_functions_and_measures_are_declared(tmp_path):
    found = read(tmp_path, WHOLE)
    parse, decode = found.benchmarks
    assert parse == Benchmark("parse", ("./parse", "big.json"), measures=("cpu",), runs=3, warmups=0, timeout_s=1.5)
    assert decode == Benchmark("decode", function="app.codec:Decoder.run")
    assert found.measures == {"rate": Measure("rate", "requests/second", "higher", 2.0)}
    assert found.thresholds == (Threshold("wall", "t-test", upper=0.99, branch="main"),)


def test_a_bpf_program_is_declared_with_its_input_or_its_place(tmp_path):
    given = BPF + 'packet = "packets:syn"\nmaps = "maps.toml"\nexpect = 2'
    (found,) = read(tmp_path, given).benchmarks
    assert (found.packet, found.maps, found.expect, found.in_place) == ("packets:syn", "maps.toml", 2, ())
    (placed,) = read(tmp_path, BPF + 'in_place = ["./send", "veth1"]\ninterface = "veth0"').benchmarks
    assert (placed.in_place, placed.interface) == (("./send", "veth1"), "veth0")
    (verified,) = read(tmp_path, '[[benchmark]]\nname = "a"\nbpf = "a.o"\nmeasures = ["verifier-states"]').benchmarks
    assert verified.program == ""


THRESHOLD = "[[threshold]]\nmeasure = 'wall'\ntest = 't-test'\n"
BPF = '[[benchmark]]\nname = "a"\nbpf = "a.o"\nprogram = "p"\n'
BENCHMARK = '[[benchmark]]\nname = "a"\ncommand = ["true"]\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "declares no benchmark"),
        ("benchmark = 3", "declares no benchmark"),
        ("benchmark = [", "is no TOML"),
        ('[[benchmark]]\ncommand = ["true"]', "has no name"),
        ('[[benchmark]]\nname = "a\\u001b"\ncommand = ["true"]', "has no name"),
        ('[[benchmark]]\nname = "a"', "not one of 'command', 'function', 'bpf'"),
        (BENCHMARK + 'function = "a:b"', "not one of 'command', 'function', 'bpf'"),
        ('[[benchmark]]\nname = "a"\ncommand = "true"', "no list of texts"),
        ('[[benchmark]]\nname = "a"\nfunction = "a b:c"', "is no function"),
        ('[[benchmark]]\nname = "a"\nfunction = "os.getpid(x)"', "is no function"),
        (BENCHMARK + "runs = 0", "runs = 0"),
        (BENCHMARK + "runs = true", "runs = True"),
        (BENCHMARK + "timeout_s = nan", "timeout_s = nan"),
        (BENCHMARK + "timeout_s = 0", "timeout_s = 0"),
        (BENCHMARK + "results = 3", "results is no text"),
        ('[[benchmark]]\nname = "a"\nbpf = "a.o"', "which program of 'a.o'"),
        ('[[benchmark]]\nname = "a"\nbpf = "a.o"\nprogram = "p"\nexpect = true', "expect = True"),
        ('[[benchmark]]\nname = "a"\nbpf = "a.o"\nprogram = "p"\nresults = "r"', "'results', which means nothing"),
        ('[[benchmark]]\nname = "a"\nbpf = "a.o"\nmeasures = []', "which program of 'a.o'"),
        (BPF + 'in_place = "sleep 1"', "in_place is no list of texts"),
        (BPF + 'interface = "lo"', "an interface, but nothing to run"),
        (BPF + "interface = 3", "interface is no text"),
        (BENCHMARK + 'in_place = ["true"]', "'in_place', which means nothing"),
        (BENCHMARK + 'packet = "p"', "'packet', which means nothing"),
        (BENCHMARK + "warmup = 3", "'warmup', which means nothing"),
        (BENCHMARK + BENCHMARK, "two benchmarks are called 'a'"),
        (BENCHMARK + "[measure]\nrate = 3", "measure 'rate' is no table"),
        (BENCHMARK + '[measure.rate]\nbetter = "bigger"', "better = 'bigger'"),
        (BENCHMARK + "[measure.rate]\nfloor = -1", "makes no sense"),
        (BENCHMARK + "[measure.rate]\nexact = 1", "makes no sense"),
        (BENCHMARK + "[measure.rate]\ntolerance = -1", "makes no sense"),
        ('prepare = "make"\n' + BENCHMARK, "prepare is no list of texts"),
        (BENCHMARK + "[threshold]\ntest = 'iqr'", "no list of tables"),
        (BENCHMARK + "[[threshold]]\ntest = 'iqr'\nupper = 1", "for which measure"),
        (BENCHMARK + THRESHOLD, "has no bound"),
        (BENCHMARK + THRESHOLD.replace("t-test", "guess") + "upper = 0.9", "test = 'guess'"),
        (BENCHMARK + THRESHOLD + "upper = 1.0", "it is a probability"),
        (BENCHMARK + THRESHOLD + "lower = 0.3", "it is a probability"),
        (BENCHMARK + THRESHOLD + "upper = -1", "upper = -1"),
        (BENCHMARK + THRESHOLD + "upper = nan", "upper = nan"),
        (BENCHMARK + THRESHOLD + "upper = 0.9\nmin_values = 0", "min_values = 0"),
    ],
)
def test_a_mistake_is_told_with_the_files_name(text, told, tmp_path):
    with pytest.raises(UsageError, match=r"bench\.toml") as error:
        read(tmp_path, text)
    assert told in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.remedy


def test_the_documentation_s_example_is_one(tmp_path):
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/bench.md").read_text(), re.DOTALL)
    first, commits, thresholds = blocks
    found = read(tmp_path, first + thresholds)
    assert [one.name for one in found.benchmarks] == ["parse", "decode", "core", "filter", "filter in place"]
    assert [one.test for one in found.thresholds] == ["t-test"]
    built = read(tmp_path, commits)
    assert built.prepare == ("make", "benchmarks")
    assert built.benchmarks[0].needs == "src/drain.c"


def test_what_make_bench_gate_compares_are_counts_alone():
    found = read_configuration(ROOT / "benches" / "gate" / "bench.toml")
    assert (ROOT / "benches" / "gate" / "prepare.sh").stat().st_mode & 0o111
    counts = {("callgrind-instructions",), ("verifier-instructions",)}
    assert all(one.measures in counts or one.results == "-" for one in found.benchmarks)
    assert all((ROOT / one.needs).exists() for one in found.benchmarks)


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        read_configuration(tmp_path / "none.toml")
