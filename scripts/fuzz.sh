#!/usr/bin/env bash
# Fuzzes every target, as many at a time as there are CPUs: `scripts/fuzz.sh [SECONDS]`, a minute each without it.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
use_rust

# fuzz_one TARGET SECONDS
fuzz_one() {
    local name=$1 seconds=$2 log="fuzz/artifacts/$1.log"
    mkdir -p "fuzz/artifacts/$name"
    if "${CARGO_TARGET_DIR:-target}/release/$name" "fuzz/corpus/$name" -artifact_prefix="fuzz/artifacts/$name/" \
        -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 >"$log" 2>&1; then
        say "fuzzing $name: $(tail -n 1 "$log")"
    else
        cat "$log"
        return 1
    fi
}

say "fuzzing: compiling the targets"
RUSTC_WORKSPACE_WRAPPER="$PWD/fuzz/rustc.sh" cargo build --quiet --release --package stackhound-fuzz
python3 fuzz/seeds.py >/dev/null
export -f fuzz_one say
find fuzz/fuzz_targets -name '*.rs' -printf '%f\n' | sort | sed 's/\.rs$//' |
    xargs -P "$(nproc)" -I '{}' bash -euo pipefail -c 'fuzz_one "$1" "$2"' - '{}' "${1:-60}"
