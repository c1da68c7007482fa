"""Writes the files that fuzzing begins with: small programs and libraries, as compilers and linkers make them.

    python fuzz/seeds.py

Nothing of it is committed: fuzz/corpus/TARGET has what this makes, and what the fuzzer found since.
"""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

FUZZ = Path(__file__).parent

SOURCE = """
#include <alloca.h>
void unknown(void *);
void leaf(void) {}
void large(void) { char room[9000]; unknown(room); }
void growing(int bytes) { unknown(alloca(bytes)); }
void aligned(void) { _Alignas(64) char room[64]; unknown(room); }
void many(int a, int b, int c, int d, int e, int f, int g) { unknown(&a); unknown(&g); leaf(); }
"""

#: Each makes one file: with and without frame pointers, tables of different sections, names and headers.
FLAGS = {
    "plain": ("-O2", "-shared", "-fPIC"),
    "frame_pointers": ("-O1", "-shared", "-fPIC", "-fno-omit-frame-pointer"),
    "landing_pads": ("-O2", "-shared", "-fPIC", "-fcf-protection=full", "-Wl,-z,ibtplt"),
    "debug_frame": ("-O2", "-shared", "-fPIC", "-g", "-fno-asynchronous-unwind-tables"),
    "compressed": ("-O2", "-shared", "-fPIC", "-g", "-fno-asynchronous-unwind-tables", "-gz=zlib"),
    "stripped": ("-O2", "-shared", "-fPIC", "-s"),
}


#: What is known for an interpreter by what it has.
INTERPRETER = FUZZ.parent / "tests" / "fixtures" / "workloads" / "interpreter.c"

#: How small processes with an interpreter are laid out: as crates/core/src/python/known.rs has it. Offsets of, in the
#: runtime: interpreters; in an interpreter: threads; in a thread state: its pthread_self(), where its frames are; in a
#: frame: its code, the one before it, its instruction; in a code object: file, name, line table.
PROCESSES = {
    9: (32, 8, 176, 24, 32, 24, 104, 104, 112, 120),
    10: (32, 8, 176, 24, 32, 24, 96, 104, 112, 120),
    11: (40, 16, 152, 56, 32, 48, 56, 112, 120, 136),
    12: (40, 72, 136, 56, 0, 8, 56, 112, 120, 136),
}
#: Where the input begins in the process that the target makes of it, and how far apart its objects are.
BASE, ROOM = 0x1000, 512


def main() -> None:
    compile_all("unwind_build", SOURCE, FLAGS)
    compile_all("names", SOURCE, FLAGS)
    add_section("names", "plain", ".gopclntab", go_table())
    compile_all("python_file", INTERPRETER.read_text(), {name: FLAGS[name] for name in ("plain", "stripped")})
    write("unwind_stored", "small", stored_table())
    write("jitdump", "small", jitdump())
    for minor, layout in PROCESSES.items():
        write("python_code", f"3.{minor}", bytes([minor - 9]) + process(minor, *layout))


def compile_all(target: str, text: str, flags: dict[str, tuple[str, ...]]) -> None:
    with TemporaryDirectory() as scratch:
        source, made = Path(scratch) / "seed.c", Path(scratch) / "seed"
        source.write_text(text)
        for name, how in flags.items():
            subprocess.run(("cc", "-nostdlib", *how, str(source), "-o", str(made)), check=True)
            write(target, name, made.read_bytes())


def add_section(target: str, name: str, section: str, content: bytes) -> None:
    """Make another of a file, with one section more."""
    program = FUZZ / "corpus" / target / name
    with TemporaryDirectory() as scratch:
        contents, made = Path(scratch) / "contents", Path(scratch) / "made"
        contents.write_bytes(content)
        subprocess.run(("objcopy", f"--add-section={section}={contents}", str(program), str(made)), check=True)
        write(target, f"{name}{section}", made.read_bytes())


def write(target: str, name: str, content: bytes) -> None:
    path = FUZZ / "corpus" / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    print(path)


