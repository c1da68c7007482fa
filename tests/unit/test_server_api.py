"""The symbol server's answers, with files that only the test knows."""

from __future__ import annotations

import pytest

from stackhound.server import api
from stackhound.server.api import SymbolApi
from stackhound.server.modules import Function, Module
from stackhound.server.refusal import Refused
from stackhound.server.sources import Sources

APP = Module("elf", "/usr/bin/app", "ab")
MAIN = Function("main", "/src/main.c", 12, 5, 0x1000, 0x40)
ADD = Function("add", "/src/add.h", 3, 9, 0, 0)


class FakeModules:
    """One program with a function of 64 bytes at 0x1000, into which another was inlined at 0x1010."""

    def __init__(self, python="/srv/app.py"):
        self.known = {
            ("app", "ID"): APP,
            ("app.py", "PY"): Module("python", python, ""),
            ("[code of app]", "JIT"): Module("jit", "[code of app]", ""),
        }

    def find(self, name, identifier):
        if (name, identifier) not in self.known:
            raise Refused("the profile has no such file")
        return self.known[name, identifier]

    def functions(self, module, addresses):
        assert module == APP
        if max(addresses) == 0xDEAD:
            raise Refused("file changed")
        return [self.at(address) for address in addresses]

    def at(self, address):
        if not 0x1000 <= address < 0x1040:
            return []
        return [ADD, MAIN] if address == 0x1010 else [MAIN]

    def instructions(self, module, start, size, *, whole):
        assert (module, start, size, whole) == (APP, 0x1000, 0x40, True)
        return "x86_64", 5, [(0, "push rbp"), (1, "call 0x2000 <\x1bevil>")]

    def scripts(self, module):
        assert module.kind in {"python", "jit"}
        return {self.known["app.py", "PY"].path}

    def source_md5(self, _module, _address, _source):
        return None


@pytest.fixture
def server(tmp_path):
    (tmp_path / "main.c").write_text("int main;\n")
    (tmp_path / "secret").write_text("secret\n")
    return SymbolApi(FakeModules(), Sources([("/src", str(tmp_path))]))


def symbolicate(server, *addresses, module=("app", "ID")):
    job = {"memoryMap": [list(module)], "stacks": [[[0, address] for address in addresses]]}
    return server.symbolicate({"jobs": [job]})["results"][0]


def source(server, **changed):
    request = {"debugName": "app", "debugId": "ID", "moduleOffset": "0x1004", "file": "/src/main.c", **changed}
    return server.source(request)


def test_an_address_has_its_function_and_place(server):
    (frame,) = symbolicate(server, 0x1004)["stacks"][0]
    assert frame == {
        "frame": 0,
        "module": "app",
        "module_offset": "0x1004",
        "function": "main",
        "function_offset": "0x4",
        "function_size": "0x40",
        "file": "/src/main.c",
        "line": 12,
    }


def test_inlined_functions_come_with_the_one_that_they_are_in(server):
    (frame,) = symbolicate(server, 0x1010)["stacks"][0]
    assert frame["function"] == "main"
    assert frame["inlines"] == [{"function": "add", "file": "/src/add.h", "line": 3}]


def test_an_address_of_nothing_has_no_function(server):
    (frame,) = symbolicate(server, 0x5000)["stacks"][0]
    assert frame == {"frame": 0, "module": "app", "module_offset": "0x5000"}


def test_answers_are_in_the_order_of_the_questions(server):
    frames = symbolicate(server, 0x1010, 0x1004, 0x1010)["stacks"][0]
    assert [frame["module_offset"] for frame in frames] == ["0x1010", "0x1004", "0x1010"]


def test_a_file_that_is_not_the_profiles_is_not_found(server):
    result = symbolicate(server, 0x1004, module=("passwd", "X"))
    assert result["found_modules"] == {"passwd/X": False}
    assert "no such file" in result["module_errors"]["passwd/X"][0]["message"]


