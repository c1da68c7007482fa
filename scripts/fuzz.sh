#!/usr/bin/env bash
# Fuzzes every target for a while: `scripts/fuzz.sh [SECONDS]`, a minute each without it. Needs nightly Rust, and
# installs cargo-fuzz where it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
use_rust

cargo +nightly fuzz --version > /dev/null 2>&1 || cargo install --quiet --locked cargo-fuzz
python3 fuzz/seeds.py
for target in fuzz/fuzz_targets/*.rs; do
    name=$(basename "$target" .rs)
    say "fuzzing $name"
    cargo +nightly fuzz run "$name" -- -max_total_time="${1:-60}" -rss_limit_mb=2048 -timeout=10
done
