#!/bin/sh
# run.sh DIRECTORY: holds links, queues and connections against Linux in virtual time, and prints the tables of docs/models.md.
# DIRECTORY gets the kernel and what its runs gave. Ends with 1 if something is beyond the limits.
set -eu
cd "$(dirname "$0")/../.."
out=$1
mkdir -p "$out"
validate/linux/build.sh "$out"
validate/linux/cases.sh 10 40 | xargs -P "${2:-$(nproc)}" -d '\n' -n 1 validate/linux/line.sh "$out/linux" >"$out/runs.txt"
cargo run -q --release -p dwell-sim --example against_ns3 -- kernel validate/linux/cases.txt "$out/runs.txt"
