#!/usr/bin/env bash
# on_cable.sh COMMAND ...: runs it in a network namespace of its own, in which a virtual cable leads from the interface
# "sender" to "receiver". Nothing of the machine's network is touched, and nothing stays; needs root.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: on_cable.sh COMMAND ..." >&2; exit 2; }

exec unshare --net bash -euo pipefail -c '
    ip link add sender type veth peer name receiver
    ip link set sender up
    ip link set receiver up
    exec "$@"' on_cable.sh "$@"
