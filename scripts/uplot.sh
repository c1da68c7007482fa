#!/usr/bin/env bash
# Puts uPlot (MIT), which draws the curves of `stackhound bench history --html`, beside our own assets, where git does
# not see it and the wheel takes it from. Its version is pinned by what it holds.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh

version=1.6.32
digest=2883159c6ebccefbb95d751b0b82d010f9e1c0ec41b8bc96d401eda66e882935c89a46cb824332fa369b8cb8122cc6ac36e186cd09bf7a9ded3a4c93c6989023
assets=src/stackhound/bench/assets

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
npm pack --silent --pack-destination "$place" "uplot@$version" >/dev/null
printf '%s  %s\n' "$digest" "$place/uplot-$version.tgz" | sha512sum --check --quiet
tar -xzf "$place/uplot-$version.tgz" -C "$place"
cp "$place/package/dist/uPlot.iife.min.js" "$place/package/dist/uPlot.min.css" "$assets/"
