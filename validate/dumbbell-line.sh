#!/usr/bin/env bash
# One run of the dumbbell in ns-2 as one line: FLOWS SEED THROUGHPUT_MBPS FAIRNESS PACKETS
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ns "$here/dumbbell.tcl" flows="$1" seed="$2" |
    awk -v flows="$1" -v seed="$2" '
        { value[$1] = $2 }
        END { print flows, seed, value["throughput_mbps"], value["fairness"], value["packets_sent"] }'
