#!/bin/sh
# cases.sh FROM UNTIL: the runs of cases.txt, as line.sh takes them.
cd "$(dirname "$0")" || exit
awk -F ' [|] ' -v times="from=$1 until=$2" '!/^#/ { for (n = 1; n <= $2; n++) print $1 "|" $3, "seed=" n, times }' cases.txt
