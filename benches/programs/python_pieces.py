"""Pieces of Python work, 20 frames deep, without end: after each, their number and the CPU time so far go into a file.

python_pieces.py PATH [DEPTH]

Each frame is another function's: a stack that recurses would show a profiler one code object only.
"""

import struct
import sys
import time
from pathlib import Path


def work(pieces):
    total = 0
    for number in range(5_000):
        total += number * number
    return pieces + 1


def wrap(function, number):
    """A function of its own that calls the other one."""
    namespace = {"callee": function}
    exec(f"def level_{number}(pieces):\n    return callee(pieces)\n", namespace)
    return namespace[f"level_{number}"]


def main(path, depth):
    outermost = work
    for number in range(depth - 3):
        outermost = wrap(outermost, number)
    pieces = 0
    with Path(path).open("w+b", buffering=0) as out:
        while True:
            pieces = outermost(pieces)
            out.seek(0)
            out.write(struct.pack("=QQ", pieces, time.process_time_ns()))


main(sys.argv[1], int(sys.argv[2]) if sys.argv[2:] else 20)
