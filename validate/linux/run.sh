#!/usr/bin/env bash
# run.sh DIRECTORY: holds links, queues and connections against Linux in virtual time, and prints the tables of docs/models.md.
# DIRECTORY gets the kernel and what its runs gave; a run that is there already is not repeated, as long as what it is made of
# is the same, so that a command that was cut off goes on. Ends with 1 if a row is neither within the limits nor explained.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
cd "$here/../.."
mkdir -p "$1"
out=$(readlink -f "$1")
"$here/build.sh" "$out"
made_of=$(cat "$here"/{build.sh,config,init.sh,traffic.py,waits.py} | sha256sum | cut -c 1-12)
runs=$out/runs-$made_of.txt
touch "$runs"
"$here/cases.sh" 10 40 | awk -F '|' 'FILENAME != "-" { known[$1, $2] = 1; next } !(($1, $2) in known)' "$runs" - >"$out/missing.txt"
echo "$(wc -l <"$out/missing.txt") runs of Linux are missing, $(wc -l <"$runs") are there" >&2
xargs -a "$out/missing.txt" -P "${2:-$(nproc)}" -d '\n' -r -n 1 "$here/line.sh" "$out/linux" >>"$runs" ||
    echo "Some runs of Linux failed; the rows say how many each has." >&2
cargo run -q --release -p dwell-sim --example against_ns3 -- kernel "$here/cases.txt" "$runs"
