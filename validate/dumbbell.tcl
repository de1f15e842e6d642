# The dumbbell of Yoshino et al. (Fig. 2) without compression, for ns-2.35:
#
#     sender - ingress i - core 1 - core 2 - egress j - receiver        i, j in 0..2
#
#     ns validate/dumbbell.tcl flows=198 seed=1 from=10 seconds=30
#
# Access links 100 Mbit/s and 1 ms, edge to core 100 Mbit/s and 3 ms, core to core 200 Mbit/s and
# 5 ms; every queue holds 50 packets. TCP with SACK, no delayed acknowledgements, 1500 bytes on
# the wire, a window that never limits. Flow k enters at edge k mod 3 and leaves at edge
# (k div 3) mod 3; it starts at a random moment of the first second.
#
# Prints the throughput, which is what was acknowledged between `from` and `seconds`, at 1500
# bytes a packet, and the number of data packets sent in all.

source [file join [file dirname [info script]] common.tcl]
array set p [parameters {flows 9 seed 1 from 10 seconds 30 limit 50} $argv]

proc link {a b rate delay} {
    global ns p
    $ns duplex-link $a $b $rate $delay DropTail
    $ns queue-limit $a $b $p(limit)
    $ns queue-limit $b $a $p(limit)
}

proc flow {k start} {
    global ns ingress egress tcp
    set sender [$ns node]
    set receiver [$ns node]
    link $sender $ingress([expr {$k % 3}]) 100Mb 1ms
    link $egress([expr {$k / 3 % 3}]) $receiver 100Mb 1ms
    set tcp($k) [new Agent/TCP/Sack1]
    $tcp($k) set packetSize_ 1460
    $tcp($k) set window_ 10000
    $tcp($k) set fid_ $k
    set sink [new Agent/TCPSink/Sack1]
    $ns attach-agent $sender $tcp($k)
    $ns attach-agent $receiver $sink
    $ns connect $tcp($k) $sink
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp($k)
    $ns at $start "$ftp start"
}

proc note_acknowledged {} {
    global p tcp before
    for {set k 0} {$k < $p(flows)} {incr k} {
        set before($k) [$tcp($k) set ack_]
    }
}

proc finish {} {
    global p tcp before
    set packets 0
    set sent 0
    set squares 0.0
    for {set k 0} {$k < $p(flows)} {incr k} {
        set mine [expr {[$tcp($k) set ack_] - $before($k)}]
        incr packets $mine
        set squares [expr {$squares + double($mine) * $mine}]
        incr sent [$tcp($k) set ndatapack_]
    }
    set bits [expr {$packets * 1500.0 * 8}]
    result throughput_mbps [format %.4f [expr {$bits / ($p(seconds) - $p(from)) / 1e6}]]
    result fairness [format %.4f [expr {double($packets) * $packets / ($p(flows) * $squares)}]]
    result packets_sent $sent
    exit 0
}

seed_streams $p(seed)
set rng [new RNG]
set ns [new Simulator]
set core1 [$ns node]
set core2 [$ns node]
link $core1 $core2 200Mb 5ms
for {set i 0} {$i < 3} {incr i} {
    set ingress($i) [$ns node]
    set egress($i) [$ns node]
    link $ingress($i) $core1 100Mb 3ms
    link $core2 $egress($i) 100Mb 3ms
}
for {set k 0} {$k < $p(flows)} {incr k} {
    flow $k [$rng uniform 0.0 1.0]
}
$ns at $p(from) note_acknowledged
$ns at $p(seconds) finish
$ns run
