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


def main() -> None:
    corpus = FUZZ / "corpus" / "unwind_build"
    corpus.mkdir(parents=True, exist_ok=True)
    stored = FUZZ / "corpus" / "unwind_stored"
    stored.mkdir(parents=True, exist_ok=True)
    (stored / "small").write_bytes(stored_table())
    dumps = FUZZ / "corpus" / "jitdump"
    dumps.mkdir(parents=True, exist_ok=True)
    (dumps / "small").write_bytes(jitdump())
    with TemporaryDirectory() as scratch:
        source = Path(scratch) / "seed.c"
        source.write_text(SOURCE)
        for name, flags in FLAGS.items():
            subprocess.run(("cc", "-nostdlib", *flags, str(source), "-o", str(corpus / name)), check=True)
            print(corpus / name)


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
