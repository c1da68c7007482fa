#!/usr/bin/env bash
# in_namespace.sh SECONDS [LOG]: the logger at one end of a virtual cable, in a network namespace of its own, and packets
# as fast as they can be made at the other end. Nothing of the machine's network is touched; needs root.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:?usage: in_namespace.sh SECONDS [LOG]}
log=${2:-/dev/null}
build=${BUILD:-build}
namespace=xdp-sources-$$
outside=xs$$ # a name has 15 bytes at most

clean_up() {
    [ -z "${logger:-}" ] || kill "$logger" 2>/dev/null || true
    ip link delete "$outside" 2>/dev/null || true
    ip netns delete "$namespace"
}
trap clean_up EXIT
ip netns add "$namespace"
ip link add "$outside" type veth peer name inside netns "$namespace"
ip -netns "$namespace" link set inside up
ip link set "$outside" up

ip netns exec "$namespace" "$build/xdp_source_logger" "$build/xdp_source_logger.bpf.o" inside "$((seconds + 1))" >"$log" &
logger=$!
sleep 0.5 # until it is attached; what comes earlier just passes
"$build/flood" "$outside" "$seconds"
wait "$logger"
logger=
