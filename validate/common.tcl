# What the scripts share: parameters from the command line, random streams, results.

# Takes `name=value` words and overrides the defaults with them.
proc parameters {defaults words} {
    array set known $defaults
    foreach word $words {
        if {![regexp {^([a-z]+)=(.*)$} $word all name value] || ![info exists known($name)]} {
            puts stderr "no parameter \"$word\"; there are: [lsort [array names known]]"
            exit 2
        }
        set known($name) $value
    }
    return [array get known]
}

# The default generator takes the first stream of a seed. Each `new RNG` after that takes the
# next one, 2^127 numbers further on.
proc seed_streams {seed} {
    global defaultRNG
    $defaultRNG seed $seed
}

proc result {name value} {
    puts "$name $value"
}
