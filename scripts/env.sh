# shellcheck shell=bash
# Sourced by the other scripts, at the top of the checkout: where the tools are, and how the scripts speak.

export PATH="$PWD/.venv/bin:$PATH"
export PYO3_PYTHON="$PWD/.venv/bin/python" # what maturin sets; the same for plain cargo, so both share one build
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '\033[1m==> %s\033[0m\n' "$*" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9]*m//g'; fi; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# at_least WANTED ACTUAL: compares versions.
at_least() { [ -n "$2" ] && [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

rust_wanted() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml; }
rust_is_new_enough() { at_least "$(rust_wanted)" "$(cargo --version 2>/dev/null | cut -d ' ' -f 2)"; }

# use_rust: takes the first cargo that is new enough: on PATH, rustup's, the one that puccinialin installed.
use_rust() {
    rust_is_new_enough && return
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    rust_is_new_enough && return
    local own="${XDG_CACHE_HOME:-$HOME/.cache}/puccinialin"
    if [ -d "$own/cargo/bin" ]; then
        PATH="$own/cargo/bin:$PATH"
        export RUSTUP_HOME="$own/rustup"
        rust_is_new_enough && return
    fi
    export RUSTUP_TOOLCHAIN=stable
    rust_is_new_enough && return
    unset RUSTUP_TOOLCHAIN
    return 1
}
