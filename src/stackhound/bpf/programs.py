"""Programs and maps as the kernel describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from stackhound import _native
from stackhound.errors import UsageError
from stackhound.profile.native_errors import native_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Attachment(NamedTuple):
    """Where a program is attached: the number of the link, and like ``tracepoint sched:sched_switch``."""

    link_id: int
    place: str


class Owner(NamedTuple):
    """A process that holds a program."""

    pid: int
    comm: str


@dataclass(frozen=True)
class Program:
    """One program.

    Attributes:
        id: as the kernel numbers it; another program may get it later.
        name: its function's.
        type: as libbpf calls it: ``tracing``, ``xdp``, …
        tag: of its instructions, hexadecimal.
        loaded_boottime_ns: when, on CLOCK_BOOTTIME.
        uid: of the user who loaded it.
        verified_instructions: those that the verifier went through, paths counted; 0: the kernel does not say.
        instructions: after the verifier.
        jited_bytes: of machine code; 0: it is interpreted.
        memory_bytes: that it is charged for, without its maps.
        map_ids: of the maps that it uses.
        functions: (address, bytes) of the machine code of it and of its subprograms.
        runs, run_ns, recursion_misses: as far as the kernel's statistics have been on.
        attachments: by links; what is attached in older ways is not told.
        owners: processes that hold it by a descriptor, as far as they may be looked at.
    """

    id: int
    name: str
    type: str
    tag: str
    loaded_boottime_ns: int
    uid: int
    verified_instructions: int
    instructions: int
    jited_bytes: int
    memory_bytes: int
    map_ids: tuple[int, ...]
    functions: tuple[tuple[int, int], ...]
    runs: int
    run_ns: int
    recursion_misses: int
    attachments: tuple[Attachment, ...]
    owners: tuple[Owner, ...]


@dataclass(frozen=True)
class Map:
    """One map.

    Attributes:
        memory_bytes: that it is charged for.
        entries: of a hash table, how many there are; None where there is nothing to count, or too much.
    """

    id: int
    name: str
    type: str
    key_bytes: int
    value_bytes: int
    max_entries: int
    memory_bytes: int
    entries: int | None


def list_programs() -> list[Program]:
    """All programs of the machine, by their ids.

    Raises:
        PermissionMissing: that takes CAP_SYS_ADMIN.
    """
    with native_errors():
        return [_program(said) for said in _native.bpf_programs()]


def list_programs_alone(ids: Iterable[int]) -> list[Program]:
    """Those with these ids, as far as they are still there, without attachments and owners, which take longer."""
    with native_errors():
        return [_program(said) for said in _native.bpf_programs_alone(list(ids))]


def list_maps(ids: Iterable[int]) -> list[Map]:
    """The maps with these ids, as far as they are still there."""
    with native_errors():
        return [Map(**said) for said in _native.bpf_maps(list(ids))]


def choose_programs(programs: Sequence[Program], wanted: str) -> list[Program]:
    """The program with this id, or those with this name.

    Raises:
        UsageError: there is none.
    """
    found = [one for one in programs if wanted in (str(one.id), one.name)]
    if not found:
        raise UsageError(f"there is no BPF program {wanted!r}", "'stackhound bpf list' shows those that are loaded")
    return found


def _program(said: dict[str, object]) -> Program:
    given: dict[str, object] = {
        **said,
        "map_ids": tuple(said["map_ids"]),  # type: ignore[arg-type]
        "functions": tuple(said["functions"]),  # type: ignore[arg-type]
        "attachments": tuple(Attachment(*one) for one in said["attachments"]),  # type: ignore[attr-defined]
        "owners": tuple(Owner(*one) for one in said["owners"]),  # type: ignore[attr-defined]
    }
    return Program(**given)  # type: ignore[arg-type]