def test_a_file_that_changed_says_so_and_the_others_are_answered(server):
    job = {"memoryMap": [["app", "ID"], ["passwd", "X"]], "stacks": [[[0, 0x1004], [1, 1]]]}
    result = server.symbolicate(job)["results"][0]
    assert result["found_modules"] == {"app/ID": True, "passwd/X": False}
    assert symbolicate(server, 0xDEAD)["module_errors"] == {"app/ID": [{"name": "Refused", "message": "file changed"}]}


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"jobs": 1},
        {"jobs": [1]},
        {"memoryMap": [], "stacks": 1},
        {"memoryMap": [], "stacks": [1]},
        {"memoryMap": [], "stacks": [[1]]},
        {"memoryMap": [], "stacks": [[[0, 1]]]},
        {"memoryMap": [["app", "ID"]], "stacks": [[[0, -1]]]},
        {"memoryMap": [["app", "ID"]], "stacks": [[[0, 2**64]]]},
        {"memoryMap": [["app", "ID"]], "stacks": [[["0", "1"]]]},
        {"memoryMap": [["app"]], "stacks": []},
        {"memoryMap": ["app"], "stacks": []},
        {"memoryMap": [[1, 2]], "stacks": []},
    ],
)
def test_requests_of_another_shape_are_malformed(server, request_):
    with pytest.raises(Refused, match="malformed") as raised:
        server.symbolicate(request_)
    assert raised.value.status == 400


def test_more_addresses_than_any_profile_has_are_refused(server, monkeypatch):
    monkeypatch.setattr(api, "MAX_ADDRESSES", 2)
    assert symbolicate(server, 0x1004, 0x1010)
    with pytest.raises(Refused, match="more than"):
        symbolicate(server, 0x1004, 0x1010, 0x1011)


def test_source_is_read_where_debug_information_names_it(server):
    assert source(server) == {"source": "int main;\n"}


@pytest.mark.parametrize(
    "changed",
    [
        {"file": "/src/secret"},
        {"file": "/etc/passwd"},
        {"file": "/src/../src/main.c"},
        {"file": "/src/add.h"},  # is named at another address
        {"moduleOffset": "0x5000"},
    ],
)
def test_source_that_debug_information_does_not_name_there_is_refused(server, changed):
    with pytest.raises(Refused, match="another file, or none"):
        source(server, **changed)


@pytest.mark.parametrize("offset", ["", "x", "-0x1", "1" * 400, None, 7, "0x1_0000_0000_0000_0000_0"])
def test_an_offset_that_is_none_is_malformed(server, offset):
    with pytest.raises(Refused, match="malformed"):
        source(server, moduleOffset=offset)


@pytest.mark.parametrize("identifier", [["ID"], {"a": 1}, None, 7])
def test_a_module_that_is_no_name_is_not_found_or_malformed(server, identifier):
    with pytest.raises(Refused):
        source(server, debugId=identifier)


@pytest.mark.parametrize("module", [("app.py", "PY"), ("[code of app]", "JIT")], ids=["python", "jit"])
def test_scripts_are_read_from_the_file_of_their_functions(tmp_path, module):
    path = tmp_path / "app.py"
    path.write_text("x = 1\n")
    server = SymbolApi(FakeModules(str(path)), Sources())
    request = dict(zip(("debugName", "debugId"), module, strict=True)) | {"moduleOffset": "0x2", "file": str(path)}
    assert server.source(request) == {"source": "x = 1\n"}
    with pytest.raises(Refused, match="another file"):
        server.source({**request, "file": "/etc/passwd"})


def test_instructions_are_text_that_is_safe_to_show(server):
    request = {"startAddress": "0x1000", "size": "0x40", "continueUntilFunctionEnd": True}
    answer = server.assembly({"debugName": "app", "debugId": "ID", **request})
    assert answer == {
        "startAddress": "0x1000",
        "size": "0x5",
        "arch": "x86_64",
        "syntax": ["Intel"],
        "instructions": [[0, "push rbp"], [1, r"call 0x2000 <\x1bevil>"]],
    }
