#!/usr/bin/env bash
# Builds dist/*.whl for this architecture, for any Linux with glibc >= 2.17 and Python >= 3.10, and the sdist.
# zig links against the old glibc; libbpf, libelf and zlib are inside.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh build
. scripts/env.sh
use_rust

rm -rf dist
maturin build --zig --compatibility manylinux2014 --out dist
maturin sdist --out dist
