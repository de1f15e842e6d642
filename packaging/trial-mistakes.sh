# The usual mistakes, for trial.sh, which reads this file. Each is made, and what is said is looked at in all
# places where it can be seen: by `check`, at the start of the relay, in the status (and so on the web page, which
# shows the status' problems with the same words), by `verify`, and in the log.
# shellcheck shell=bash disable=SC2154,SC2016

rows=()

mistakes() {
    title "mistakes"
    wrong_key
    same_key
    swapped_prefixes
    endpoint_in_tunnel
    closed_port
    blocked_icmp
    wrong_units
    taken_interface
    missing_capability
    overlapping_prefixes
    ipv6_only
    nat_on_both_sides
    one_end_restarted
    rate_too_high
    printf '\n| mistake | seen by | what is said |\n|---|---|---|\n'
    printf '%s\n' "${rows[@]}"
}

# begin: two systems with the package, paired.
begin() {
    down site-a
    down site-b
    link_rate 10mbit
    local site
    for site in site-a router site-b; do ip netns exec "$site" nft flush ruleset; done
    fresh
    for site in site-a site-b; do at "$site" dpkg -i /tmp/dwell.deb >"$log" 2>&1; done
    [ "${1-}" = unpaired ] || pair
}

# row MISTAKE PLACES PATTERN: the sentence that has the pattern, as the table shows it. What `seen` has collected
# under each of the places must have it.
declare -A seen=()
row() {
    local mistake=$1 places=$2 pattern=$3 place sentence=""
    for place in $places; do
        has "$mistake: $place" "${seen[$place]-}" "$pattern"
        [ -n "$sentence" ] ||
            sentence=$(grep -iEm 1 -- "$pattern" <<<"${seen[$place]-}" |
                sed -E 's/^[0-9TZ:.-]+ +(WARN|INFO) //; s/^(dwell|error|warning): //; s/[A-Za-z0-9+\/]{43}=/KEY/g; s/\|/\\|/g' | cut -c 1-330 || true)
    done
    rows+=("| $mistake | $(sed 's/[a-z]*/`&`/g; s/ /, /g' <<<"$places") | $sentence |")
    seen=()
}

