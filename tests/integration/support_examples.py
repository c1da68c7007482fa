"""The examples, copied to a directory of the test's and made there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from support_workloads import require

ROOT: Final = Path(__file__).parents[2]
ZIG: Final = f"{sys.executable} -m ziglang cc -target bpfel-freestanding -nostdinc"


def copy_example(name: str, directory: Path) -> Path:
    """The example's files as git has them."""
    return Path(
        shutil.copytree(
            ROOT / "examples" / name, directory / name, ignore=shutil.ignore_patterns("build", "slow", "target")
        )
    )


def make(directory: Path, *arguments: str) -> None:
    """Run make with the libbpf that the native module was built with, and with zig's clang."""
    variables = (f"BPF_CLANG={ZIG}", *(f"{name}={value}" for name, value in libbpf().items()))
    command = (require("make"), *variables, *arguments)
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def libbpf() -> dict[str, str]:
    """Where libbpf is, as the Makefiles of the examples want to know it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = max(target.glob("release/build/libbpf-sys-*/out"), key=lambda path: path.stat().st_mtime, default=None)
    if built is None:
        pytest.skip("needs the libbpf that make build compiles")
    libraries = " ".join(str(built / name) for name in ("libbpf.a", "libelf.a", "libz.a"))
    return {"LIBBPF_CFLAGS": f"-I{built / 'include'}", "LIBBPF_LIBS": libraries}
