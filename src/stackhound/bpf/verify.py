"""What the verifier makes of the programs of an object file, in words that people can use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from stackhound import _native
from stackhound.errors import UsageError
from stackhound.profile.native_errors import native_errors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_PROCESSED: Final = re.compile(
    r"processed (\d+) insns \(limit (\d+)\) max_states_per_insn (\d+) total_states (\d+) peak_states (\d+)"
)
_STACK: Final = re.compile(r"stack depth ([\d+]+)")
_INSTRUCTION: Final = re.compile(r"(?:from \d+ to )?(\d+): \([0-9a-f]{2}\) (.*?)(?:\s+; .*)?")
_SOURCE: Final = re.compile(r"; (.*?)(?: @ ([^@]+):(\d+))?")
_REGISTERS: Final = re.compile(r"(?:\d+: |from \d+ to \d+: |; )*((?:R\d+|fp-\d+)[^;]*=.*)")


class Contained(NamedTuple):
    """A program in an object file: its function, the section that says what it is for, libbpf's name of its type."""

    name: str
    section: str
    type: str


@dataclass(frozen=True)
class Figures:
    """What the verifier had to do; the same for the same program on the same kernel.

    Attributes:
        instructions: that it went through, on all paths.
        limit: how many it would.
        max_states_per_instruction, total_states, peak_states: that it kept.
        stack_bytes: of the program and its subprograms.
    """

    instructions: int
    limit: int
    max_states_per_instruction: int
    total_states: int
    peak_states: int
    stack_bytes: tuple[int, ...]


@dataclass(frozen=True)
class Refusal:
    """Why a program is refused.

    Attributes:
        message: the verifier's.
        instruction: number and text of the one that it stopped at; empty when it did not come so far.
        source, file, line: from which that was made, where the object says so.
        registers: what it knew there.
    """

    message: str
    instruction: str
    source: str
    file: str
    line: int
    registers: str


@dataclass(frozen=True)
class Verdict:
    """What came of one program. ``refusal`` None: the kernel takes it. ``log``: the verifier's own words."""

    program: str
    figures: Figures | None
    refusal: Refusal | None
    log: str


def list_contents(path: Path) -> list[Contained]:
    """The programs of an object file.

    Raises:
        UsageError: it has none, or is no such file.
    """
    with native_errors():
        found = [Contained(*one) for one in _native.bpf_contents(str(path))]
    if not found:
        raise UsageError(f"{path} has no BPF programs", "give what 'clang -target bpf -c' or bpf-linker made")
    return found


def choose_contents(path: Path, wanted: Sequence[str]) -> list[Contained]:
    """Those of its programs that are asked for; all without names.

    Raises:
        UsageError: one is not there.
    """
    contents = list_contents(path)
    known = {one.name: one for one in contents}
    for name in wanted:
        if name not in known:
            raise UsageError(f"{path} has no program {name!r}", f"use {', '.join(known)}")
    return [known[name] for name in wanted] if wanted else contents


def verify(path: Path, programs: Sequence[str] = (), *, in_words: bool = False) -> list[Verdict]:
    """Let the kernel verify programs, each by itself, and unload them again.

    Args:
        path: of the object file.
        programs: names; all of the file without any.
        in_words: keep each step of the verifier, also where it accepts, up to 16 MiB.
    """
    return [_verify_one(path, one.name, in_words) for one in choose_contents(path, programs)]


def _verify_one(path: Path, program: str, in_words: bool) -> Verdict:
    said, reason = _load(path, program, in_words=False)
    # With so many words that they are cut off the kernel refuses any program, so this load decides nothing.
    log = _load(path, program, in_words=True)[0] if reason or in_words else said
    return Verdict(program, read_figures(said), read_refusal(log, reason) if reason else None, log)


def _load(path: Path, program: str, *, in_words: bool) -> tuple[str, str]:
    with native_errors():
        loaded = _native.BpfObject(str(path), [program], in_words)
        told = loaded.verified()[program]
        loaded.close()
    return told


def read_figures(log: str) -> Figures | None:
    """The figures at the end of the verifier's log; None where they are not there."""
    found = _PROCESSED.search(log)
    if not found:
        return None
    stack = _STACK.search(log)
    depths = tuple(int(depth) for depth in stack[1].split("+")) if stack else ()
    instructions, limit, most_states, total_states, peak_states = map(int, found.groups())
    return Figures(instructions, limit, most_states, total_states, peak_states, depths)


def read_refusal(log: str, reason: str) -> Refusal:
    """What the last lines of the log say. ``reason``: what libbpf says, where the verifier was not even asked."""
    message: list[str] = []
    instruction = source = file = registers = ""
    line = 0
    for text in map(str.strip, log.splitlines()):
        if _PROCESSED.match(text) or text.startswith(("verification time", "stack depth", "-- END")):
            continue
        if found := _INSTRUCTION.fullmatch(text):
            instruction, message = f"{found[1]}: {found[2]}", []
        elif (found := _SOURCE.fullmatch(text)) and not text.startswith("; R"):
            source, file, line = found[1], found[2] or "", int(found[3] or 0)
        elif found := _REGISTERS.fullmatch(text):
            registers = found[1]
        elif text:
            message.append(text)
    said = " ".join(message) if instruction else (message[-1] if message else reason)
    return Refusal(said or reason, instruction, source, file, line, registers)
