"""Five ways to spend CPU time in Python, 10 to 40% of it each, for so many seconds; prints what each really took.

One of them has two lines that take 30 and 70% of its time, each time of random length, so that it does not beat in time
with a sampler; it says what each took. When all of it began and ended is in CLOCK_BOOTTIME.

Each line that says `# at NAME` is where that function may be when it is on a stack: at its head when it has just been
called. For CPython 3.9 and later.
"""

from __future__ import annotations

import json
import random
import sys
import time

TURN_S = 0.05
VALUES = {str(number): [number / 3] * 5 for number in range(40)}


def arithmetic(until_s):  # at arithmetic
    total = 0  # at arithmetic
    while time.thread_time() < until_s:  # at arithmetic
        for number in range(300):  # at arithmetic
            total += number * number  # at arithmetic


def encoding(until_s):  # at encoding
    while time.thread_time() < until_s:  # at encoding
        for _ in range(20):  # at encoding
            json.dumps(VALUES)  # at encoding


def sorting(until_s):  # at sorting
    while time.thread_time() < until_s:  # at sorting
        sorted(range(200), key=callback)  # at sorting


def callback(number):  # at callback
    return -number % 7  # at callback


def generating(until_s):  # at generating
    while time.thread_time() < until_s:  # at generating
        for _ in generator(300):  # at generating
            pass  # at generating


def generator(count):  # at generator
    for number in range(count):  # at generator
        yield number * number  # at generator


def summing(until_s):  # at summing
    while time.thread_time() < until_s:  # at summing
        few, many = range(random.randrange(6_000)), range(random.randrange(14_000))  # at summing
        begin_s = time.thread_time()  # at summing
        sum(few)  # at summing, few
        middle_s = time.thread_time()  # at summing
        sum(many)  # at summing, many
        lines_s["few"] += middle_s - begin_s  # at summing
        lines_s["many"] += time.thread_time() - middle_s  # at summing


WAYS = ((arithmetic, 0.1), (encoding, 0.15), (sorting, 0.15), (generating, 0.2), (summing, 0.4))
lines_s = {"few": 0.0, "many": 0.0}


def main(seconds):
    begin_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    used_s = dict.fromkeys((way.__name__ for way, _ in WAYS), 0.0)
    while time.thread_time() < seconds:
        for way, share in WAYS:
            begin_s = time.thread_time()
            way(begin_s + share * TURN_S)  # at main
            used_s[way.__name__] += time.thread_time() - begin_s
    end_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    print(json.dumps({"used_s": used_s, "lines_s": lines_s, "begin_ns": begin_ns, "end_ns": end_ns}))


print("ready", flush=True)
sys.stdin.readline()
main(float(sys.argv[1]))  # at <module>