# look [SITE]: collects what is said there, or at site A, while the relays run. The page is asked as a browser would
# ask it.
look() {
    local site=${1:-site-a}
    seen[check]=$(at "$site" dwell check /etc/dwell/relay.toml 2>&1 || true)
    seen[status]=$(at "$site" dwell status 2>&1 || true)
    seen[verify]=$(at "$site" dwell verify --wait 2 2>&1 || true)
    seen[log]=$(cat "$directory/$site.log")
    seen[web]=$(at "$site" curl -sN --max-time 2 http://127.0.0.1:7780/live 2>&1 || true)
}

# start [SITE...]: relays with web pages. Some problems are called so after some seconds only.
start() {
    local site
    for site in "$@"; do
        printf '\n[web]\nlisten = "127.0.0.1:7780"\n' >>"$(config "$site")"
        up "$site"
    done
}

# soon PATTERN [QUARTERS OF A SECOND]: until the status has it.
soon() {
    for _ in $(seq "${2:-60}"); do
        ! at site-a dwell status 2>/dev/null | grep -qE -- "$1" || return 0
        sleep 0.25
    done
    echo "never: $1"
}

# given COMMAND...: it changes site A's file while its relay runs, which has to read it then. What is said then, and by a
# relay that is to start with it.
given() {
    start site-a site-b
    soon "site-b answers"
    "$@"
    kill -HUP "${relays[site-a]}"
    soon "the configuration file was refused"
    look
    seen[up]=$(at site-a timeout 5 dwell up 2>&1 || true)
}

wrong_key() {
    begin
    local other
    other=$(at site-a sh -c 'dwell genkey --out /tmp/other.key >/dev/null 2>&1; dwell pubkey /tmp/other.key')
    sed -i "s|^public_key = .*|public_key = \"$other\"|" "$(config site-a)"
    start site-a site-b
    soon "site-b: wrong_key"
    look
    row "a wrong public key" "status verify log web" 'public_key = \\?"[A-Za-z0-9+/]{43}=\\?" for it here'
}

same_key() {
    begin unpaired
    local line
    line=$(at site-a dwell init --name site-a --prefix 10.1.0.0/24 --endpoint 203.0.113.10 2>/dev/null)
    mkdir -p "$(root site-b)/etc/dwell"
    cp -p "$(root site-a)/etc/dwell/private.key" "$(root site-b)/etc/dwell/"
    seen[join]=$(at site-b dwell join --name site-b --prefix 10.2.0.0/24 "$line" 2>&1 || true)
    row "the same key at both ends" "join" "files were copied: make it a key of its own"
    begin
    local own
    own=$(at site-a dwell pubkey /etc/dwell/private.key)
    given sed -i "s|^public_key = .*|public_key = \"$own\"|" "$(config site-a)"
    row "a node's own key as its peer's" "check up status verify log web" "this is the node's own key: write the one that"
}

swapped_prefixes() {
    begin unpaired
    local line answer
    line=$(at site-a dwell init --name site-a --prefix 10.2.0.0/24 --endpoint 203.0.113.10 2>/dev/null)
    answer=$(at site-b dwell join --name site-b --prefix 10.1.0.0/24 "$line" 2>/dev/null)
    at site-a dwell join "$answer" >"$log" 2>&1
    start site-a site-b
    soon bypassed
    look
    row "the two sites' prefixes swapped" "check status verify log web" \
        'is an address of this machine itself.*Write what is at .*in its prefixes'
    begin unpaired
    line=$(at site-a dwell init --name site-a --prefix 10.1.0.0/24 --endpoint 203.0.113.10 2>/dev/null)
    seen[join]=$(at site-b dwell join --name site-b --prefix 10.1.0.0/24 "$line" 2>&1 || true)
    row "the same prefix at both sites" "join" "both sites can't have the same network.*renumber one"
}

endpoint_in_tunnel() {
    begin
    sed -i 's|^prefixes = \["10.2.0.0/24"|prefixes = ["198.51.100.0/24", "10.2.0.0/24"|' "$(config site-a)"
    start site-a site-b
    soon "site-b: endpoint_in_tunnel"
    look
    row "the endpoint lies inside the tunnel" "check status verify log web" "ip route add 198.51.100.20 via"
}

closed_port() {
    begin
    start site-a
    soon "site-b: port_closed"
    look
    row "nobody listens at the port" "status verify log web" "Start the relay there"
    begin
    ip netns exec site-b nft -f - <<<'table inet f { chain i { type filter hook input priority 0; udp dport 7733 drop; }; }'
    start site-a site-b
    soon "site-b: (no_answer|one_way)"
    look
    row "a firewall drops the port" "status verify log web" "firewalls? (that drops UDP|on the path let UDP)"
}

blocked_icmp() {
    begin
    local site
    ip netns exec router nft -f - <<<'table inet f {
        chain through { type filter hook forward priority 0; ip protocol icmp drop; meta length > 1300 drop; }
        chain own { type filter hook output priority 0; ip protocol icmp drop; }
    }'
    for site in site-a site-b; do
        ip netns exec "$site" nft -f - <<<'table inet f { chain i { type filter hook input priority 0; ip protocol icmp drop; }; }'
    done
    start site-a site-b
    soon "site-b: path_mtu"
    look
    row "ICMP is blocked, and long datagrams vanish" "status verify log web" \
        'Let ICMP \\?"fragmentation needed\\?" and \\?"packet too big\\?" pass'
    seen[verify]=$(at site-a dwell verify --wait 2 2>&1 || true)
    row "pings are blocked" "verify" "does not answer a ping.*Does a firewall there drop ICMP"
}

wrong_units() {
    begin
    seen[init]=$(at site-a dwell init --config /tmp/x.toml --name site-a --rate 250KB 2>&1 || true)
    row 'a rate in wrong units (`250KB`)' "init" 'write "250kbit" for bits per second, or "250kB/s"'
    given sed -i 's|^rate = .*|rate = "250KB"|' "$(config site-a)"
    row 'a rate in wrong units (`250KB`)' "check up status verify log web" \
        'write \\?"250kbit\\?" for bits per second, or \\?"250kB/s\\?"'
}

