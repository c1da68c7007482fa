"""Writes the files that fuzzing begins with: small programs and libraries, as compilers and linkers make them.

    python fuzz/seeds.py

Nothing of it is committed: fuzz/corpus/TARGET has what this makes, and what the fuzzer found since.
"""

from __future__ import annotations

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
    (FUZZ / "corpus" / "unwind_stored").mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as scratch:
        source = Path(scratch) / "seed.c"
        source.write_text(SOURCE)
        for name, flags in FLAGS.items():
            subprocess.run(("cc", "-nostdlib", *flags, str(source), "-o", str(corpus / name)), check=True)
            print(corpus / name)


if __name__ == "__main__":
    main()