def process(minor: int, *layout: int) -> bytes:
    """A runtime, an interpreter, a thread, a C frame, two frames, a code object, its strings, its line table."""
    interpreters, threads, pthread, frames, code, previous, instruction, *parts = layout
    memory = bytearray(12 * ROOM)

    def point(holder: int, offset: int, target: int, further: int = 0) -> None:
        struct.pack_into("<Q", memory, holder * ROOM + offset, BASE + target * ROOM + further)

    def fill(holder: int, offset: int, form: str, *values: object) -> None:
        struct.pack_into(form, memory, holder * ROOM + offset, *values)

    point(0, interpreters, 1)
    point(1, threads, 2)
    point(2, pthread, 10)
    point(2, frames, 3 if minor >= 11 else 4)
    point(3, 8 if minor == 11 else 0, 4)
    for frame in (4, 5):
        point(frame, code, 6)
        if minor >= 11:
            point(frame, instruction, 6, 200)
        else:
            fill(frame, instruction, "<i", 2)
    point(4, previous, 5)
    for part, offset in enumerate(parts):
        point(6, offset, 7 + part)
    for text in (7, 8):
        fill(text, 16, "<QQQ", 4, 0, 1 << 2 | 1 << 5 | 1 << 6)
        fill(text, 48 if minor < 12 else 40, "4s", b"work")
    if minor >= 11:
        point(6, 128, 8)
    fill(9, 16, "<QQ6s", 6, 0, b"\x80\x35\x99\x04\x20\xf0")
    fill(10, 0x310, "<Q", 1)  # the thread's key, in use
    point(10, 0x318, 2)
    return bytes(memory)


def go_table() -> bytes:
    """Go's table with one function of 64 bytes, which has one line, as crates/core/src/pclntab.rs draws it."""
    names, files, pc_tables = b"\0main.work\0", b"\0/work.go\0", bytes((0, 2, 64, 0, 20, 64, 0))
    function = struct.pack("<10I4B", 0, 1, 0, 0, 0, 1, 4, 0, 0, 9, 0, 0, 0, 0)
    parts = (names, struct.pack("<I", 1), files, pc_tables, struct.pack("<3I", 0, 12, 64) + function)
    ends = [72 + sum(map(len, parts[:index])) for index in range(len(parts))]
    return struct.pack("<I4B8Q", 0xFFFFFFF1, 0, 0, 1, 8, 1, 1, 0x1000, *ends) + b"".join(parts)


def stored_table() -> bytes:
    """A table of one page, two rows and three rules, as crates/core/src/unwind/stored.rs draws it."""
    header = struct.pack("<8sQ4IQ8I", b"shunwind", 0, 1, 1, 2, 3, 1, 1, *[0] * 7)
    rules = [struct.pack("<4B2h2i", kind, 0, 0, 0, 0, -8, 8, 0) for kind in (1, 2)]
    return header + struct.pack("<4I", 0, 2, 0, 5 << 20 | 2) + bytes(16) + b"".join(rules)


def jitdump() -> bytes:
    """A dump with a record of each kind, as crates/core/src/jitdump.rs draws it."""
    header = struct.pack("<6I2Q", 0x4A695444, 1, 40, 62, 0, 7, 0, 0)
    lines = struct.pack("<2Q", 0x1000, 2) + struct.pack("<Q2I", 0x1000, 3, 0) + b"/a.js\0"
    lines += struct.pack("<Q2I", 0x1008, 4, 0) + b"\xff\0"
    unwinding = struct.pack("<3Q", 12, 4, 16) + b"eh_framehdr_pad_"
    load = struct.pack("<2I4Q", 7, 7, 0x1000, 0x1000, 16, 0) + b"work\0" + bytes(16)
    moved = struct.pack("<2I5Q", 7, 7, 0x1000, 0x1000, 0x2000, 16, 0)
    records = enumerate((2, 4, 0, 1, 3))
    bodies = (lines, unwinding, load, moved, b"")
    return header + b"".join(
        struct.pack("<2IQ", kind, 16 + len(body), time_ns) + body
        for (time_ns, kind), body in zip(records, bodies, strict=True)
    )


if __name__ == "__main__":
    main()
