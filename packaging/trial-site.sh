# Two sites of Debian with a router between them, for trial.sh, which reads this file.
# shellcheck shell=bash disable=SC2034,SC2154
#
#   site-a 203.0.113.10 ─── router, 10 Mbit/s each way ─── 198.51.100.20 site-b
#          10.1.0.0/24                                      10.2.0.0/24

passed=0
failed=0
log=$directory/last.log
declare -A relays=()

# --- Checks ---

title() {
    printf '\n== %s\n' "$1"
}

# ok WHAT / bad WHAT DETAILS
ok() {
    passed=$((passed + 1))
    echo "ok: $1"
}

bad() {
    failed=$((failed + 1))
    printf 'FAILED: %s\n%s\n' "$1" "$2" | head -n 30
}

# has WHAT TEXT PATTERN
has() {
    if grep -qiE -- "$3" <<<"$2"; then ok "$1"; else bad "$1" "no \"$3\" in: $2"; fi
}

# holds WHAT COMMAND...
holds() {
    local what=$1
    shift
    if "$@"; then ok "$what"; else bad "$what" "$*"; fi
}

# --- Systems and networks ---

root() {
    echo "$directory/$1"
}

# Its files, without what lives in memory.
files() {
    (cd "$(root "$1")" && find . -xdev -path ./proc -prune -o -path ./sys -prune -o -path ./tmp -prune -o \
        -path ./run -prune -o -path ./dev -prune -o -print | sed 's/^\.//' | sort)
}

make_network() {
    # Names of networks are files in /run, and this one goes with the namespace.
    mount -t tmpfs tmpfs /run
    mount -t proc proc /proc
    local site
    for site in site-a router site-b; do ip netns add "$site"; done
    ip link add wan netns site-a type veth peer name a netns router
    ip link add wan netns site-b type veth peer name b netns router
    for site in site-a router site-b; do
        ip -n "$site" link set lo up
        ip netns exec "$site" sysctl -qw net.ipv4.ip_forward=1
        ip netns exec "$site" sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv6.conf.default.accept_dad=0 2>/dev/null || true
    done
    local end address
    for end in "site-a wan 203.0.113.10/24" "router a 203.0.113.1/24" "router b 198.51.100.1/24" "site-b wan 198.51.100.20/24" \
        "site-a lo 10.1.0.1/24" "site-b lo 10.2.0.1/24" \
        "site-a wan 2001:db8:a::10/64" "router a 2001:db8:a::1/64" "router b 2001:db8:b::1/64" "site-b wan 2001:db8:b::20/64"; do
        read -r site end address <<<"$end"
        ip -n "$site" address add "$address" dev "$end" 2>/dev/null || true
        ip -n "$site" link set dev "$end" up
    done
    ip -n site-a route add default via 203.0.113.1
    ip -n site-b route add default via 198.51.100.1
    ip -n site-a -6 route add default via 2001:db8:a::1 2>/dev/null || true
    ip -n site-b -6 route add default via 2001:db8:b::1 2>/dev/null || true
    link_rate 10mbit
}

# link_rate RATE: of the router, in both directions.
link_rate() {
    local end
    for end in a b; do
        ip netns exec router tc qdisc replace dev "$end" root tbf rate "$1" burst 3000 latency 200ms
    done
}

# fresh: both systems as debootstrap left them, with the packages in /tmp.
fresh() {
    local site
    for site in site-a site-b; do
        umount -R "$(root "$site")" 2>/dev/null || true
        umount "$directory/$site.upper" 2>/dev/null || true
        mkdir -p "$(root "$site")" "$directory/$site.upper"
        mount -t tmpfs tmpfs "$directory/$site.upper"
        mkdir "$directory/$site.upper/files" "$directory/$site.upper/work"
        mount -t overlay overlay "$(root "$site")" \
            -o "lowerdir=$directory/clean,upperdir=$directory/$site.upper/files,workdir=$directory/$site.upper/work"
        mount -t proc proc "$(root "$site")/proc"
        mount --rbind /dev "$(root "$site")/dev"
        mount -t tmpfs tmpfs "$(root "$site")/run"
        cp "$package" "$(root "$site")/tmp/dwell.deb"
        [ -z "$newer" ] || cp "$newer" "$(root "$site")/tmp/newer.deb"
    done
}

environment=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive)

# enter SITE COMMAND...: in its system; at SITE COMMAND...: in its network, too.
enter() {
    local site=$1
    shift
    "${environment[@]}" chroot "$(root "$site")" "$@"
}

at() {
    local site=$1
    shift
    ip netns exec "$site" "${environment[@]}" chroot "$(root "$site")" "$@" </dev/null
}

# at_background SITE COMMAND...: a relay; what it prints goes to SITE.out, its log to SITE.log.
at_background() {
    local site=$1
    shift
    # What is started becomes the program itself, so that a signal reaches it.
    (exec ip netns exec "$site" "${environment[@]}" chroot "$(root "$site")" "$@" </dev/null) \
        >"$directory/$site.out" 2>"$directory/$site.log" &
    relays[$site]=$!
}

# first_line SITE PATTERN: of what the relay has printed, as soon as it is there.
first_line() {
    for _ in $(seq 100); do
        grep -m 1 -- "$2" "$directory/$1.out" && return
        sleep 0.05
    done
    echo "nothing"
}

up() {
    at_background "$1" dwell up
    ready "$1"
}

# ready SITE: waits until its relay can be asked.
ready() {
    for _ in $(seq 100); do
        at "$1" dwell status >/dev/null 2>&1 && return
        sleep 0.05
    done
    cat "$directory/$1.log"
}

down() {
    local pid=${relays[$1]-}
    [ -n "$pid" ] || return 0
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    relays[$1]=""
}

# pair [FLAGS OF SITE B]: keys and configurations at both ends, and no relay yet.
pair() {
    local line answer
    line=$(at site-a dwell init --force --name site-a --prefix 10.1.0.0/24 --endpoint 203.0.113.10 --rate 10mbit 2>"$log")
    answer=$(at site-b dwell join --name site-b --prefix 10.2.0.0/24 --endpoint 198.51.100.20 --rate 10mbit "$line" 2>"$log")
    at site-a dwell join "$answer" >"$log" 2>&1
}

verified() {
    has "the tunnel works" "$(at site-a dwell verify --wait 20 2>&1 || true)" "It works"
}

config() {
    echo "$(root "$1")/etc/dwell/relay.toml"
}
