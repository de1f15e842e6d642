#!/bin/sh
# run.sh: holds managed queues, TCP and BBR against ns-3 (Debian's libns3-dev), and prints the table.
# Ends with 1 if something is beyond 3 % of throughput or 10 % of the mean wait without an explanation that holds.
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
validate/ns3/build.sh "$work"
compare() { cargo run -q --release -p dwell-sim --example against_ns3 -- "$@"; }
processors=${1:-$(nproc)}
compare cases | xargs -P "$processors" -d '\n' -n 1 validate/ns3/line.sh "$work/bottleneck" > "$work/ns3.txt"
compare compare "$work/ns3.txt"
