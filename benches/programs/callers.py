"""callers SECONDS: serializes, matches and sorts, in C functions called from Python."""

import json
import re
import sys
import time

DATA = {"a": [1, 2, 3, {"b": "c" * 50}] * 20}


def churn() -> None:
    json.loads(json.dumps(DATA))
    re.sub(r"(\w+)\s", r"\1", "hello world " * 50)
    sorted(str(number) for number in range(500))


def descend(frames: int) -> None:
    if frames == 0:
        churn()
    else:
        descend(frames - 1)


end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    descend(20)
