#!/bin/sh
# install.sh BUILT PREFIX [DESTDIR]: puts header, libraries and pkg-config's file where compilers look for them.
# BUILT is the directory in which cargo has left the libraries; `./x install` builds them first.
set -eu
built=$1 prefix=$2 destdir=${3:-}
here=$(dirname "$(readlink -f "$0")")
version=$(sed -n 's/^#define DWELL_STREAM_VERSION "\(.*\)"$/\1/p' "$here/include/dwell_stream.h")
abi=$(sed -n 's/^const ABI: u32 = \([0-9]*\);$/\1/p' "$here/build.rs")
to=$destdir$prefix

install -d "$to/include" "$to/lib/pkgconfig"
install -m 644 "$here/include/dwell_stream.h" "$to/include/"
install -m 755 "$built/libdwell_stream_c.so" "$to/lib/libdwell_stream_c.so.$version"
ln -sf "libdwell_stream_c.so.$version" "$to/lib/libdwell_stream_c.so.$abi"
ln -sf "libdwell_stream_c.so.$abi" "$to/lib/libdwell_stream_c.so"
install -m 644 "$built/libdwell_stream_c.a" "$to/lib/"
sed "s|@prefix@|$prefix|; s|@version@|$version|" "$here/dwell-stream.pc.in" >"$to/lib/pkgconfig/dwell-stream.pc"
