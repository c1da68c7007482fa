"""The symbol server, asked by the front-end's own code (npm's @firefox-devtools/profiler-cli) about a real program."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from fixtures.front_end import open_in_front_end, serving
from fixtures.profiles import Frame, build_profile
from stackhound import _native
from stackhound.profile.columns import with_columns
from stackhound.server.firefox import make_server
from stackhound.server.local import LocalServer

SOURCE = Path(__file__).parents[1] / "fixtures/workloads/shown.c"
LINES = SOURCE.read_text().splitlines()
CALL_LINE = next(number for number, line in enumerate(LINES, 1) if "work((unsigned)argc)" in line)
ADD_LINE = next(number for number, line in enumerate(LINES, 1) if "sum * 33" in line)


class Program:
    """The program, compiled: where its functions are, as binutils say."""

    def __init__(self, directory, source=SOURCE, compiler=("gcc",)):
        self.source = directory / "shown.c"
        self.source.write_bytes(source.read_bytes())
        self.path = directory / "shown"
        flags = ("-O2", "-g", "-gdwarf-5", "-fno-pie")
        subprocess.run((*compiler, *flags, "-c", self.source, "-o", directory / "shown.o"), check=True, cwd=directory)
        link = ("gcc", "-no-pie", "-Wl,--build-id=sha1", directory / "shown.o", "-o", self.path)
        subprocess.run(link, check=True)
        rows = [line.split() for line in output("nm", "-S", self.path).splitlines()]
        self.symbols = {row[3]: (int(row[0], 16), int(row[1], 16)) for row in rows if len(row) == 4}

    def inlined(self, inner, outer):
        """An address at which one function is inlined into another."""
        start, size = self.symbols[outer]
        for address in range(start, start + size):
            found = output("addr2line", "-e", self.path, "-i", "-f", hex(address)).splitlines()
            if found[::2] == [inner, outer]:
                return address
        raise AssertionError(f"{inner} is not inlined into {outer}")

    def profile(self, work_address=None):
        """What a recording would have of it: a call of ``work``, in which ``add`` is at work."""
        work_address = work_address or self.inlined("add", "work")
        source = str(self.source)
        main = Frame("main", path=str(self.path), file=source, line=CALL_LINE)
        work = Frame("work", path=str(self.path), file=source, line=ADD_LINE - 2)
        add = Frame("add", path=str(self.path), file=source, line=ADD_LINE, inlined=True)
        profile = build_profile([("shown", 7, 7, 0, 20_000_000, [main, work, add], 10_000_000, 1)])
        starts = {"main": self.symbols["main"], "work": self.symbols["work"], "add": (0, 0)}
        places = [starts[name] for name in profile.texts("functions", "name")]
        return profile.derive({
            "objects": with_columns(profile.table("objects"), build_id=[_native.build_id(str(self.path))]),
            "functions": with_columns(
                profile.table("functions"), address=[start for start, _ in places], size=[size for _, size in places]
            ),
            "locations": with_columns(
                profile.table("locations"), address=[starts["main"][0] + 1, work_address]
            ),
        })  # fmt: skip


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return Program(tmp_path_factory.mktemp("shown"))


@pytest.fixture(scope="module")
def server(program):
    with serving(make_server(program.profile())) as server:
        yield server


@pytest.fixture(scope="module")
def front_end(server):
    with open_in_front_end(server.profile_url) as front_end:
        yield front_end


def ask(server, path, **request):
    """What the front-end would ask, about the program."""
    with urlopen(server.profile_url, timeout=60) as answer:
        (lib,) = (lib for lib in json.loads(answer.read())["libs"] if lib["name"] == "shown")
    body = json.dumps({"debugName": lib["debugName"], "debugId": lib["breakpadId"], **request}).encode()
    with urlopen(server.base + path, body, timeout=60) as answer:
        return json.loads(answer.read())


def test_the_front_end_shows_the_source_with_the_samples_beside_it(front_end, server):
    shown = front_end.annotate(server, "add")["srcAnnotation"]
    assert [line["sourceText"] for line in shown["lines"]][: len(LINES)] == LINES
    assert [line["lineNumber"] for line in shown["lines"] if line["selfSamples"]] == [ADD_LINE]
    assert [line["lineNumber"] for line in shown["lines"] if line["totalSamples"]] == [
        ADD_LINE - 2,
        ADD_LINE,
        CALL_LINE,
    ]


def test_the_front_end_shows_the_assembly_as_binutils_do(front_end, server, program):
    (shown,) = front_end.annotate(server, "main")["asmAnnotations"]
    start, size = program.symbols["main"]
    assert (shown["symbolAddress"], shown["functionSize"], shown["fetchError"]) == (start, size, None)
    disassembled = output("objdump", "-d", "--no-show-raw-insn", "--disassemble=main", program.path).splitlines()
    addresses = [int(line.split(":")[0], 16) for line in disassembled if line.startswith(" ")]
    assert [one["address"] for one in shown["instructions"]] == addresses
    (call,) = (one["decodedString"] for one in shown["instructions"] if "<work>" in one["decodedString"])
    assert f"{program.symbols['work'][0]:#x}" in call


def test_calls_through_the_linkage_table_say_whom_they_call(server, program):
    start, size = program.symbols["main"]
    answer = ask(server, "/asm/v1", startAddress=hex(start), size=hex(size))
    assert any(text.endswith("<printf@plt>") for _, text in answer["instructions"])
    assert answer["size"] == hex(size)


def test_a_function_of_unknown_size_is_shown_to_its_end(server, program):
    start, size = program.symbols["work"]
    request = {"startAddress": hex(start), "size": "0x1", "continueUntilFunctionEnd": True}
    assert ask(server, "/asm/v1", **request)["size"] == hex(size)


@pytest.mark.parametrize("address", ["0x1", "0xffffffffffffffff", "0x0"])
def test_where_there_is_no_code_it_says_so(server, address):
    assert "no code" in ask(server, "/asm/v1", startAddress=address, size="0x10")["error"]


def test_the_front_end_finds_names_that_the_profile_lacks(program):
    profile = program.profile()
    with urlopen_once(profile) as document:
        nameless = {**document, "meta": {**document["meta"], "symbolicated": False}}
    shared = nameless["shared"]
    shared["funcTable"]["name"] = [0] * shared["funcTable"]["length"]
    with (
        serving(with_document(profile, nameless)) as server,
        open_in_front_end(server.profile_url, "--symbol-server", server.base) as front_end,
    ):
        tree = front_end.ask("thread", "samples-top-down")["regularCallTree"]
        names = []
        while tree["children"]:
            tree = tree["children"][0]
            names.append(tree["name"])
        assert names == ["main", "work", "add"]
        assert front_end.complaints() == []


@contextmanager
def urlopen_once(profile):
    with serving(make_server(profile)) as server, urlopen(server.profile_url, timeout=60) as answer:
        yield json.loads(answer.read())


def with_document(profile, document):
    """A server for a profile that gives out another document."""
    with make_server(profile) as server:
        answers = server.answers
    return LocalServer(json.dumps(document).encode(), answers, origin="https://profiler.firefox.com")


def test_inlined_functions_are_found_with_their_places(server, program):
    address = program.inlined("add", "work")
    with urlopen(server.profile_url, timeout=60) as answer:
        (lib,) = json.loads(answer.read())["libs"]
    job = {"memoryMap": [[lib["debugName"], lib["breakpadId"]]], "stacks": [[[0, address]]]}
    with urlopen(f"{server.base}/symbolicate/v5", json.dumps(job).encode(), timeout=60) as answer:
        (frame,) = json.loads(answer.read())["results"][0]["stacks"][0]
    source = str(program.source)
    assert (frame["function"], frame["file"]) == ("work", source)
    assert frame["inlines"] == [{"function": "add", "file": source, "line": ADD_LINE}]
    assert int(frame["function_offset"], 16) == address - program.symbols["work"][0]


def test_a_program_that_was_built_again_is_refused_and_says_so(tmp_path):
    program = Program(tmp_path)
    with serving(make_server(program.profile())) as server:
        start, size = program.symbols["main"]
        request = {"startAddress": hex(start), "size": hex(size)}
        assert "instructions" in ask(server, "/asm/v1", **request)
        changed = tmp_path / "changed.c"
        changed.write_text(SOURCE.read_text().replace("5381", "5382"))
        Program(tmp_path, changed)
        assert "build-id" in ask(server, "/asm/v1", **request)["error"]
        program.path.unlink()
        assert "gone" in ask(server, "/asm/v1", **request)["error"]


def test_source_that_changed_since_it_was_compiled_is_refused_where_its_checksum_is_known(tmp_path):
    program = Program(tmp_path, compiler=(sys.executable, "-m", "ziglang", "cc"))
    address = hex(program.symbols["main"][0])
    request = {"moduleOffset": address, "file": str(program.source)}
    with serving(make_server(program.profile(program.symbols["work"][0]))) as server:
        assert ask(server, "/source/v1", **request)["source"] == SOURCE.read_text()
        program.source.write_text("// changed\n")
        assert "changed since it was compiled" in ask(server, "/source/v1", **request)["error"]


def test_sources_that_were_compiled_elsewhere_are_found_by_a_source_map(tmp_path):
    program = Program(tmp_path)
    moved = shutil.move(program.source, tmp_path.parent / f"{tmp_path.name}-moved.c")
    request = {"moduleOffset": hex(program.symbols["main"][0]), "file": str(program.source)}
    with serving(make_server(program.profile())) as server:
        assert "no such file" in ask(server, "/source/v1", **request)["error"]
    with serving(make_server(program.profile(), source_maps=[(str(program.source), str(moved))])) as server:
        assert ask(server, "/source/v1", **request)["source"] == SOURCE.read_text()


def test_stripped_programs_are_named_by_their_debug_files(tmp_path):
    program = Program(tmp_path)
    profile, build_id = program.profile(), _native.build_id(str(program.path))
    debug = tmp_path / "debug/.build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    debug.parent.mkdir(parents=True)
    subprocess.run(("objcopy", "--only-keep-debug", program.path, debug), check=True)
    subprocess.run(("strip", program.path), check=True)
    request = {"moduleOffset": hex(program.symbols["main"][0]), "file": str(program.source)}
    with serving(make_server(profile, debug_dirs=[tmp_path / "debug"])) as server:
        assert ask(server, "/source/v1", **request)["source"] == SOURCE.read_text()


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("python", "app.py", "def handler():\n    return 1\n"),
        ("jit", "app.js", "function handler() {\n  return 1;\n}\n"),
    ],
    ids=["python", "jit"],
)
def test_the_source_of_scripts_is_shown_by_the_front_end(tmp_path, kind, name, text):
    path = tmp_path / name
    path.write_text(text)
    object_path = str(path) if kind == "python" else "[code of app 7@1]"
    handler = Frame("handler", kind=kind, path=object_path, file=str(path), line=2)
    profile = build_profile([("app", 7, 7, 0, 20_000_000, [handler], 10_000_000, 1)])
    with serving(make_server(profile)) as server, open_in_front_end(server.profile_url) as front_end:
        shown = front_end.annotate(server, "handler")["srcAnnotation"]
        assert [line["sourceText"] for line in shown["lines"]][:2] == text.splitlines()[:2]
        assert [line["lineNumber"] for line in shown["lines"] if line["selfSamples"]] == [2]
