#!/usr/bin/env bash
# build.sh DIRECTORY: builds Linux as a program (user mode, with virtual time) to DIRECTORY/linux; some five minutes on two idle
# cores. The source is $LINUX_SOURCE (a tar archive), or that of Debian's package linux-source-6.12, which is fetched but not
# installed where it isn't there. Needs gcc, make, flex, bison, bc and 2 GB.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
out=$(readlink -f "$1")
# What it was made by stands beside it: an older one has other settings.
made_by=$(cat "$here"/{build.sh,config} | sha256sum)
[ ! -x "$out/linux" ] || [ "$(cat "$out/linux.made-by" 2>/dev/null)" != "$made_by" ] || exit 0
installed=/usr/src/linux-source-6.12.tar.xz
if [ -z "${LINUX_SOURCE:-}" ] && [ -e "$installed" ]; then
    LINUX_SOURCE=$installed
elif [ -z "${LINUX_SOURCE:-}" ]; then
    (cd "$out" && apt-get download -q linux-source-6.12 && dpkg -x linux-source-6.12_*.deb "$out/source") || {
        echo "Debian's package linux-source-6.12 can't be fetched (it is in Debian 13 and in the updates of 12): try apt-get update, or" \
            "name a source of Linux 6.12 with LINUX_SOURCE=linux-6.12.tar.xz" >&2
        exit 1
    }
    LINUX_SOURCE=$out/source/usr/src/linux-source-6.12.tar.xz
fi
rm -rf "$out/tree" # of a build that was cut off
mkdir -p "$out/tree"
tar -C "$out/tree" --strip-components=1 -xf "$LINUX_SOURCE"
export KCONFIG_ALLCONFIG=$here/config
make -s -C "$out/tree" ARCH=um allnoconfig >/dev/null
make -s -C "$out/tree" ARCH=um -j "$(nproc)" linux
cp "$out/tree/linux" "$out/linux.new"
mv "$out/linux.new" "$out/linux"
echo "$made_by" >"$out/linux.made-by"
rm -rf "$out/tree" "$out/source" "$out"/linux-source-6.12_*.deb
