#!/usr/bin/env bash
# One run of the dumbbell with a scheme in ns-2 as one line: CASE SCHEME FLOWS SEED THROUGHPUT_MBPS COMPRESSIONS
#
#     validate/blocks-line.sh LIBRARY CASE SCHEME FLOWS SEED [WORD...]
#
# The cases are the networks of crates/dwell-sim/tests/ns2/reference/blocks.rs; the words go to dumbbell.tcl.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
case $2 in
    paper) network=() ;;
    buffers20) network=(limit=20) ;;
    buffers23) network=(limit=23) ;;
    buffers100) network=(limit=100 coredelay=0.009) ;;
    buffers120) network=(limit=120) ;;
    rates) network=(access=83e6 edge=70e6 core=110e6) ;;
    delays) network=(accessdelay=0.0007 edgedelay=0.0013 coredelay=0.0231 back=0.05) ;;
    sizes) network=(packet=576 lead=8) ;;
    buffers35) network=(limit=35) ;;
    buffers200) network=(limit=200 coredelay=0.015) ;;
    slow) network=(access=20e6 edge=12e6 core=17e6 accessdelay=0.0031 edgedelay=0.0077 coredelay=0.0113 back=0.03) ;;
    lead2) network=(lead=2) ;;
    mixed) network=(limit=64 edge=90e6 core=155e6 packet=1000 lead=7) ;;
    *) echo "no case \"$2\"" >&2; exit 2 ;;
esac
case $3 in
    none) scheme=() ;;
    packet) scheme=("library=$1" block=1 group=0 ratio=0.95) ;;
    flow* | edge*)
        case ${3#????} in
            2) ratio=0.8 ;;
            3) ratio=0.7 ;;
            5) ratio=0.6 ;;
            7) ratio=0.557 ;;
            10) ratio=0.5 ;;
            20) ratio=0.42 ;;
            *) echo "no blocks of ${3#????} packets" >&2; exit 2 ;;
        esac
        group=1
        [ "${3%"${3#????}"}" = flow ] || group=2
        scheme=("library=$1" block="${3#????}" group="$group" ratio="$ratio")
        ;;
    *) echo "no scheme \"$3\"" >&2; exit 2 ;;
esac
ns "$here/dumbbell.tcl" flows="$4" seed="$5" "${network[@]}" "${scheme[@]}" "${@:6}" |
    awk -v network="$2" -v scheme="$3" -v flows="$4" -v seed="$5" '
        { value[$1] = $2 }
        END { print network, scheme, flows, seed, value["throughput_mbps"], value["compressions"] + 0 }'
