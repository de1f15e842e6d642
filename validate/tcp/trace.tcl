# One bottleneck, one or more TCP flows, in ns-2.35: what is sent, dropped and sent again.
#
#   ns trace.tcl NAME LIMIT SECONDS FLOW... > NAME.trace
#
# FLOW is START_US,DELAY_US,BYTES: when it starts, the one-way delay of its access link, how large
# its packets are (headers included). All links serve 1 byte in a whole number of microseconds, and
# all times are whole microseconds: ns-2's own traces round to them.
#
#   sender i --1 us/byte, DELAY_US-- router --4 us/byte, 10,007 us, LIMIT packets-- receiver

set limit [lindex $argv 1]
set seconds [lindex $argv 2]
set flows [lrange $argv 3 end]

Agent/TCP set window_ 10000
set ns [new Simulator]
set raw_name "/tmp/[pid].tr"
set raw [open $raw_name w]
$ns trace-all $raw

# Each sender's clock is ahead by a random part of a tick, drawn when the simulation begins. The
# same number is drawn here first.
Agent/TCP/Sack1 instproc reset {} {
    global defaultRNG phase
    $defaultRNG next-substream
    set phase($self) [$defaultRNG uniform 0 1]
    $defaultRNG reset-start-substream
    $self cmd reset
}

set router [$ns node]
set receiver [$ns node]
$ns duplex-link $router $receiver 2Mb 10.007ms DropTail
$ns queue-limit $router $receiver $limit
$ns queue-limit $receiver $router 1000

foreach flow $flows {
    foreach {start delay bytes} [split $flow ,] {}
    set node [$ns node]
    $ns duplex-link $node $router 8Mb [expr $delay / 1e6] DropTail
    $ns queue-limit $node $router 1000000
    set tcp [new Agent/TCP/Sack1]
    $tcp set packetSize_ [expr $bytes - 40]
    $tcp set fid_ [llength [array names tcps]]
    set sink [new Agent/TCPSink/Sack1]
    $ns attach-agent $node $tcp
    $ns attach-agent $receiver $sink
    $ns connect $tcp $sink
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp
    $ns at [expr $start / 1e6] "$ftp start"
    set tcps([array size tcps]) $tcp
}
$ns at $seconds.0000005 finish

# The trace's lines: "+ time from to type size flags flow source destination number id".
proc finish {} {
    global ns raw raw_name flows limit seconds tcps phase
    $ns flush-trace
    close $raw
    puts "# ns-2.35: trace.tcl $limit $seconds $flows"
    puts "limit $limit"
    puts "seconds $seconds"
    set i 0
    foreach flow $flows {
        foreach {start delay bytes} [split $flow ,] {}
        puts "flow $start $delay $bytes [expr int($phase($tcps($i)) * 1e7)]"
        incr i
    }
    events $raw_name
    file delete $raw_name
    foreach i [lsort -integer [array names tcps]] {
        set tcp $tcps($i)
        puts "end $i [$tcp set ndatapack_] [$tcp set nrexmitpack_] [$tcp set nrexmit_]\
            [expr [$tcp set ack_] + 1] [$tcp set cwnd_] [$tcp set ssthresh_]"
    }
    exit 0
}

# Every drop, every retransmission, and each 16th of the other packets; a checksum over all.
proc events {name} {
    set in [open $name]
    set sum 0
    set sent 0
    while {[gets $in line] >= 0} {
        foreach {what time from to type size flags flow source destination seq id} $line {}
        if {$type ne "tcp"} continue
        set us [expr wide($time * 1e6 + 0.5)]
        if {$what eq "d"} {
            puts "drop $us $flow $seq"
        } elseif {$what eq "+" && $from >= 2} {
            set again [expr {[info exists high($flow)] && $seq <= $high($flow)}]
            if {!$again} { set high($flow) $seq }
            if {$again} { puts "again $us $flow $seq" }
            if {!$again && $sent % 16 == 0} { puts "send $us $flow $seq" }
            set sum [expr ($sum * 31 + $us * 7 + $flow * 3 + $seq) % 2147483647]
            incr sent
        }
    }
    close $in
    puts "sum $sent $sum"
}

$ns run
