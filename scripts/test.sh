#!/usr/bin/env bash
# Runs all tests, fast ones first: Rust, then Python's unit, golden and integration tests in one pytest, whose
# summary is the last thing printed. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
use_rust

# as_root COMMAND…: with privileges where they can be had without a question; else tests marked ebpf skip themselves.
as_root() {
    if [ "$(id -u)" != 0 ] && sudo -n true 2>/dev/null; then
        say "sudo: running the Python tests as root, for those that load BPF programs"
        exec sudo -n -E env PATH="$PATH" "$@"
    fi
    exec "$@"
}

say "Rust tests"
cargo test --release --workspace # without --exclude: the same features, so the same build, as the module's
cargo test --release --workspace --features stackhound-core/count-allocations --test allocations # as for make bench-gate
say "Python tests"
PYTHONDONTWRITEBYTECODE=1 as_root .venv/bin/python -m pytest "$@"
