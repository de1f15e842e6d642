#!/bin/bash
# The first process of the virtual machine: builds the network, runs the traffic, and switches the machine off. Its parameters
# come as variables (line.sh). Times are virtual: nothing here takes any.
#
#   s --- r --- q --- d     the link is r's towards q (htb, so that a packet leaves when its transmission begins);
#                           propagation, losses and jitter are q's towards d (netem), the way back has r's delay towards s
# shellcheck disable=SC2086,SC2154 # lists of words, and variables of the kernel's command line
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs run /run
mount -t tmpfs -o size=900m tmp /tmp
[ -z "$ecn" ] || sysctls=${sysctls:+$sysctls,}net.ipv4.tcp_ecn=1
[ "$hystart" = 1 ] || echo 0 >/sys/module/tcp_cubic/parameters/hystart
in_ns() { ip netns exec "$@"; }
for n in s r q d; do
    ip netns add $n
    ip -n $n link set lo up
    in_ns $n sysctl -qw net.ipv4.ip_forward=1 net.ipv4.tcp_no_metrics_save=1 net.ipv4.tcp_mtu_probing=0 \
        net.ipv4.tcp_wmem="4096 8388608 33554432" net.ipv4.tcp_rmem="4096 8388608 33554432" ${sysctls//,/ }
done
# pair A B NETWORK: A's interface is called after B.
pair() {
    ip link add "x$2" netns "$1" type veth peer name "x$1" netns "$2"
    ip -n "$1" link set "x$2" gso_max_segs 1 gso_max_size 1514
    ip -n "$2" link set "x$1" gso_max_segs 1 gso_max_size 1514
    ip -n "$1" address add "10.0.$3.1/24" dev "x$2"
    ip -n "$2" address add "10.0.$3.2/24" dev "x$1"
    ip -n "$1" link set "x$2" up
    ip -n "$2" link set "x$1" up
}
pair s r 1
if [ -n "$offload" ]; then
    # Segmentation as with offload: what the sender makes at once is cut up before the link.
    ip -n s link set xr gso_max_segs 64 gso_max_size 65536
    in_ns s tc qdisc add dev xr root tbf rate 10gbit burst 1600 limit 10mb
fi
pair r q 2
pair q d 3
ip -n s route add default via 10.0.1.2
ip -n r route add default via 10.0.2.2
ip -n q route add default via 10.0.2.1
ip -n d route add default via 10.0.3.1
htb() {
    in_ns r tc class "$1" dev xq parent 1: classid 1:1 htb rate "$2" ceil "$2" burst 1 cburst 1 quantum 1514
}
in_ns r tc qdisc add dev xq root handle 1: htb default 1
htb add "$rate"
in_ns r tc qdisc add dev xq parent 1:1 handle 2: ${queue//,/ }
in_ns q tc qdisc add dev xd root netem limit 100000 delay ${there//,/ }
in_ns r tc qdisc add dev xs root netem limit 100000 delay ${back//,/ }
in_ns s ping -c 2 -i 0.2 -q 10.0.3.2 >/dev/null
begin=$(awk '{ print $1 }' /proc/uptime)
wall=$(date +%s.%N)
here=${BASH_SOURCE[0]%/*}
in_ns r tcpdump -Z root -q -i xs -Q in -s 60 -B 32768 --time-stamp-precision=nano -w /tmp/in.pcap ip 2>/dev/null &
in_ns r tcpdump -Z root -q -i xq -Q out -s 60 -B 32768 --time-stamp-precision=nano -w /tmp/out.pcap ip 2>/dev/null &
dumps=$(jobs -p)
if [ -n "$poisson" ]; then
    in_ns d python3 "$here/traffic.py" receive "$begin" "$from" "$until" &
    sinks=$!
    in_ns s python3 "$here/traffic.py" poisson "$begin" "$until" 10.0.3.2 "$poisson" 1514 "$seed" &
else
    in_ns d python3 "$here/traffic.py" sink "$begin" "$from" "$until" "$flows" ${reader//,/ } &
    sinks=$!
    RANDOM=$seed
    for ((n = 0; n < flows; n++)); do
        at=$((RANDOM % 900 + 100))
        in_ns s python3 "$here/traffic.py" source "$begin" "$(printf '0.%03d' $at)" "$until" 10.0.3.2 "$tcp" &
    done
fi
# What the queue has dropped and marked until now.
count() {
    in_ns r tc -s qdisc show dev xq | awk '/^qdisc/ { is_ours = $3 == "2:" }
        is_ours { for (n = 1; n < NF; n++) {
            if ($n == "(dropped") drops = $(n + 1) + 0
            if ($n == "ecn_mark") marks = $(n + 1) + 0
        } }
        END { print drops + 0, marks + 0 }'
}
(
    sleep "$from"
    count >/tmp/before
) &
# steps: SECONDS,RATE,SECONDS,RATE,...: the link's rates, again and again.
if [ -n "$steps" ]; then
    (
        IFS=,
        set -- $steps
        IFS=' '
        while :; do
            for ((n = 1; n < $#; n += 2)); do
                m=$((n + 1))
                htb change "${!m}"
                sleep "${!n}"
            done
        done
    ) &
fi
wait $sinks
count | paste -d ' ' - /tmp/before | awk '{ print "drops", $1 - $3; print "marks", $2 - $4 }'
kill $dumps
sleep 1
[ -z "$show" ] || in_ns r tc -s qdisc show
[ -z "$show" ] || in_ns s ss -tin
python3 "$here/waits.py" /tmp/in.pcap /tmp/out.pcap "$(awk "BEGIN { printf \"%.6f\", $wall + $from }")" \
    "$(awk "BEGIN { printf \"%.6f\", $wall + $until }")"
echo "done"
poweroff -f