taken_interface() {
    begin
    at site-a ip link add dwell0 type veth peer name other
    seen[check]=$(at site-a dwell check /etc/dwell/relay.toml 2>&1 || true)
    seen[up]=$(at site-a timeout 5 dwell up 2>&1 || true)
    at site-a ip link delete dwell0
    row "an interface of this name is there already" "check up" 'choose another name for "tun" in \[node\], or remove'
}

missing_capability() {
    begin
    local without=(setpriv --bounding-set -net_admin --inh-caps -net_admin)
    seen[check]=$(at site-a "${without[@]}" dwell check /etc/dwell/relay.toml 2>&1 || true)
    seen[up]=$(at site-a "${without[@]}" timeout 5 dwell up 2>&1 || true)
    row 'started without `CAP_NET_ADMIN`' "check up" "needs CAP_NET_ADMIN: run as root, or give it"
}

add_site_c() {
    printf '\n[[peer]]\nname = "site-c"\nprefixes = ["10.2.0.0/24"]\npublic_key = "%s"\n' \
        "Zy1j6hgjOc1uUhu4QmS0vhSUWhTHrsZ7vRriz3r2V2o=" >>"$(config site-a)"
}

overlapping_prefixes() {
    begin
    given add_site_c
    row "two peers with the same prefix" "check up status verify log web" "is routed to .* already: a prefix can have one peer only"
}

ipv6_only() {
    begin
    given sed -i 's|^endpoint = .*|endpoint = "[2001:db8:b::20]:7733"|' "$(config site-a)"
    row "IPv6 at one end, IPv4 at the other" "check up status verify log web" \
        'listen on an IPv6 address, for instance listen = \\?"\[::\]:7733\\?"'
    begin unpaired
    local line answer
    line=$(at site-a dwell init --name site-a --prefix 10.1.0.0/24 --endpoint '[2001:db8:a::10]' 2>"$log" || cat "$log")
    answer=$(at site-b dwell join --name site-b --prefix 10.2.0.0/24 "$line" 2>"$log" || cat "$log")
    at site-a dwell join "$answer" >"$log" 2>&1 || true
    up site-a
    up site-b
    verified
}

# A NAT at each end, as at home: a site's only way out is its router's, which lets in nothing that was not asked for.
#
#   site-a 192.168.1.2 ─ nat-a 192.0.2.2 ─ router ─ 192.0.2.6 nat-b ─ 192.168.2.2 site-b
behind_nats() {
    local end site nat number=0
    for end in a b; do
        site=site-$end nat=nat-$end number=$((number + 1))
        ip netns add "$nat"
        ip -n "$nat" link set lo up
        ip link add home netns "$site" type veth peer name inside netns "$nat"
        ip link add outside netns "$nat" type veth peer name "nat-$end" netns router
        ip -n "$site" address add "192.168.$number.2/24" dev home
        ip -n "$nat" address add "192.168.$number.1/24" dev inside
        ip -n "$nat" address add "192.0.2.$((4 * number - 2))/30" dev outside
        ip -n router address add "192.0.2.$((4 * number - 3))/30" dev "nat-$end"
        ip -n "$site" link set home up
        ip -n "$nat" link set inside up
        ip -n "$nat" link set outside up
        ip -n router link set "nat-$end" up
        ip -n "$site" link set wan down
        ip -n "$site" route replace default via "192.168.$number.1"
        ip -n "$nat" route add default via "192.0.2.$((4 * number - 3))"
        ip netns exec "$nat" sysctl -qw net.ipv4.ip_forward=1
        nat_rules "$nat"
        # What is known of a flow must not outlive the rules of then; a NAT of today remembers for half a minute.
        remembers "$nat" 1
    done
}

