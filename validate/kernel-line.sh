#!/bin/sh
# kernel-line.sh DWELL CONTROL FLOWS LINK: throughput and mean round trip of the kernel's TCP over an emulated link, in
# Mbit/s on the link and ms. LINK as `dwell lab --link` takes it. Needs iperf3 and jq; 50 s.
set -eu
dwell=$1 control=$2 flows=$3 link=$4
"$dwell" lab --link "$link" -- sh -c "on server iperf3 -s -1 -D >/dev/null; sleep 1
    iperf3 -c 10.2.0.2 -C $control -P $flows -O 10 -t 40 -J" |
    jq -r '[.end.sum_received.bits_per_second * 1500 / 1448 / 1e6,
            ([.end.streams[].sender.mean_rtt] | add / length / 1000),
            .end.sum_sent.retransmits] | map(tostring) | join(" ")'
