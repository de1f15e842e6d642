#!/usr/bin/env bash
# Holds the simulator against ns-2.35; `./x validate` calls it. docs/validation.md says what is
# compared and how to read it.
#
#     validate/run.sh DIRECTORY [--quick]
#
# DIRECTORY gets what ns-2 recorded. It ends with 1 if something differs by more than allowed.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
out=$1
seeds=$(seq 1 10)
flow_counts="9 27 63 99 150 198 249 300"
block_seeds=$(seq 1 6)
block_flow_counts="9 30 45 99 198 300"
other_cases="buffers20 buffers120 rates delays sizes"
# NETWORK SCHEME FLOWS SEED SECONDS: runs that are compared packet by packet.
packet_runs=("paper flow5 9 1 12" "paper edge5 30 1 12" "paper flow10 99 1 12" "paper flow5 198 1 8"
    "paper edge10 300 1 8" "paper packet 120 1 8" "paper edge10 99 1 30" "buffers23 flow5 60 1 10"
    "buffers100 flow5 150 1 8" "sizes edge10 45 1 8" "delays edge10 100 1 8" "rates edge5 60 1 8")
# NETWORK SCHEME FLOWS SEED: other blocks, networks and numbers of flows.
further_runs=()
for flows in 24 75 250; do
    for scheme in flow2 edge2 flow3 edge3 flow7 edge7 flow20 edge20; do
        further_runs+=("paper $scheme $flows 11")
    done
done
further_runs+=("buffers35 flow7 40 3" "buffers35 flow7 120 3" "buffers35 edge3 40 4" "buffers35 edge3 120 4"
    "buffers200 flow20 60 5" "buffers200 flow20 180 5" "buffers200 edge7 60 6" "buffers200 edge7 180 6"
    "slow flow2 15 7" "slow edge3 15 7" "slow flow7 15 7" "slow flow2 50 8" "slow edge3 50 8" "slow flow7 50 8"
    "lead2 flow3 90 9" "lead2 edge20 90 9"
    "mixed flow7 33 10" "mixed edge2 33 10" "mixed flow7 111 10" "mixed edge2 111 10")
if [ "${2:-}" = --quick ]; then
    seeds="1 2 3"
    flow_counts="9 99 300"
    block_seeds="1 2"
    block_flow_counts="99"
    other_cases="rates"
    packet_runs=("paper edge10 99 1 4" "sizes edge10 45 1 2")
    further_runs=("slow edge3 15 7" "slow flow7 50 8" "mixed edge2 33 10")
fi
compare=(cargo run -q --manifest-path "$here/../Cargo.toml" --release -p dwell-sim
    --example against_ns2 --)
failed=0
mkdir -p "$out"

# compare TITLE WORDS...: goes on if something differs, and remembers it.
compare() {
    printf '\n== %s\n' "$1"
    shift
    "${compare[@]}" "$@" || failed=1
}

random_numbers() {
    local seed
    for seed in 1 12345 2147483646; do
        echo "seed $seed"
        ns "$here/rng.tcl" seed="$seed" count=1000
    done >"$out/rng.txt"
    compare "random numbers" numbers "$out/rng.txt"
}

# parking N SECONDS LIMIT MBPS SEED...
parking() {
    local n=$1 seconds=$2 limit=$3 mbps=$4 seed files=() file
    shift 4
    for seed in "$@"; do
        file=$out/parking-$n-$limit-$mbps-$seed.txt
        ns "$here/parking.tcl" n="$n" seed="$seed" seconds="$seconds" limit="$limit" \
            peak="${mbps}Mb" records="$file" >"${file%.txt}.log"
        files+=("$seed" "$file")
    done
    compare "parking lot, n = $n, $seconds s, queues of $limit, bursts of $mbps Mbit/s" \
        parking "$n" "$seconds" "$limit" "${mbps}mbit" "${files[@]}"
}

dumbbell() {
    local flows seed
    for flows in $flow_counts; do
        for seed in $seeds; do
            echo "$flows $seed"
        done
    done | xargs -P "$(nproc)" -L 1 "$here/dumbbell-line.sh" >"$out/dumbbell.txt"
    compare "dumbbell, TCP with SACK: throughput" dumbbell "$out/dumbbell.txt"
}

# The schemes that compress blocks, by a queue of our own for ns-2; it takes most of the time.
blocks() {
    local scheme flows seed case
    for flows in $block_flow_counts; do
        for seed in $block_seeds; do
            for scheme in none flow5 edge5 flow10 edge10; do
                echo "$out/libblocks.so paper $scheme $flows $seed"
            done
        done
    done >"$out/blocks-runs.txt"
    for case in $other_cases; do
        for flows in 60 150; do
            for seed in 1 2; do
                for scheme in packet flow5 edge10; do
                    echo "$out/libblocks.so $case $scheme $flows $seed"
                done
            done
        done
    done >>"$out/blocks-runs.txt"
    printf "$out/libblocks.so %s\n" "${further_runs[@]}" >>"$out/blocks-runs.txt"
    xargs -P "$(nproc)" -L 1 -a "$out/blocks-runs.txt" "$here/blocks-line.sh" >"$out/blocks.txt"
    compare "dumbbell, blocks: throughput and compressions" blocks "$out/blocks.txt"
}

# The same packet by packet: whatever leaves an ingress.
packets() {
    local run network scheme flows seed seconds file words=()
    : >"$out/packets-runs.txt"
    for run in "${packet_runs[@]}"; do
        read -r network scheme flows seed seconds <<<"$run"
        file=$out/packets-$network-$scheme-$flows-$seed.records
        words+=("$network" "$scheme" "$flows" "$seed" "$seconds" "$file")
        echo "$out/libblocks.so $network $scheme $flows $seed from=0 seconds=$seconds records=$file" \
            >>"$out/packets-runs.txt"
    done
    xargs -P "$(nproc)" -L 1 -a "$out/packets-runs.txt" "$here/blocks-line.sh" >"$out/packets.txt"
    compare "dumbbell, blocks: packet by packet" packets "${words[@]}"
    rm -f "$out"/packets-*.records
}

random_numbers
# The paper's traffic, then traffic whose arrivals do not coincide with ends of transmissions.
parking 2 30 1000 60 1 2
parking 4 30 1000 60 1 2
parking 4 10 20 61 1 2
dumbbell
if "$here/ns2-blocks/build.sh" "$out"; then
    blocks
    packets
else
    echo "the queue for ns-2 can't be built: blocks are not compared"
    failed=1
fi
exit "$failed"
