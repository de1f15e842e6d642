#!/bin/sh
# run.sh: holds managed queues, TCP and BBR against ns-3 (Debian's libns3-dev), and prints the table.
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
validate/ns3/build.sh "$work"
compare() { cargo run -q --release -p dwell-sim --example against_ns3 -- "$@"; }
compare cases | while IFS='|' read -r case seed words; do
    # shellcheck disable=SC2086 # words
    numbers=$("$work/bottleneck" $words)
    printf '%s|%s|%s\n' "$case" "$seed" "$numbers"
done > "$work/ns3.txt"
compare compare "$work/ns3.txt"
