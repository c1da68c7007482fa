"""Pieces of Python work, 20 frames deep, without end: after each, their number and the CPU time so far go into a file.

python_pieces.py PATH [DEPTH]
"""

import struct
import sys
import time
from pathlib import Path


def recurse(depth, pieces):
    if depth:
        return recurse(depth - 1, pieces)
    total = 0
    for number in range(20_000):
        total += number * number
    return pieces + 1


def main(path, depth):
    pieces = 0
    with Path(path).open("w+b", buffering=0) as out:
        while True:
            pieces = recurse(depth - 2, pieces)
            out.seek(0)
            out.write(struct.pack("=QQ", pieces, time.process_time_ns()))


main(sys.argv[1], int(sys.argv[2]) if sys.argv[2:] else 20)
