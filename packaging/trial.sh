#!/usr/bin/env bash
# What a new user does, on two clean Debian systems with the package: from nothing to a verified tunnel, then the
# usual mistakes and what is said about each, and what install, upgrade, remove and purge leave behind.
# `./x test --all` runs it; as root only, since Debian's systems are made here.
#
#     packaging/trial.sh DIRECTORY PACKAGE [NEWER-PACKAGE]
#
# DIRECTORY keeps a clean system for the next time. Networks, mounts and processes are in namespaces of their own and
# gone at the end. The table of mistakes is printed as Markdown; exit code 1 if something does not hold.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
directory=$(readlink -m "$1")
package=$(readlink -f "$2")
# What a new user's first tunnel may take, with a margin for none but the machine's own time: people read, too.
commands_max=4
first_tunnel_ms_max=180000
# Of pings each 50 ms, what a restart may cost: two seconds.
lost_max=40
newer=${3:+$(readlink -f "$3")}
suite=bookworm

if [ -z "${DWELL_TRIAL_INSIDE-}" ]; then
    [ "$(id -u)" = 0 ] || { echo "the trial makes Debian systems: it needs root" >&2 && exit 1; }
    mkdir -p "$directory"
    if [ ! -e "$directory/clean/usr/bin/wireguard-go" ]; then
        rm -rf "$directory/clean"
        debootstrap --variant=minbase --include=iproute2,iputils-ping,nftables,curl,wireguard-go,wireguard-tools "$suite" "$directory/clean" \
            http://deb.debian.org/debian >"$directory/debootstrap.log" 2>&1 ||
            { tail -n 5 "$directory/debootstrap.log" && exit 1; }
    fi
    DWELL_TRIAL_INSIDE=1 exec unshare --mount --net --pid --fork --kill-child --propagation private \
        "$0" "$directory" "$package" "$newer"
fi

# shellcheck source=packaging/trial-site.sh
. "$here/trial-site.sh"
# shellcheck source=packaging/trial-mistakes.sh
. "$here/trial-mistakes.sh"

main() {
    make_network
    # Where the package is the first thing to be tried.
    fresh
    lifecycle
    from_nothing
    beside_wireguard
    mistakes
    echo
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}

# --- Install, upgrade, remove, purge ---

lifecycle() {
    title "install"
    local before after
    before=$(files site-a)
    enter site-a dpkg -i /tmp/dwell.deb >"$log" 2>&1
    has "the program runs" "$(enter site-a dwell --version)" "^dwell [0-9]"
    has "the proxies' user is there" "$(enter site-a getent passwd dwell)" "^dwell:.*nologin"
    local file
    for file in /usr/lib/systemd/system/dwell.service /usr/lib/sysusers.d/dwell.conf \
        /usr/share/man/man1/dwell.1.gz /usr/share/bash-completion/completions/dwell \
        /usr/share/zsh/vendor-completions/_dwell /usr/share/fish/vendor_completions.d/dwell.fish \
        /usr/share/doc/dwell/copyright /usr/share/doc/dwell/changelog.gz; do
        holds "$file" test -s "$(root site-a)$file"
    done
    has "nothing else is needed" "$(enter site-a ldd /usr/bin/dwell 2>&1 || true)" "not a dynamic|statically"
    has "files are unchanged" "$(enter site-a dpkg --verify dwell && echo verified)" "verified"

    title "upgrade"
    enter site-b dpkg -i /tmp/dwell.deb >"$log" 2>&1
    pair
    up site-a
    up site-b
    verified
    if [ -n "$newer" ]; then
        upgrade
    else
        echo "skipped: there is no newer package"
    fi
    down site-a
    down site-b

    title "remove and purge"
    enter site-a dpkg -r dwell >"$log" 2>&1
    holds "the program is gone" test ! -e "$(root site-a)/usr/bin/dwell"
    holds "keys and configuration stay" test -s "$(root site-a)/etc/dwell/private.key"
    enter site-a dpkg -P dwell >"$log" 2>&1
    holds "a purge takes them" test ! -e "$(root site-a)/etc/dwell"
    after=$(files site-a)
    has "nothing else is left" "$(diff <(echo "$before") <(echo "$after") | grep '^[<>]' |
        grep -vE '/(etc/(passwd|group|shadow|gshadow|subuid|subgid)-?|var/(lib/dpkg|log|cache)/.*)$'; echo end)" "^end$"
    fresh
}

# The old program runs while the new one is unpacked; then it is restarted, as systemd would.
upgrade() {
    local pings=120 lost last pid program
    at site-a dpkg -i /tmp/newer.deb >"$log" 2>&1
    has "the upgrade leaves the relay alone" "$(at site-a dwell status 2>&1)" "site-b answers"
    program=$(readlink "/proc/${relays[site-a]}/exe")
    has "the old program still runs" "$program" "/usr/bin/dwell \(deleted\)$"
    at site-b ping -i 0.05 -c "$pings" -W 1 10.77.0.1 >"$directory/ping.log" 2>&1 &
    pid=$!
    sleep 1
    down site-a
    up site-a
    program=$(readlink "/proc/${relays[site-a]}/exe")
    wait "$pid" || true
    lost=$((pings - $(grep -c "bytes from 10.77.0.1" "$directory/ping.log" || true)))
    echo "of $pings pings, one each 50 ms, $lost were lost during the restart"
    holds "no more than $lost_max pings are lost" test "$lost" -le "$lost_max"
    holds "some are, since the relay was away" test "$lost" -gt 0
    # All of the last second were answered: the session is back, and stays.
    last=$(sed -n 's/.*bytes from 10\.77\.0\.1: icmp_seq=\([0-9]*\) .*/\1/p' "$directory/ping.log" |
        awk -v from=$((pings - 20)) '$1 > from' | wc -l)
    holds "the session is back" test "$last" = 20
    verified
    has "the new one is installed" "$(enter site-a dpkg-query -W dwell)" "$(dpkg-deb -f "$newer" Version)"
    has "and runs" "$program" "/usr/bin/dwell$"
}

