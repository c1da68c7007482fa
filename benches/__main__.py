"""`make bench`: every benchmark, one after the other, then the targets in one table.

    .venv/bin/python -m benches [--check] [NAME...]

Each is a program of its own and can be run alone: `.venv/bin/python benches/sample_cost.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

BENCHES = Path(__file__).parent
#: In the order of docs/performance.md.
NAMES = (
    "sample_cost",
    "kernel_walk",
    "slowdown",
    "collector",
    "finish",
    "names",
    "unwind",
    "stacks",
    "unwind_accuracy",
    "unseen",
    "start",
    "flood",
    "exec_storm",
    "faults",
    "off_cpu",
    "off_cpu_memory",
    "block_io",
    "heap",
    "shares",
    "tree",
    "firefox",
    "symbol_server",
    "python_truth",
    "python_slowdown",
    "dump",
    "scale",
    "regressions",
    "bpf_programs",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all without one")
    parser.add_argument("--check", action="store_true", help="as short as can be, to see that everything runs")
    options = parser.parse_args()
    names = options.names or NAMES
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}")
    if os.geteuid() != 0:
        sys.exit("error: benchmarks load BPF programs: run them with sudo")
    failed = [name for name in names if not run(name, ["--check"] if options.check else [])]
    summarize([name for name in names if name not in failed])
    if failed:
        sys.exit(f"error: failed, or a control did: {', '.join(failed)}")


def run(name: str, arguments: list[str]) -> bool:
    print(f"=== {name}", flush=True)
    begin = time.monotonic()
    status = subprocess.run((sys.executable, BENCHES / f"{name}.py", *arguments), check=False).returncode
    print(f"({time.monotonic() - begin:.0f} s)", flush=True)
    return status == 0


def summarize(names: list[str]) -> None:
    print("\n=== targets")
    for name in names:
        found = json.loads((BENCHES / "results" / f"{name}.json").read_text())
        for target in found.get("targets", []):
            print(f"{'met   ' if target['met'] else 'MISSED'}  {target['what']}: {target['got']} ({target['wanted']})")


if __name__ == "__main__":
    main()
