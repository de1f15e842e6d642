#!/usr/bin/env bash
# Whether the program for another processor does what the one for this processor does: the worked scenarios are simulated
# and the captures analysed by both, the other one in an emulator (qemu-user), and the results are compared to the byte;
# times, which captures' analyses measure, are left out. `./x test --all` runs it.
#
#     packaging/elsewhere.sh DIRECTORY ARCH PROGRAM OTHER-PROGRAM
#
# ARCH: aarch64 or armv7, that of OTHER-PROGRAM. DIRECTORY keeps the C library that a program for armv7 needs. Exit code 1
# if something differs.
set -euo pipefail

root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
directory=$(readlink -m "$1")
arch=$2
here=$3
case $arch in
    aarch64) there=(qemu-aarch64-static "$4") ;;
    armv7) there=(qemu-arm-static -L "$directory/armhf" "$4") ;;
    *) echo "elsewhere: aarch64 or armv7, and not \"$arch\"" >&2 && exit 1 ;;
esac
mkdir -p "$directory"
[ "$arch" != armv7 ] || [ -e "$directory/armhf/lib/ld-linux-armhf.so.3" ] || {
    # Debian's, unpacked and not installed.
    (
        mkdir -p "$directory"/{armhf,debs,lists/partial,cache/archives/partial}
        : >"$directory/status"
        # Of the suite's first release only: no more is needed, and nothing of this machine's is changed.
        echo "deb http://deb.debian.org/debian $(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release) main" >"$directory/sources.list"
        printf '%s\n' "Dir::Etc::sourcelist \"$directory/sources.list\";" 'Dir::Etc::sourceparts "/dev/null";' 'APT::Architecture "armhf";' 'APT::Architectures { "armhf"; };' "Dir::State \"$directory\";" \
            "Dir::State::lists \"$directory/lists\";" "Dir::State::status \"$directory/status\";" \
            "Dir::Cache \"$directory/cache\";" >"$directory/apt.conf"
        cd "$directory/debs"
        export APT_CONFIG=$directory/apt.conf
        apt-get -qq update && apt-get -qq download libc6 libgcc-s1
        for package in *.deb; do dpkg-deb -x "$package" "$directory/armhf"; done
    ) >"$directory/log" 2>&1 || { tail -n 5 "$directory/log" >&2 && exit 1; }
}

# How long codecs took: fields of that name, and the last of four in the rows of codecs.
without_times() {
    sed -E 's/"([a-z_]*_)?ns": *[0-9]+//g; s/\[([0-9]+,[0-9]+,[0-9]+),[0-9]+\]/[\1]/g'
}

same=0
differ=0

# compare WHAT ARGUMENTS...
compare() {
    local what=$1
    shift
    "$here" "$@" 2>"$directory/here.err" | without_times >"$directory/here.out" || true
    "${there[@]}" "$@" 2>"$directory/there.err" | without_times >"$directory/there.out" || true
    if [ -s "$directory/here.out" ] && cmp -s "$directory/here.out" "$directory/there.out"; then
        same=$((same + 1))
    else
        differ=$((differ + 1))
        echo "differs: $what"
        diff "$directory/here.out" "$directory/there.out" | head -n 4 | cut -c 1-300
        head -n 3 "$directory/there.err"
    fi
}

"${there[@]}" --version
for file in "$root"/scenarios/worked/*.toml; do compare "${file##*/}" sim run --quick --json "$file"; done
simulated=$same
for file in "$root"/data/captures/*.pcap*; do compare "${file##*/}" trace analyze --json "$file"; done
echo "$arch: $simulated scenarios and $((same - simulated)) captures the same, $differ differ"
[ "$differ" = 0 ]
