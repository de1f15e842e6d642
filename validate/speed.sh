#!/usr/bin/env bash
# Packets per CPU second, here and in ns-2, in turns; `./x bench sim` calls it.
#
#     validate/speed.sh [ROUNDS]
#
# A line for each workload: median, least and most of the rounds, and the ratio of the medians to
# ns-2's. CPU time is that of the whole process, user and system.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
target=${CARGO_TARGET_DIR:-$here/../target}
rounds=${1:-5}
ours=$target/release/examples/against_ns2
cargo build -q --manifest-path "$here/../Cargo.toml" --release -p dwell-sim --example against_ns2
results=$(mktemp)
trap 'rm -f "$results"' EXIT
TIMEFORMAT='%U %S'

# measure NAME COMMAND...: the command prints lines "NAME NUMBER"; those of packets are summed.
measure() {
    local name=$1 output cpu
    shift
    output=$(mktemp)
    cpu=$({ time "$@" >"$output"; } 2>&1)
    awk -v name="$name" -v cpu="$cpu" '
        $1 ~ /^(received|lost)\.|^packets_sent$/ { packets += $2 }
        END {
            split(cpu, part, " ")
            print name, packets / (part[1] + part[2])
        }' "$output" >>"$results"
    rm -f "$output"
}

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    measure parking.ns2 ns "$here/parking.tcl" n=2 seed="$round" seconds=30
    measure parking.plain "$ours" speed plain "$round"
    measure parking.none "$ours" speed none "$round"
    measure parking.packet "$ours" speed packet "$round"
    measure dumbbell.ns2 ns "$here/dumbbell.tcl" flows=198 seed="$round"
    measure dumbbell.none "$ours" speed dumbbell "$round"
    measure chunks.chumq "$ours" speed chumq "$round"
done

sort -k 1,1 -k 2,2g "$results" | awk '
    function finish() {
        if (count == 0) return
        median = (value[int((count + 1) / 2)] + value[int(count / 2) + 1]) / 2
        split(name, part, ".")
        if (part[2] == "ns2") base[part[1]] = median
        n += 1
        names[n] = name; medians[n] = median; least[n] = value[1]; most[n] = value[count]
    }
    $1 != name { finish(); name = $1; count = 0 }
    { count += 1; value[count] = $2 }
    END {
        finish()
        printf "%-16s %16s %12s %12s %10s\n", "packets/CPU s", "median", "least", "most", "to ns-2"
        for (i = 1; i <= n; i++) {
            split(names[i], part, ".")
            ratio = part[1] in base ? sprintf("%.1f", medians[i] / base[part[1]]) : "-"
            printf "%-16s %16.0f %12.0f %12.0f %10s\n", names[i], medians[i], least[i], most[i], ratio
        }
    }'
