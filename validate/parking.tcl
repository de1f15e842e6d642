# Shimamura et al.'s parking lot without compression (section 5.1, Fig. 2), for ns-2.35:
#
#     S -> R1 -> R2 ... -> Rn -> D       and at each Ri, i < n:  Xi -> Ri -> R(i+1) -> Y(i+1)
#
#     ns validate/parking.tcl n=2 seed=1 seconds=30 limit=1000 records=FILE
#
# All links have the same rate and no propagation. Flow 0 goes from S to D, flow i from Xi to
# Y(i+1), where the paper has X(i+1), which takes what arrives and sends something else. Each
# source draws from a stream of its own, in the order of the flows.
#
# Prints the states of the streams, and for each flow packets received and lost. With `records` it
# also writes a line for each packet sent before `seconds`, made by records.awk:
#
#     FLOW SEQUENCE SENT_S r RECEIVED_S
#     FLOW SEQUENCE SENT_S d DROPPED_S

source [file join [file dirname [info script]] common.tcl]
array set p [parameters {
    n 2 seed 1 seconds 30 limit 1000 rate 100Mb
    packet 500 peak 60Mb on 250us off 50us records {}
} $argv]

# A link in one direction; the queue takes `limit` packets, as ns-2 counts them.
proc link {from to limit} {
    global ns p
    $ns simplex-link $from $to $p(rate) 0ms DropTail
    $ns queue-limit $from $to $limit
    return [$ns link $from $to]
}

# Lets some of a link's events go to the records: enq, drp, rcv. Traces of the tagged form have
# times with 15 digits; those of the usual form are rounded to microseconds.
proc record {link events} {
    global ns records
    if {$records eq ""} {
        return
    }
    $link trace $ns $records
    foreach event {enq deq drp rcv} {
        set trace [$link set ${event}T_]
        if {[lsearch $events $event] < 0} {
            $trace detach
        } else {
            $trace tagged 1
        }
    }
}

# An exponential on/off source at `from` and a sink at `to`.
proc flow {id from to} {
    global ns p sinks
    set rng [new RNG]
    result "stream.$id" [$rng all-seeds]
    set agent [new Agent/UDP]
    $agent set fid_ $id
    $agent set packetSize_ $p(packet)
    $ns attach-agent $from $agent
    set sink [new Agent/LossMonitor]
    $ns attach-agent $to $sink
    $ns connect $agent $sink
    set source [new Application/Traffic/Exponential]
    $source set packetSize_ $p(packet)
    $source set rate_ $p(peak)
    $source set burst_time_ $p(on)
    $source set idle_time_ $p(off)
    $source use-rng $rng
    $source attach-agent $agent
    $ns at 0.0 "$source start"
    set sinks($id) $sink
}

proc finish {} {
    global p sinks records
    for {set id 0} {$id < $p(n)} {incr id} {
        result "received.$id" [$sinks($id) set npkts_]
        result "lost.$id" [$sinks($id) set nlost_]
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
    set filter [file join [file dirname [info script]] records.awk]
    set records [open "|awk -v until=$p(seconds) -f $filter > $p(records)" w]
}

set source [$ns node]
set destination [$ns node]
for {set i 1} {$i <= $p(n)} {incr i} {
    set relay($i) [$ns node]
}
record [link $source $relay(1) 1000] enq
record [link $relay($p(n)) $destination 1000] rcv
flow 0 $source $destination
for {set i 1} {$i < $p(n)} {incr i} {
    set next [expr {$i + 1}]
    set cross [$ns node]
    set sink [$ns node]
    record [link $relay($i) $relay($next) $p(limit)] drp
    record [link $cross $relay($i) 1000] enq
    record [link $relay($next) $sink 1000] rcv
    flow $i $cross $sink
}

# Sources go on, so that the last packets that are looked at meet what others do. In a second the
# packets of ten full queues have arrived.
$ns at [expr {$p(seconds) + 1.0}] finish
$ns run
