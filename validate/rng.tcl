# Prints numbers of ns-2's random generator, for the golden values of `dwell_sim::ns2`:
#
#     ns validate/rng.tcl seed=1
#
# For three streams, and for the second substream of the third one: the state before the first
# number, then integers below 2^31.

source [file join [file dirname [info script]] common.tcl]
array set p [parameters {seed 1 count 5} $argv]

proc show {name rng} {
    global p
    puts "$name state [$rng all-seeds]"
    set numbers {}
    for {set i 0} {$i < $p(count)} {incr i} {
        lappend numbers [$rng next-random]
    }
    puts "$name integers $numbers"
}

seed_streams $p(seed)
show default $defaultRNG
show stream1 [new RNG]
set third [new RNG]
show stream2 $third
$third next-substream
show stream2.1 $third

# Exponential draws as the sources make them: mean times the negative logarithm.
set variable [new RandomVariable/Exponential]
$variable use-rng [new RNG]
$variable set avg_ 1.0
set draws {}
for {set i 0} {$i < $p(count)} {incr i} {
    lappend draws [$variable value]
}
puts "stream3 exponential $draws"
exit 0