# --- From nothing ---

# types SITE COMMAND...: what the user enters, counted. Commands in subshells count, too.
types() {
    echo "$2 $3" >>"$directory/typed"
    at "$@"
}

from_nothing() {
    title "from nothing to a verified tunnel"
    local start end line answer commands
    : >"$directory/typed"
    start=$(date +%s%N)
    at site-a dpkg -i /tmp/dwell.deb >"$log" 2>&1
    at site-b dpkg -i /tmp/dwell.deb >"$log" 2>&1
    line=$(types site-a dwell init --name site-a --prefix 10.1.0.0/24 --endpoint 203.0.113.10 2>"$log")
    # `--up` runs the relay; what it prints first is the answer.
    echo "dwell join" >>"$directory/typed"
    at_background site-b dwell join --up --name site-b --prefix 10.2.0.0/24 --rate 10mbit "$line"
    answer=$(first_line site-b "^dwell3,")
    echo "dwell join" >>"$directory/typed"
    at_background site-a dwell join --up --code "$(code_of site-b)" "$answer"
    ready site-a
    types site-a dwell verify --wait 30 >"$log" 2>&1 || true
    end=$((($(date +%s%N) - start) / 1000000))
    commands=$(wc -l <"$directory/typed")
    has "verified" "$(cat "$log")" "It works, as far as it can be seen from here"
    has "the other way, too" "$(at site-b dwell verify --wait 30 2>&1 || true)" "It works, as far as it can be seen from here"
    has "hosts behind it answer" "$(at site-a ping -c 2 -I 10.1.0.1 10.2.0.1)" "2 received"
    echo "$commands commands after the installation ($(paste -sd, "$directory/typed")), $end ms of the machine"
    holds "no more than $commands_max commands" test "$commands" -le "$commands_max"
    holds "less than three minutes" test "$end" -lt "$first_tunnel_ms_max"
    down site-a
    down site-b
    fresh
}

# code_of SITE: that of the answer that its relay has printed.
code_of() {
    sed -n 's/^If it asks for the code of this answer:  //p' "$directory/$1.log"
}

# --- Beside WireGuard ---

# The example of docs/examples, at both ends: WireGuard encrypts, dwell compresses inside.
beside_wireguard() {
    title "inside WireGuard"
    begin unpaired
    local -A keys=() addresses=([site-a]=10.88.0.1 [site-b]=10.88.0.2) outside=([site-a]=203.0.113.10 [site-b]=198.51.100.20)
    local site other
    for site in site-a site-b; do
        keys[$site]=$(at "$site" sh -c 'umask 077; wg genkey >/tmp/wg.key; wg pubkey </tmp/wg.key')
        at "$site" wireguard-go wg0 >"$log" 2>&1
    done
    for site in site-a site-b; do
        other="site-b"
        [ "$site" = site-a ] || other="site-a"
        at "$site" wg set wg0 listen-port 51820 private-key /tmp/wg.key peer "${keys[$other]}" \
            allowed-ips "${addresses[$other]}/32" endpoint "${outside[$other]}:51820"
        at "$site" ip address add "${addresses[$site]}/24" dev wg0
        at "$site" ip link set dev wg0 up mtu 1420
        mkdir -p "$(root "$site")/etc/dwell"
    done
    ip netns exec router nft -f - <<<'table inet f { chain i { type filter hook forward priority 0; udp dport 7733 counter; }; }'
    local example=usr/share/doc/dwell/docs/examples/inside-wireguard.toml
    cp "$(root site-a)/$example" "$(config site-a)"
    sed 's/site-a/site-X/; s/site-b/site-a/; s/site-X/site-b/; s/10\.88\.0\.1/10.88.0.X/; s/10\.88\.0\.2/10.88.0.1/; s/10\.88\.0\.X/10.88.0.2/
        s/10\.77\.0\.1/10.77.0.X/; s/10\.77\.0\.2/10.77.0.1/; s/10\.77\.0\.X/10.77.0.2/; s/10\.2\.0\.0/10.1.0.0/' \
        "$(root site-b)/$example" >"$(config site-b)"
    up site-a
    up site-b
    verified
    has "hosts behind it answer" "$(at site-a ping -c 2 -I 10.1.0.1 10.2.0.1 2>&1 || true)" "2 received"
    has "nothing of dwell is outside of WireGuard" "$(ip netns exec router nft list ruleset)" "dport 7733 counter packets 0 bytes 0"
    down site-a
    down site-b
    fresh
}

main
