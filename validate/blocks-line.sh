#!/usr/bin/env bash
# One run of the dumbbell with a scheme in ns-2 as one line: SCHEME FLOWS SEED THROUGHPUT_MBPS COMPRESSIONS
#
#     validate/blocks-line.sh LIBRARY SCHEME FLOWS SEED
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
case $2 in
    none) scheme=() ;;
    packet) scheme=("library=$1" block=1 group=0 ratio=0.95) ;;
    flow5) scheme=("library=$1" block=5 group=1 ratio=0.6) ;;
    edge5) scheme=("library=$1" block=5 group=2 ratio=0.6) ;;
    flow10) scheme=("library=$1" block=10 group=1 ratio=0.5) ;;
    edge10) scheme=("library=$1" block=10 group=2 ratio=0.5) ;;
    *) echo "no scheme \"$2\"" >&2; exit 2 ;;
esac
ns "$here/dumbbell.tcl" flows="$3" seed="$4" "${scheme[@]}" |
    awk -v scheme="$2" -v flows="$3" -v seed="$4" '
        { value[$1] = $2 }
        END { print scheme, flows, seed, value["throughput_mbps"], value["compressions"] + 0 }'
