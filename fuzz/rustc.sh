#!/bin/sh
# rustc for fuzzing, as cargo's RUSTC_WORKSPACE_WRAPPER: our own crates get the counters that libFuzzer reads, as
# cargo-fuzz asks for them, and every check. Those of others are the ones of any other build, and compiled once.
exec "$@" --cfg fuzzing -C debug-assertions -C overflow-checks -C passes=sancov-module \
    -C llvm-args=-sanitizer-coverage-level=4 \
    -C llvm-args=-sanitizer-coverage-inline-8bit-counters \
    -C llvm-args=-sanitizer-coverage-pc-table \
    -C llvm-args=-sanitizer-coverage-trace-compares
