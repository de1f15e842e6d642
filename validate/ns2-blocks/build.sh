#!/usr/bin/env bash
# Builds blocks.cc into a library that Debian's `ns` loads.
#
#     validate/ns2-blocks/build.sh DIRECTORY
#
# DIRECTORY gets libblocks.so. The headers are those of ns-2.35 and TclCL; they are fetched as Debian
# publishes them (`apt-get` with a list of its own; nothing is installed), or taken from the directory
# $NS2_SOURCE (unpacked ns-2.35) and $TCLCL_INCLUDE (with tclcl.h and otcl.h).
# Needs g++ and tcl8.6-dev.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
out=$(readlink -f "$1")
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
orig=$mirror/pool/main/n/ns2/ns2_2.35+dfsg.orig.tar.xz

if [ -z "${NS2_SOURCE:-}" ]; then
    NS2_SOURCE=$out/ns-2.35
    [ -d "$NS2_SOURCE" ] || curl -fsSL "$orig" | tar -xJ -C "$out"
fi
if [ -z "${TCLCL_INCLUDE:-}" ]; then
    TCLCL_INCLUDE=$out/tclcl/usr/include
    if [ ! -d "$TCLCL_INCLUDE" ]; then
        (cd "$out" && apt-get download -q libtclcl1-dev libotcl1-dev)
        for package in "$out"/lib{tclcl1,otcl1}-dev_*.deb; do
            dpkg -x "$package" "$out/tclcl"
        done
    fi
fi
# What ns-2's configure would have found out.
mkdir -p "$out/autoconf"
cat >"$out/autoconf/autoconf.h" <<'H'
#define HAVE_INT64 1
#define SIZEOF_LONG 8
#define HAVE_STRTOLL 1
#define HAVE_BCOPY 1
#define HAVE_BZERO 1
#define HAVE_SNPRINTF 1
#define STDC_HEADERS 1
#define HAVE_STRING_H 1
#define HAVE_STRINGS_H 1
#define HAVE_STL 1
#define CPP_NAMESPACE std
#include <string>
#include <vector>
using namespace CPP_NAMESPACE;
H
include=("-I$out/autoconf" "-I$TCLCL_INCLUDE" "-I$TCLCL_INCLUDE/tclcl" -I/usr/include/tcl8.6)
for directory in . common queue link tcp sctp apps mobile mac trace routing linkstate; do
    include+=("-I$NS2_SOURCE/$directory")
done
g++ -std=c++17 -O2 -fPIC -shared -w -fpermissive -DUSE_INTERP_RESULT "${include[@]}" "$here/blocks.cc" \
    -o "$out/libblocks.so"
