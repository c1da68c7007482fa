#!/usr/bin/env bash
# Brings the CPythons of other Debian releases, for tests: into the user's cache, each with its release's own C library,
# and a program python3.x that runs in there. Nothing is installed. What cannot be had is said in a line; tests that need
# it skip themselves.
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
    rm -rf "$folder" && mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial" "$folder/root" || return
    printf 'deb %s %s main\n' "$(mirror)" "$release" >"$folder/apt/sources.list"
    : >"$folder/apt/status"
    # shellcheck disable=SC2086 # words
    set -- "python$version-minimal" "libpython$version-minimal" "libpython$version-stdlib" $LIBRARIES
    private_apt "$folder/apt" update && (cd "$folder/apt" && private_apt "$PWD" download "$@") || return
    for package in "$folder"/apt/*.deb; do
        dpkg-deb --extract "$package" "$folder/root" || return
    done
    rm -rf "$folder/apt"
    write_program "$folder/python$version" "$version"
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

main
