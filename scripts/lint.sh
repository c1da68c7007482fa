#!/usr/bin/env bash
# Runs every check, also after one has failed, and names those that failed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
use_rust

failed=()

# check NAME COMMAND…
check() {
    local name=$1
    shift
    say "$name"
    "$@" || failed+=("$name")
}

check_bpf_format() {
    find bpf preload \( -name '*.c' -o -name '*.h' \) -print0 | xargs -0 --no-run-if-empty clang-format --dry-run --Werror
}

check "ruff: Python style" ruff check --quiet
check "ruff: Python format" ruff format --quiet --check
check "mypy: Python types" mypy --no-error-summary
check "stubtest: _native.pyi says what the module has" stubtest stackhound._native
check "import-linter: Python dependencies point one way" lint-imports --no-logo
check "rustfmt: Rust format" cargo fmt --all --check
check "clippy: Rust style" cargo clippy --quiet --release --workspace --all-targets -- -D warnings
check "cargo-deny: Rust dependencies point one way, licences are permissive" cargo-deny --log-level warn check bans licenses sources
check "licences of the Python packages" python scripts/check_licences.py
check "clang-format: C format" check_bpf_format

[ ${#failed[@]} -eq 0 ] || die "failed: $(printf '%s; ' "${failed[@]}")"
say "all checks passed"