# nat_rules NAT [PORT TO]: with another port for each flow, as carriers' NATs choose; PORT is passed on to TO.
nat_rules() {
    ip netns exec "$1" nft -f - <<END
flush ruleset
table ip nat {
    chain in { type nat hook prerouting priority -100; ${2:+iifname "outside" udp dport $2 dnat to $3;} }
    chain out { type nat hook postrouting priority 100; oifname "outside" masquerade fully-random; }
}
table ip filter {
    chain through {
        type filter hook forward priority 0
        ct status dnat accept
        iifname "outside" ct state new drop
    }
}
END
}

# remembers NAT SECONDS: how long it does after the last datagram.
remembers() {
    ip netns exec "$1" sysctl -qw "net.netfilter.nf_conntrack_udp_timeout=$2" "net.netfilter.nf_conntrack_udp_timeout_stream=$2"
}

without_nats() {
    local end
    for end in a b; do
        ip netns delete "nat-$end"
        ip -n "site-$end" link set wan up
    done
    ip -n site-a route replace default via 203.0.113.1
    ip -n site-b route replace default via 198.51.100.1
}

nat_on_both_sides() {
    begin unpaired
    behind_nats
    local line answer site
    line=$(at site-a dwell init --name site-a --prefix 10.1.0.0/24 2>"$log")
    seen[init]=$(cat "$log")
    seen[join]=$(at site-b dwell join --name site-b --prefix 10.2.0.0/24 "$line" 2>&1 || true)
    row "a NAT at both ends" "init join" "(other end must have one|add --endpoint HOST:PORT at the end that can be reached)"
    # The endpoint that people write then, and that nobody forwards.
    line=$(at site-a dwell init --force --name site-a --prefix 10.1.0.0/24 --endpoint 192.0.2.2 2>"$log")
    answer=$(at site-b dwell join --name site-b --prefix 10.2.0.0/24 "$line" 2>"$log")
    at site-a dwell join "$answer" >"$log" 2>&1
    start site-a site-b
    seen[verify]=$(at site-b dwell verify --wait 12 2>&1 || true)
    look site-b
    row "a NAT at both ends, and an endpoint whose port it does not forward" "status verify log web" "If that is the address of its router, have it forward this UDP port"
    # The remedy: verified from both ends.
    nat_rules nat-a 7733 192.168.1.2
    down site-b
    sleep 2
    remembers nat-a 30
    remembers nat-b 30
    up site-b
    for site in site-b site-a; do
        has "behind two NATs the tunnel works, seen from $site" "$(at "$site" dwell verify --wait 30 2>&1 || true)" "It works"
    done
    has "hosts behind it answer" "$(at site-a ping -c 2 -I 10.1.0.1 10.2.0.1 2>&1 || true)" "2 received"
    has "and the other way" "$(at site-b ping -c 2 -I 10.2.0.1 10.1.0.1 2>&1 || true)" "2 received"
    has "site A sees the NAT of site B" "$(at site-a dwell status 2>&1)" "192\.0\.2\.6:"
    down site-a
    down site-b
    without_nats
}

one_end_restarted() {
    begin
    start site-a site-b
    soon "site-b answers"
    kill -9 "${relays[site-b]}"
    wait "${relays[site-b]}" 2>/dev/null || true
    up site-b
    verified
    look
    # There is nothing to do about it: it is said where what happened is said.
    row "one end was restarted" "status log web" "site-b began again: it was restarted"
}

rate_too_high() {
    begin
    link_rate 1mbit
    start site-a site-b
    soon "site-b answers"
    # Some 6 Mbit/s that no codec makes smaller, and nobody answers.
    ip netns exec site-b nft -f - <<<'table inet f { chain i { type filter hook input priority 0; udp dport 9 drop; }; }'
    # shellcheck disable=SC2016
    at site-a timeout 40 bash -c 'while dd if=/dev/urandom bs=1200 count=30 >/dev/udp/10.2.0.1/9; do sleep 0.04; done' \
        >"$log" 2>&1 &
    local load=$!
    # The relay looks at it each ten seconds.
    soon "site-b: rate_too_high" 120
    look
    kill "$load" 2>/dev/null || true
    wait "$load" || true
    row "a rate ten times too high, under load" "status verify log web" 'or rate = \\?"auto\\?"'
}
