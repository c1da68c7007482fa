"""Compiles what benchmarks run: programs that make load, BPF designs, the runner of those."""

from __future__ import annotations

import compileall
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

BENCHES = Path(__file__).parents[1]
REPOSITORY = BENCHES.parent
#: Beside cargo's own output, ignored by git and swept away with it.
OUTPUT = REPOSITORY / "target" / "benches"
STACKHOUND = Path(sys.executable).parent / "stackhound"

#: As crates/capture/build.rs has them.
BPF_FLAGS = ("-mcpu=v3", "-g", "-O2", "-nostdinc", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables")
BPF_ARCHITECTURES = {"x86_64": "x86", "aarch64": "arm64"}
C_FLAGS = ("-O2", "-g", "-fno-omit-frame-pointer")
COMPILERS = {".c": "gcc", ".cpp": "g++"}


def compile_program(source: str) -> Path:
    """benches/programs/SOURCE, as an executable."""
    path = BENCHES / "programs" / source
    return _make(path, OUTPUT / path.stem, (COMPILERS[path.suffix], *C_FLAGS))


def compile_package() -> None:
    """Make the bytecode, as pip does when it installs: with PYTHONDONTWRITEBYTECODE each start would (40 ms)."""
    compileall.compile_dir(REPOSITORY / "src", quiet=1)


def compile_bpf(design: str) -> Path:
    """benches/bpf/DESIGN.bpf.c, as an object file."""
    path = BENCHES / "bpf" / f"{design}.bpf.c"
    compiler = (sys.executable, "-m", "ziglang", "cc", "-target", "bpfel-freestanding", "-c")
    includes = ("-I", str(REPOSITORY / "bpf"), "-I", str(_libbpf_headers()))
    architecture = f"-D__TARGET_ARCH_{BPF_ARCHITECTURES[platform.machine()]}"
    return _make(path, OUTPUT / f"{design}.bpf.o", (*compiler, *BPF_FLAGS, architecture, *includes))


def compile_fixture(source: Path, *, with_libbpf: bool = False) -> Path:
    """A BPF program that needs nothing but public headers, the kernel's and libbpf's, as an object file."""
    compiler = (sys.executable, "-m", "ziglang", "cc", "-target", "bpfel-freestanding", "-c")
    libbpf = (f"-I{_libbpf_headers()}",) if with_libbpf else ()
    includes = (*libbpf, "-I/usr/include", f"-I/usr/include/{platform.machine()}-linux-gnu")
    return _make(source, OUTPUT / f"{source.name.partition('.')[0]}.bpf.o", (*compiler, *BPF_FLAGS, *includes))


def build_example(name: str) -> Path:
    """An example of a crate. For the whole workspace, as the module was built: other sets of features build anew."""
    command = ("cargo", "build", "--release", "--quiet", "--locked", "--workspace", "--example", name)
    subprocess.run(command, cwd=REPOSITORY, env=cargo_environment(), check=True)
    return REPOSITORY / "target" / "release" / "examples" / name


def inferno() -> Path | None:
    """Where the programs are that fold and draw what perf records."""
    program = cargo_program("inferno", "inferno-flamegraph")
    return program.parent if program else None


def cargo_program(crate: str, name: str) -> Path | None:
    """A peer's program; installed beside the other output where it is not on PATH. None where that fails."""
    if found := shutil.which(name):
        return Path(found)
    tools = OUTPUT / "tools"
    program = tools / "bin" / name
    if not program.exists():
        print(f"cargo: installing {crate} into target/benches/tools, to compare with it", flush=True)
        command = ("cargo", "install", crate, "--locked", "--quiet", "--root", str(tools))
        subprocess.run(command, env=cargo_environment(), check=False)
    return program if program.exists() else None


def cargo_environment() -> dict[str, str]:
    """What maturin sets, so that nothing is built twice; and rustup's cargo where sudo's PATH has none."""
    found = shutil.which("cargo") is not None
    cargo_home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "bin"
    path = os.environ["PATH"] if found else f"{cargo_home}:{os.environ['PATH']}"
    return {**os.environ, "PYO3_PYTHON": str(REPOSITORY / ".venv" / "bin" / "python"), "PATH": path}


def _make(source: Path, target: Path, command: tuple[str, ...]) -> Path:
    OUTPUT.mkdir(parents=True, exist_ok=True)
    subprocess.run((*command, str(source), "-o", str(target)), check=True)
    return target


def _libbpf_headers() -> Path:
    found = REPOSITORY.glob("target/release/build/libbpf-sys-*/out/include")
    newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        sys.exit("error: libbpf's headers are not there: run `make build`")
    return newest
