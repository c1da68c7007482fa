#!/usr/bin/env bash
# Brings the CPythons of other Debian releases, for tests: into the user's cache, each with its release's own C library,
# and a program python3.x that runs in there. Nothing is installed. What cannot be had is said in a line; tests that need
# it skip themselves.
#
#   scripts/interpreters.sh                  all that there are packages of
#   scripts/interpreters.sh free-threaded    3.13 and 3.14 without a lock, compiled from Debian's source: some minutes
#   scripts/interpreters.sh musl             3.9 with another C library (package musl-tools), compiled likewise
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh

# Release and version. Pyenv's and the system's own are used as well, where there are any.
INTERPRETERS="bullseye:3.9 trixie:3.13 forky:3.14"
# What these are linked with.
LIBRARIES="libc6 libgcc-s1 libexpat1 zlib1g"
# As tests/integration/support_interpreters.py has it.
CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/stackhound-tests/interpreters"

main() {
    local one
    if [ "${1:-}" = free-threaded ]; then
        for one in trixie:3.13 forky:3.14; do
            compile "$CACHE/free-threaded-${one#*:}" "python${one#*:}t" "${one%:*}" "python${one#*:}t" --disable-gil ||
                say "interpreters: no free-threaded CPython ${one#*:}: its source cannot be had or compiled"
        done
        return
    fi
    if [ "${1:-}" = musl ]; then # under a name of its own, by which only tests of it know it
        compile "$CACHE/musl-3.9" python3.9-musl bullseye python3.9 CC=musl-gcc ||
            say "interpreters: no CPython on musl: there is no musl-gcc, or its source cannot be had or compiled"
        return
    fi
    for one in $INTERPRETERS; do
        bring "$CACHE/${one%:*}" "${one%:*}" "${one#*:}" ||
            say "interpreters: Debian has no CPython ${one#*:} in ${one%:*} for us; tests that need it skip themselves"
    done
}

# bring FOLDER RELEASE VERSION
bring() {
    local folder=$1 release=$2 version=$3 package
    [ -x "$folder/python$version" ] && return
    have apt-get && have dpkg-deb && [ -n "$(mirror)" ] || return
    say "interpreters: fetching CPython $version of Debian $release into $folder"
    make_apt "$folder" deb "$release" || return
    # shellcheck disable=SC2086 # words
    set -- "python$version-minimal" "libpython$version-minimal" "libpython$version-stdlib" $LIBRARIES
    private_apt "$folder/apt" update && (cd "$folder/apt" && private_apt "$PWD" download "$@") || return
    for package in "$folder"/apt/*.deb; do
        dpkg-deb --extract "$package" "$folder/root" || return
    done
    rm -rf "$folder/apt"
    write_program "$folder/python$version" "$version"
}

# compile FOLDER NAME RELEASE PROGRAM CONFIGURE…: there PROGRAM, python3.x or python3.xt, is called NAME.
compile() {
    local folder=$1 name=$2 release=$3 program=$4 version=${4%t}
    shift 4
    [ -x "$folder/$name" ] && return
    have apt-get && have gcc && have make && [ -n "$(mirror)" ] || return
    say "interpreters: compiling $name from the source of Debian $release, in $folder"
    make_apt "$folder" deb-src "$release" || return
    private_apt "$folder/apt" update || return
    (
        cd "$folder/apt" && private_apt "$PWD" --download-only source "$version" &&
            mkdir source && tar -x --strip-components 1 -C source -f "$version"_*.orig.tar.xz && cd source &&
            ./configure -q "$@" --without-ensurepip --prefix="$folder/root" CFLAGS="-O1 -g0" >/dev/null &&
            make -s -j"$(nproc)" >/dev/null 2>&1 && make -s altinstall >/dev/null 2>&1
    ) || return
    rm -rf "$folder/apt"
    ln -s "root/bin/$program" "$folder/$name"
}

# make_apt FOLDER TYPE RELEASE: what private_apt works in, beside where packages are unpacked.
make_apt() {
    rm -rf "$1" && mkdir -p "$1/apt/lists/partial" "$1/apt/archives/partial" "$1/root" || return
    printf '%s %s %s main\n' "$2" "$(mirror)" "$3" >"$1/apt/sources.list"
    : >"$1/apt/status"
}

# mirror: where this system has its own packages from, if it is Debian.
mirror() {
    apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        awk '$1 == "Debian" && !/security/ { print $2; exit }'
}

# private_apt FOLDER COMMAND…: apt-get with lists, packages and a state of its own.
private_apt() {
    local folder
    folder=$(realpath "$1")
    shift
    apt-get -qq -o APT::Sandbox::User=root -o Acquire::Languages=none -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::State::lists="$folder/lists" \
        -o Dir::State::status="$folder/status" -o Dir::Cache="$folder" -o Dir::Cache::archives="$folder/archives" "$@"
}

# write_program PATH VERSION: found by the loader that its own C library has.
write_program() {
    cat >"$1" <<END
#!/bin/sh
root=\$(dirname "\$0")/root
folders=\$(ls -d "\$root"/lib/*-linux-gnu "\$root"/usr/lib/*-linux-gnu 2>/dev/null | tr '\\n' ':')
loader=\$(ls "\$root"/lib/*-linux-gnu/ld-linux* "\$root"/usr/lib/*-linux-gnu/ld-linux* 2>/dev/null | head -n 1)
PYTHONHOME="\$root/usr" exec "\$loader" --library-path "\$folders" "\$root/usr/bin/python$2" "\$@"
END
    chmod +x "$1"
}

main "$@"
