#!/usr/bin/env bash
# Makes what bench.toml measures out of the checkout that this runs in, into its target/gate/. Compilers, libraries and
# cargo's output are those of the checkout that has this script. What an older checkout lacks is left out; bench.toml
# says what needs it.
set -euo pipefail
here=$PWD
cd "$STACKHOUND_BENCH_DIR/../.."
. scripts/env.sh
use_rust || die "no Rust >= $(rust_wanted)"
top=$PWD
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$top/target}
cd "$here"
mkdir -p target/gate

if [ -e benches/gate/configured.bpf.c ]; then
    libbpf=$(ls -td "$CARGO_TARGET_DIR"/release/build/libbpf-sys-*/out/include | head -n 1)
    case $(uname -m) in aarch64) architecture=arm64 ;; *) architecture=x86 ;; esac
    for source in bpf/{programs,dump,absent,names}.bpf.c; do
        [ -e "$source" ] || continue
        "$top/.venv/bin/python" -m ziglang cc -target bpfel-freestanding -c -mcpu=v3 -g -O2 -nostdinc \
            -fno-asynchronous-unwind-tables -fno-unwind-tables "-D__TARGET_ARCH_$architecture" \
            -DRING_BYTES=2097152 "-DPROGRAMS=\"$(basename "$source")\"" -I bpf -I "$libbpf" \
            benches/gate/configured.bpf.c -o "target/gate/$(basename "$source" .bpf.c).bpf.o"
    done
fi

if [ -e crates/core/examples/allocations.rs ]; then
    # for the whole workspace, as the module is built: other sets of features would build everything anew
    cargo build --release --quiet --locked --workspace --example allocations \
        --features stackhound-core/count-allocations
    cp "$CARGO_TARGET_DIR/release/examples/allocations" target/gate/
    # where it was compiled would be in it, and show in what is asked of the heap to read it
    g++ -O2 -g "-fdebug-prefix-map=$top=." "-fdebug-prefix-map=$here=." "$top/benches/programs/callers.cpp" -o target/gate/callers
fi
