"""The answers of a symbol server: requests and replies are JSON objects.

    POST /symbolicate/v5  {"jobs": [{"memoryMap": [[name, id], …], "stacks": [[[module, address], …], …]}, …]}
    POST /source/v1       {"debugName": …, "debugId": …, "moduleOffset": "0x12", "file": …}
    POST /asm/v1          {"debugName": …, "debugId": …, "startAddress": "0x12", "size": "0x34",
                           "continueUntilFunctionEnd": false}

Sources: https://tecken.readthedocs.io/en/latest/symbolication.html and samply-api's README for the other two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from stackhound.profile.escape import printable
from stackhound.server.modules import SCRIPT_KINDS
from stackhound.server.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stackhound.server.modules import Function, Modules
    from stackhound.server.sources import Sources

Json = dict[str, Any]

#: Of one request, all jobs together: a whole profile's have some 100,000.
MAX_ADDRESSES: Final = 1_000_000
HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]{1,16}")
SYNTAXES: Final = {"x86_64": "Intel", "aarch64": "Arm"}


class SymbolApi:
    """Answers for one profile. Only its files are read, and only source files that they name."""

    def __init__(self, modules: Modules, sources: Sources) -> None:
        self._modules = modules
        self._sources = sources

    @property
    def paths(self) -> dict[str, Callable[[Json], Json]]:
        """What answers a request, by its path."""
        return {"/symbolicate/v5": self.symbolicate, "/source/v1": self.source, "/asm/v1": self.assembly}

    def symbolicate(self, request: Json) -> Json:
        """The functions at addresses, inlined ones too."""
        jobs = request.get("jobs", [request])
        if not isinstance(jobs, list):
            raise _malformed("jobs")
        budget = MAX_ADDRESSES
        results = []
        for job in jobs:
            keys = _read_modules(job)
            stacks = _read_stacks(job, len(keys))
            budget -= sum(map(len, stacks))
            if budget < 0:
                raise Refused(f"more than {MAX_ADDRESSES:,} addresses", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            results.append(self._job(keys, stacks))
        return {"results": results}

    def source(self, request: Json) -> Json:
        """The text of a source file that debug information names at an address, or of one that was run as it is."""
        module = self._modules.find(_read_text(request, "debugName"), _read_text(request, "debugId"))
        address, wanted = _read_address(request, "moduleOffset"), _read_text(request, "file")
        if module.kind in SCRIPT_KINDS:
            return {"source": self._sources.read_script(_choose(wanted, self._modules.scripts(module)))}
        functions = self._modules.functions(module, [address])[0]
        path = _choose(wanted, (function.file for function in functions if function.file))
        return {"source": self._sources.read(path, self._modules.source_md5(module, address, path))}

    def assembly(self, request: Json) -> Json:
        """The instructions of a function."""
        module = self._modules.find(_read_text(request, "debugName"), _read_text(request, "debugId"))
        start, size = _read_address(request, "startAddress"), _read_address(request, "size")
        whole = request.get("continueUntilFunctionEnd") is True
        machine, length, instructions = self._modules.instructions(module, start, size, whole=whole)
        return {
            "startAddress": hex(start),
            "size": hex(length),
            "arch": machine,
            "syntax": [SYNTAXES[machine]],
            "instructions": [[offset, printable(text)] for offset, text in instructions],
        }

    def _job(self, keys: list[tuple[str, str]], stacks: list[list[tuple[int, int]]]) -> Json:
        job = _Job()
        for number, key in enumerate(keys):
            addresses = sorted({address for stack in stacks for module, address in stack if module == number})
            if addresses:
                self._answer(job, number, key, addresses)
        frames = [
            [
                _frame(place, keys[module][0], address, job.functions.get((module, address), []))
                for place, (module, address) in enumerate(stack)
            ]
            for stack in stacks
        ]
        return {"stacks": frames, "found_modules": job.found_modules, "module_errors": job.errors}

    def _answer(self, job: _Job, number: int, key: tuple[str, str], addresses: list[int]) -> None:
        """What one module has at these addresses."""
        name = "/".join(key)
        try:
            answers = self._modules.functions(self._modules.find(*key), addresses)
        except Refused as refused:
            job.errors[name] = [{"name": "Refused", "message": refused.reason}]
        else:
            job.functions.update(((number, address), one) for address, one in zip(addresses, answers, strict=True))
        job.found_modules[name] = name not in job.errors


@dataclass
class _Job:
    """What was found for a request: by (module, address), and by module."""

    functions: dict[tuple[int, int], list[Function]] = field(default_factory=dict)
    found_modules: dict[str, bool] = field(default_factory=dict)
    errors: dict[str, list[dict[str, str]]] = field(default_factory=dict)


def _frame(place: int, module: str, address: int, functions: list[Function]) -> Json:
    frame: Json = {"frame": place, "module": module, "module_offset": hex(address)}
    if not functions:
        return frame
    *inlined, outer = functions
    frame |= _place(outer)
    frame["function_offset"] = hex(address - outer.start if 0 < outer.start <= address else 0)
    if outer.size:
        frame["function_size"] = hex(outer.size)
    if inlined:
        frame["inlines"] = [_place(function) for function in inlined]
    return frame


def _place(function: Function) -> Json:
    known: Json = {"function": printable(function.name)}
    if function.file:
        known["file"] = printable(function.file)
    if function.line:
        known["line"] = function.line
    return known


def _choose(wanted: str, files: Iterable[str]) -> str:
    """The one of the files that is shown so."""
    for file in files:
        if printable(file) == wanted:
            return file
    raise Refused("another file, or none, is named at this address")


# --- Requests, which may be anything ----------------------------------------------------------------------------------


def _malformed(what: str) -> Refused:
    return Refused(f"malformed request: {what}", HTTPStatus.BAD_REQUEST)


def _read_text(request: Json, key: str) -> str:
    text = request.get(key)
    if not isinstance(text, str):
        raise _malformed(key)
    return text


def _read_address(request: Json, key: str) -> int:
    """A number as ``0x12``."""
    text = _read_text(request, key)
    if not HEXADECIMAL.fullmatch(text):
        raise _malformed(key)
    return int(text, 16)


def _read_number(number: object, limit: int) -> int:
    if type(number) is not int or not 0 <= number < limit:
        raise _malformed("stacks")
    return number


def _read_modules(job: object) -> list[tuple[str, str]]:
    modules = job.get("memoryMap") if isinstance(job, dict) else None
    if not isinstance(modules, list):
        raise _malformed("memoryMap")
    keys = [tuple(key) for key in modules if isinstance(key, list)]
    if len(keys) < len(modules) or not all(len(key) == 2 and all(isinstance(one, str) for one in key) for key in keys):
        raise _malformed("memoryMap")
    return keys


def _read_stacks(job: object, modules: int) -> list[list[tuple[int, int]]]:
    stacks = job.get("stacks") if isinstance(job, dict) else None
    if not isinstance(stacks, list) or not all(isinstance(stack, list) for stack in stacks):
        raise _malformed("stacks")
    return [[_read_frame(frame, modules) for frame in stack] for stack in stacks]


def _read_frame(frame: object, modules: int) -> tuple[int, int]:
    if not isinstance(frame, list) or len(frame) != 2:
        raise _malformed("stacks")
    return _read_number(frame[0], modules), _read_number(frame[1], 2**64)
