"""Benchmarks declared in TOML.

prepare = ["make", "benchmarks"]       # run first in each directory or commit that is measured

[[benchmark]]
name = "parse"
command = ["./parse", "big.json"]      # or function = "module:function", called in a Python of its own
runs = 10

[[benchmark]]
name = "core"                          # what another harness measures: results are read after its command
command = ["cargo", "bench"]
results = "target/criterion"           # "-": what it prints

[[benchmark]]
name = "filter"
bpf = "filter.bpf.o"                   # a BPF program of an object file
program = "drop_syn"
packet = "syn.pcap"                    # or "module:function", which returns the bytes

[[benchmark]]
name = "filter in place"
bpf = "filter.bpf.o"
program = "drop_syn"
in_place = ["./send", "veth1"]         # run while the program is attached
interface = "veth0"

[measure.rate]                         # a measure that is not known by its name
unit = "requests/second"
better = "higher"
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stackhound.bench.measures import Measure, known_measure
from stackhound.bench.thresholds import BY_PROBABILITY, TESTS, Threshold
from stackhound.errors import UsageError, reason_of

if TYPE_CHECKING:
    from collections.abc import Mapping

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_RUNS: Final = 10
DEFAULT_TIMEOUT_S: Final = 600.0
MAX_RUNS: Final = 100_000
#: Where results are, if the command prints them.
STDOUT: Final = "-"

#: What is measured, and what else can be said of each.
KINDS: Final = {
    "command": {"results"},
    "function": set[str](),
    "bpf": {"program", "packet", "context", "maps", "expect", "in_place", "interface"},
}
#: Of BPF programs, what the verifier alone tells: these are not run.
VERIFIED: Final = frozenset({"verifier-instructions", "verifier-states"})
COMMON: Final = {"name", "measures", "runs", "warmups", "timeout_s", "needs"}


@dataclass(frozen=True)
class Benchmark:
    """One entry. With ``results`` its values are read from there, else the command itself is measured.

    Paths are relative to the directory that it runs in.

    Attributes:
        command: the program and its arguments; empty where it is something else.
        function: ``module:function``, without arguments; empty where it is something else.
        results: a file or directory that the command writes; ``-``: what it prints.
        bpf: an object file with the BPF program ``program``; empty where it is something else. Without a program it
            is each of them, ``NAME/PROGRAM``, for the verifier alone.
        packet, context, maps: files for it, or Python functions, as of ``stackhound bpf bench``; empty without one.
        expect: what it must return; None: always the same.
        in_place: a command that is run while it is attached in its place; empty: the kernel runs it.
        interface: of the network, that an XDP program is attached to then.
        measures: of these alone; empty means all.
        runs, warmups: how often; results of the first ``warmups`` are thrown away.
        timeout_s: a run that takes longer has failed.
        needs: a file without which the first side of a comparison had no such benchmark yet; empty without one.
    """

    name: str
    command: tuple[str, ...] = ()
    function: str = ""
    results: str = ""
    bpf: str = ""
    program: str = ""
    packet: str = ""
    context: str = ""
    maps: str = ""
    expect: int | None = None
    in_place: tuple[str, ...] = ()
    interface: str = ""
    measures: tuple[str, ...] = ()
    runs: int = DEFAULT_RUNS
    warmups: int = 1
    timeout_s: float = DEFAULT_TIMEOUT_S
    needs: str = ""


@dataclass(frozen=True)
class Configuration:
    """What a file declares.

    Attributes:
        prepare: a command to run first in each directory; empty without one.
        directory: where the file is.
    """

    benchmarks: tuple[Benchmark, ...]
    measures: dict[str, Measure] = field(default_factory=dict)
    thresholds: tuple[Threshold, ...] = ()
    prepare: tuple[str, ...] = ()
    directory: Path = Path()


def read_configuration(path: Path) -> Configuration:
    """Read a file.

    Raises:
        UsageError: it cannot be read, or says what makes no sense.
    """
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {reason_of(error)}", "name a TOML file that declares benchmarks"
        ) from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise UsageError(f"{path} is no TOML: {error}", "docs/bench.md has an example") from error
    try:
        return replace(parse_configuration(document), directory=path.resolve().parent)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.remedy) from error


def parse_configuration(document: Mapping[str, Any]) -> Configuration:
    """The configuration that a TOML document declares.

    Raises:
        UsageError: it says what makes no sense.
    """
    _expect_keys("the file", document, {"benchmark", "measure", "threshold", "prepare"})
    tables = document.get("benchmark")
    if not isinstance(tables, list) or not tables or not all(isinstance(one, dict) for one in tables):
        raise UsageError("it declares no benchmark", "begin one with [[benchmark]]")
    benchmarks = tuple(_parse_benchmark(one) for one in tables)
    names = [one.name for one in benchmarks]
    if len(set(names)) < len(names):
        raise UsageError(f"two benchmarks are called {max(names, key=names.count)!r}", "give each a name of its own")
    declared = document.get("measure", {})
    if not isinstance(declared, dict):
        raise UsageError("'measure' is no table", "write [measure.NAME]")
    thresholds = document.get("threshold", [])
    if not isinstance(thresholds, list) or not all(isinstance(one, dict) for one in thresholds):
        raise UsageError("'threshold' is no list of tables", "begin each with [[threshold]]")
    measures = {name: _parse_measure(name, one) for name, one in declared.items()}
    parsed = tuple(_parse_threshold(one) for one in thresholds)
    return Configuration(benchmarks, measures, parsed, _words("the file", document, "prepare"))


def _parse_benchmark(table: dict[str, Any]) -> Benchmark:
    name = table.get("name")
    if not isinstance(name, str) or not name or not name.isprintable():
        raise UsageError("a benchmark has no name", 'write name = "…" in each')
    where = f"benchmark {name!r}"
    kinds = [kind for kind in KINDS if table.get(kind)]
    if len(kinds) != 1:
        raise UsageError(f"{where} has not one of {', '.join(map(repr, KINDS))}", "say what it runs")
    _expect_keys(where, table, COMMON | KINDS[kinds[0]] | {kinds[0]})
    _expect_numbers(where, table)
    _expect_texts(where, table)
    lists = {key: _words(where, table, key) for key in ("command", "measures", "in_place")}
    is_verified = bool(lists["measures"]) and VERIFIED.issuperset(lists["measures"])
    if kinds == ["bpf"] and not table.get("program") and not is_verified:
        raise UsageError(f"{where} does not say which program of {table['bpf']!r:.80}", 'write program = "…"')
    if table.get("interface") and not lists["in_place"]:
        raise UsageError(f"{where} has an interface, but nothing to run", 'write in_place = ["…"]')
    return Benchmark(**{**table, **lists})


def _expect_numbers(where: str, table: dict[str, Any]) -> None:
    for key, least in (("runs", 1), ("warmups", 0)):
        if type(table.get(key, least)) is not int or not least <= table.get(key, least) <= MAX_RUNS:
            raise UsageError(f"{where}: {key} = {table[key]!r:.40}", f"use {least} to {MAX_RUNS}")
    timeout_s = table.get("timeout_s", 1)
    if type(timeout_s) not in {int, float} or not 0 < timeout_s <= 86_400:
        raise UsageError(f"{where}: timeout_s = {timeout_s!r:.40}", "use seconds, up to a day")
    if type(table.get("expect", 0)) is not int:
        raise UsageError(f"{where}: expect = {table['expect']!r:.40}", "use a whole number")


def _expect_texts(where: str, table: dict[str, Any]) -> None:
    for key in {"function", "results", "needs", "bpf", *KINDS["bpf"]} - {"expect", "in_place"}:
        if not isinstance(table.get(key, ""), str):
            raise UsageError(f"{where}: {key} is no text", 'write it in "quotes"')
    function = table.get("function", "")
    if function and not all(part.isidentifier() for part in function.replace(":", ".", 1).split(".")):
        raise UsageError(f"{where}: {function!r:.80} is no function", 'write "module:function"')


def _words(where: str, table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(word, str) and "\0" not in word for word in found):
        raise UsageError(f"{where}: {key} is no list of texts", f'write {key} = ["…", "…"]')
    return tuple(found)


def _parse_measure(name: str, table: object) -> Measure:
    if not isinstance(table, dict):
        raise UsageError(f"measure {name!r} is no table", f"write [measure.{name}]")
    where = f"measure {name!r}"
    _expect_keys(where, table, {"unit", "better", "floor", "exact", "tolerance"})
    if table.get("better", "lower") not in {"lower", "higher"}:
        raise UsageError(f"{where}: better = {table['better']!r:.40}", 'use "lower" or "higher"')
    known = known_measure(name)
    if table.get("exact") is True:
        known = known._replace(floor=0.0)
    numbers = [table.get(key, getattr(known, key)) for key in ("floor", "tolerance")]
    exact, unit = table.get("exact", known.exact), table.get("unit", known.unit)
    are_numbers = all(type(number) in {int, float} and number >= 0 for number in numbers)
    if not are_numbers or type(exact) is not bool or not isinstance(unit, str):
        remedy = "unit is a text, floor and tolerance are numbers, exact is true or false"
        raise UsageError(f"{where} makes no sense", remedy)
    floor, tolerance = map(float, numbers)
    return Measure(name, unit, table.get("better", known.better), floor, exact, tolerance)


def _parse_threshold(table: dict[str, Any]) -> Threshold:
    _expect_keys("a threshold", table, set(Threshold._fields))
    names = {key: table.get(key, "*") for key in ("benchmark", "measure", "branch", "testbed")}
    if "measure" not in table or not all(isinstance(name, str) for name in names.values()):
        raise UsageError("a threshold does not say for which measure", 'write measure = "wall"')
    test = table.get("test")
    if test not in {"static", *TESTS}:
        raise UsageError(f"a threshold has test = {test!r:.40}", f"use static, {', '.join(TESTS)}")
    if table.get("lower") is None and table.get("upper") is None:
        raise UsageError(f"a threshold for {names['measure']!r:.40} has no bound", "give lower, upper or both")
    for key in {"lower", "upper"} & table.keys():
        _expect_bound(f"a threshold for {names['measure']!r:.40}", key, table[key], test)
    for key in {"min_values", "max_values"} & table.keys():
        if type(table[key]) is not int or not 1 <= table[key] <= MAX_RUNS:
            raise UsageError(f"a threshold has {key} = {table[key]!r:.40}", f"use 1 to {MAX_RUNS}")
    return Threshold(**table)


def _expect_bound(where: str, key: str, bound: object, test: str) -> None:
    if type(bound) not in {int, float} or not (isinstance(bound, (int, float)) and 0 <= bound < math.inf):
        raise UsageError(f"{where}: {key} = {bound!r:.40}", "use a number of at least 0")
    if test in BY_PROBABILITY and not 0.5 <= bound < 1:
        raise UsageError(f"{where}: {key} = {bound!r:.40}", "it is a probability: use 0.5 to below 1, for example 0.99")


def _expect_keys(where: str, table: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(table.keys() - known):
        raise UsageError(f"{where} has {unknown[0]!r}, which means nothing", f"use {', '.join(sorted(known))}")
