"""How long the symbol server takes to answer for a program of 100 MB, Node.js, first and then.

    .venv/bin/python benches/symbol_server.py [--check]

A recording of Node.js is served as `stackhound view --firefox` does, and asked over HTTP what the Firefox Profiler
asks: the functions at its addresses in the program, and the assembly of one function after the other. Targets: the
first answer of a server ≤ 1 s, of either kind; the next ones ≤ 20 ms, each of what was not asked before.

Control: every address that has a function in the recording has one here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import orjson

from harness.build import BENCHES, STACKHOUND
from harness.report import Report
from stackhound.profile import load
from stackhound.server.firefox import make_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.profile import Profile
    from stackhound.server.local import LocalServer

TARGET_FIRST_S = 1.0
TARGET_NEXT_MS = 20.0
HZ = 999
NEXT = 100


class FrontEnd:
    """What a page does: it loads the profile, and asks."""

    def __init__(self, server: LocalServer) -> None:
        self.base = server.base
        self.profile = orjson.loads(self._fetch("/profile.json"))
        libs = self.profile["libs"]
        self.lib = max(range(len(libs)), key=lambda row: Path(libs[row]["path"]).name == "node")
        self.key = (libs[self.lib]["debugName"], libs[self.lib]["breakpadId"])
        self.path = Path(libs[self.lib]["path"])

    def addresses(self) -> list[int]:
        """All in the program that have a name in the recording, each once."""
        frames = self.profile["shared"]["frameTable"]
        columns = zip(frames["address"], frames["lib"], frames["nativeSymbol"], strict=True)
        return sorted({address for address, lib, symbol in columns if lib == self.lib and symbol is not None})

    def symbols(self) -> list[tuple[int, int]]:
        """Address and size of the functions in the program."""
        table = self.profile["shared"]["nativeSymbols"]
        columns = zip(table["libIndex"], table["address"], table["functionSize"], strict=True)
        return [(address, size or 0x100) for lib, address, size in columns if lib == self.lib]

    def symbolicate(self, addresses: list[int]) -> list[dict[str, Any]]:
        job = {"memoryMap": [self.key], "stacks": [[[0, address] for address in addresses]]}
        found: list[dict[str, Any]] = self._ask("/symbolicate/v5", {"jobs": [job]})["results"][0]["stacks"][0]
        return found

    def disassemble(self, address: int, size: int) -> dict[str, Any]:
        where = {"startAddress": hex(address), "size": hex(size), "continueUntilFunctionEnd": False}
        return self._ask("/asm/v1", {"debugName": self.key[0], "debugId": self.key[1], **where})

    def _ask(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = orjson.loads(self._fetch(path, orjson.dumps(request)))
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def _fetch(self, path: str, body: bytes | None = None) -> bytes:
        with urlopen(self.base + path, body, timeout=60) as answer:
            found: bytes = answer.read()
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="once, for a recording of a second")
    options = parser.parse_args()
    profile = record(1 if options.check else 5)
    report = Report("symbol_server", {"turns": options.turns})
    turns = [take_turn(profile) for _ in range(1 if options.check else options.turns)]
    show(report, turns)
    known = {turn["known"] == turn["addresses"] for turn in turns}
    report.control("every address that has a function in the recording has one here", str(known), known == {True})
    report.finish()


def record(seconds: int) -> Profile:
    """Node.js at work: the machine's own, since the one that PyPI has is a script that starts a stripped one."""
    elsewhere = [path for path in os.environ["PATH"].split(os.pathsep) if path != str(Path(sys.executable).parent)]
    node = shutil.which("node", path=os.pathsep.join(elsewhere))
    if node is None:
        sys.exit("error: there is no Node.js here")
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "node.hound")
        work = "JSON.parse(JSON.stringify({a: [1, 2, {b: 'text'.repeat(9)}]}))"
        program = (node, "-e", f"for (const end = Date.now() + {1000 * seconds}; Date.now() < end;) {work}")
        command = (STACKHOUND, "record", "-F", str(HZ), "-o", path, "--", *program)
        subprocess.run(command, check=True, capture_output=True, cwd=BENCHES)
        return load(path)


@contextmanager
def front_end(profile: Profile) -> Iterator[FrontEnd]:
    with make_server(profile) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield FrontEnd(server)
        finally:
            server.shutdown()
            thread.join()


def take_turn(profile: Profile) -> dict[str, Any]:
    with front_end(profile) as page:
        addresses, symbols = page.addresses(), page.symbols()
        first_s, _ = timed(page.symbolicate, addresses[:1])
        next_ms = [timed(page.symbolicate, [address])[0] * 1e3 for address in addresses[1:NEXT]]
        all_s, frames = timed(page.symbolicate, addresses)
        megabytes = page.path.stat().st_size / 1e6
    with front_end(profile) as page:
        first_asm_s, _ = timed(page.disassemble, *symbols[0])
        next_asm_ms = [timed(page.disassemble, *symbol)[0] * 1e3 for symbol in symbols[1:NEXT]]
    return {
        "megabytes": megabytes,
        "first_s": first_s,
        "next_ms": next_ms,
        "all_ms": all_s * 1e3,
        "first_asm_s": first_asm_s,
        "next_asm_ms": next_asm_ms,
        "addresses": len(addresses),
        "known": sum("function" in frame for frame in frames),
    }


def timed(call: Any, *arguments: Any) -> tuple[float, Any]:
    begin = time.perf_counter()
    found = call(*arguments)
    return time.perf_counter() - begin, found


def show(report: Report, turns: list[dict[str, Any]]) -> None:
    rows = []
    for what, first, then in (("functions", "first_s", "next_ms"), ("assembly", "first_asm_s", "next_asm_ms")):
        first_s = statistics.median(turn[first] for turn in turns)
        each_ms = [one for turn in turns for one in turn[then]] or [0.0]
        rows.append((what, f"{first_s:.3f}", f"{statistics.median(each_ms):.1f}", f"{max(each_ms):.1f}"))
        wanted = f"≤ {TARGET_FIRST_S:.0f} s"
        report.target(f"first answer, {what}", wanted, f"{first_s:.2f} s", first_s <= TARGET_FIRST_S)
        got = f"{statistics.median(each_ms):.1f} ms, the slowest {max(each_ms):.1f} ms"
        wanted = f"≤ {TARGET_NEXT_MS:.0f} ms"
        report.target(f"next answers, {what}", wanted, got, statistics.median(each_ms) <= TARGET_NEXT_MS)
    title = f"a program of {turns[0]['megabytes']:.0f} MB; all {turns[0]['addresses']} addresses at once: "
    title += f"{statistics.median(turn['all_ms'] for turn in turns):.0f} ms"
    report.table(title, ("", "first, s", "next, median ms", "slowest ms"), rows, turns)


if __name__ == "__main__":
    main()
