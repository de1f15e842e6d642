#!/bin/sh
# kernel-line.sh DWELL CONTROL FLOWS LINK: throughput of the kernel's TCP over an emulated link in Mbit/s (packets of 1,500 bytes), its
# mean round trip, retransmissions, and the mean round trip of a probe each 50 ms (`ping`), in ms. LINK as `dwell lab --link` takes it.
# Needs iperf3, jq and ping; 50 s.
set -eu
dwell=$1 control=$2 flows=$3 link=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$dwell" lab --link "$link" -- sh -c "on server iperf3 -s -1 -D >/dev/null; sleep 1
    (sleep 10; ping -i 0.05 -c 780 -q 10.2.0.2 >$work/ping) &
    iperf3 -c 10.2.0.2 -C $control -P $flows -O 10 -t 40 -J >$work/iperf; wait"
jq -r '[.end.sum_received.bits_per_second * 1500 / 1448 / 1e6,
        ([.end.streams[].sender.mean_rtt] | add / length / 1000),
        .end.sum_sent.retransmits] | map(tostring) | join(" ")' "$work/iperf" | tr '\n' ' '
sed -n 's|^rtt.*= [0-9.]*/\([0-9.]*\)/.*|\1|p' "$work/ping"
