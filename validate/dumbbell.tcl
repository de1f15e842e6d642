# The dumbbell of Yoshino et al. (Fig. 2) without compression, for ns-2.35:
#
#     sender - ingress i - core 1 - core 2 - egress j - receiver        i, j in 0..2
#
#     ns validate/dumbbell.tcl flows=198 seed=1 from=10 seconds=30
#
# Access links 100 Mbit/s and 1 ms, edge to core 100 Mbit/s and 3 ms, core to core 200 Mbit/s and
# 5 ms (access=, edge=, core= in bits per second, accessdelay=, edgedelay=, coredelay= in seconds);
# every queue holds limit=50 packets. TCP with SACK, no delayed acknowledgements, packet=1500 bytes
# on the wire, a window that never limits. Flow k enters at edge k mod 3 and leaves at edge
# (k div 3) mod 3; it starts at a random moment of the first second. That and the phase of its clock
# are drawn from generators of its own, so that the simulator can draw the same.
#
# With library=FILE, which ns2-blocks/build.sh builds, the ingresses compress: block=5 lead=5
# group=1 (0: any packets, 1: flow, 2: egress) ratio=0.6. A block that the core has no room for
# comes back after back=0.022 seconds. Then the number of compressions between `from` and `seconds`
# is printed too.
#
# With records=FILE it writes a line for each packet or block that leaves an ingress before `seconds`, made by
# packets.awk: INGRESS TIME_S FLOW NUMBER BYTES
#
# Prints the throughput, which is what was acknowledged between `from` and `seconds`, at 1500
# bytes a packet, and the number of data packets sent in all.

source [file join [file dirname [info script]] common.tcl]
array set p [parameters {flows 9 seed 1 from 10 seconds 30 limit 50
    access 100e6 edge 100e6 core 200e6 accessdelay 0.001 edgedelay 0.003 coredelay 0.005
    packet 1500 back 0.022 library "" block 5 lead 5 group 1 ratio 0.6 records ""} $argv]
if {$p(library) ne ""} {
    load $p(library) Blocks
    # What a class binds it has to have.
    foreach name {block_ lead_ group_ edges_ ratio_ time_ compressions_ returned_ returning_} {
        Queue/Blocks set $name 0
    }
    foreach class {Queue/Blocks BlockReturner BlockRestorer} {
        $class set debug_ false
    }
    BlockReturner set after_ 0
}

proc link {a b rate delay} {
    global ns p
    $ns duplex-link $a $b $rate $delay DropTail
    $ns queue-limit $a $b $p(limit)
    $ns queue-limit $b $a $p(limit)
}

# The link into the core, with a queue that compresses if there is one.
proc ingress_link {a b rate delay} {
    global ns p
    if {$p(library) eq ""} {
        link $a $b $rate $delay
        return
    }
    $ns simplex-link $a $b $rate $delay Blocks
    $ns simplex-link $b $a $rate $delay DropTail
    $ns queue-limit $a $b $p(limit)
    $ns queue-limit $b $a $p(limit)
    set queue [[$ns link $a $b] queue]
    $queue set block_ $p(block)
    $queue set lead_ $p(lead)
    $queue set group_ $p(group)
    $queue set edges_ 3
    $queue set ratio_ $p(ratio)
    $queue set time_ [expr {$p(lead) * 8.0 * $p(packet) / $p(edge)}]
}

# Blocks are restored where this link ends, and come back if it drops them.
proc restore {a b} {
    global ns
    set link [$ns link $a $b]
    set restorer [new BlockRestorer]
    $restorer target [[$link set ttl_] target]
    [$link set ttl_] target $restorer
}

# Lets the packets that leave a queue go to the records, with times of 15 digits.
proc record {a b} {
    global ns records
    if {$records eq ""} {
        return
    }
    set link [$ns link $a $b]
    $link trace $ns $records
    foreach event {enq drp rcv} {
        [$link set ${event}T_] detach
    }
    [$link set deqT_] tagged 1
}

proc return_lost {a b} {
    global ns returner
    [[$ns link $a $b] queue] drop-target $returner
}

proc compressions {} {
    global ns ingress core1
    set sum 0
    for {set i 0} {$i < 3} {incr i} {
        incr sum [[[$ns link $ingress($i) $core1] queue] set compressions_]
    }
    return $sum
}

proc flow {k} {
    global ns p ingress egress tcp
    set sender [$ns node]
    set receiver [$ns node]
    link $sender $ingress([expr {$k % 3}]) $p(access) $p(accessdelay)
    link $egress([expr {$k / 3 % 3}]) $receiver $p(access) $p(accessdelay)
    set tcp($k) [new Agent/TCP/Sack1]
    $tcp($k) set packetSize_ [expr {$p(packet) - 40}]
    $tcp($k) set window_ 10000
    $tcp($k) set fid_ $k
    set sink [new Agent/TCPSink/Sack1]
    $ns attach-agent $sender $tcp($k)
    $ns attach-agent $receiver $sink
    $ns connect $tcp($k) $sink
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp($k)
    # A reset draws the phase of the agent's clock from the default generator.
    $ns at 0.0 "\$defaultRNG seed [expr {$p(seed) + $k + 1}]; $tcp($k) reset"
    set rng [new RNG]
    $ns at [$rng uniform 0.0 1.0] "$ftp start"
}

proc note_acknowledged {} {
    global p tcp before compressions_before
    if {$p(library) ne ""} {
        set compressions_before [compressions]
    }
    for {set k 0} {$k < $p(flows)} {incr k} {
        set before($k) [$tcp($k) set ack_]
    }
}

proc finish {} {
    global p tcp before compressions_before records
    set packets 0
    set sent 0
    set squares 0.0
    for {set k 0} {$k < $p(flows)} {incr k} {
        set mine [expr {[$tcp($k) set ack_] - $before($k)}]
        incr packets $mine
        set squares [expr {$squares + double($mine) * $mine}]
        incr sent [$tcp($k) set ndatapack_]
    }
    set bits [expr {$packets * 8.0 * $p(packet)}]
    result throughput_mbps [format %.4f [expr {$bits / ($p(seconds) - $p(from)) / 1e6}]]
    result fairness [format %.4f [expr {double($packets) * $packets / ($p(flows) * $squares)}]]
    result packets_sent $sent
    if {$p(library) ne ""} {
        result compressions [expr {[compressions] - $compressions_before}]
    }
    if {$records ne ""} {
        close $records
    }
    exit 0
}

seed_streams $p(seed)
set ns [new Simulator]
set records ""
if {$p(records) ne ""} {
    set filter [file join [file dirname [info script]] packets.awk]
    set records [open "|awk -f $filter > $p(records)" w]
}
set core1 [$ns node]
set core2 [$ns node]
link $core1 $core2 $p(core) $p(coredelay)
for {set i 0} {$i < 3} {incr i} {
    set ingress($i) [$ns node]
    set egress($i) [$ns node]
    ingress_link $ingress($i) $core1 $p(edge) $p(edgedelay)
    record $ingress($i) $core1
    link $core2 $egress($i) $p(edge) $p(edgedelay)
}
if {$p(library) ne ""} {
    set returner [new BlockReturner]
    $returner set after_ $p(back)
    return_lost $core1 $core2
    for {set i 0} {$i < 3} {incr i} {
        return_lost $core2 $egress($i)
        restore $core2 $egress($i)
    }
}
for {set k 0} {$k < $p(flows)} {incr k} {
    flow $k
}
$ns at $p(from) note_acknowledged
$ns at $p(seconds) finish
$ns run
