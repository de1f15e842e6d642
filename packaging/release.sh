#!/usr/bin/env bash
# Makes what a release consists of; `./x release` calls it. docs/packages.md says what it makes.
#
#     packaging/release.sh [--only KIND[,KIND]...] [--arch ARCH[,ARCH]...] [--revision N] [--program ARCH=FILE] OUT
#
# KIND: tar, deb, rpm, ipk, oci, sbom, or program if asked for: the bare one. ARCH: x86_64, aarch64, and armv7 if asked for. --program packs a program that is there
# and builds none for that processor. The same commit, tools and revision make the same bytes.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
root=$(dirname "$here")
target=${CARGO_TARGET_DIR:-$root/target}
tools=${DWELL_TOOLS:-${XDG_CACHE_HOME:-${HOME:-$target}/.cache}/dwell-tools}

# The version stands in Cargo.toml and nowhere else.
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
# All times in what is made are the commit's.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
export LC_ALL=C TZ=UTC
umask 022

# With the programs for both processors in it.
image_bytes_max=30000000
kinds="tar deb rpm ipk oci sbom"
architectures="x86_64 aarch64"
revision=1
out=""
declare -A programs=()

main() {
    read_arguments "$@"
    rm -rf "$out"
    mkdir -p "$out"
    out=$(readlink -f "$out")
    work=$out/.work
    mkdir "$work"
    local arch kind
    for arch in $architectures; do
        [ -n "${programs[$arch]-}" ] || build "$arch"
        programs[$arch]=$(readlink -f "${programs[$arch]}")
    done
    if [ "$kinds" = program ]; then
        for arch in $architectures; do cp "${programs[$arch]}" "$out/dwell-$arch"; done
        rm -rf "$work"
        return
    fi
    from_command_line
    "$here/sbom.py" "$root" "$version" --notices >"$work/THIRD-PARTY.txt"
    for kind in $kinds; do
        case $kind in
            sbom) make_sbom ;;
            oci) make_oci ;;
            *)
                for arch in $architectures; do "make_$kind" "$arch"; done
                ;;
        esac
    done
    rm -rf "$work"
    (cd "$out" && sha256sum -- * >"$work.sums" && mv "$work.sums" SHA256SUMS)
    cat "$out/SHA256SUMS"
}

read_arguments() {
    while [ $# -gt 0 ]; do
        case $1 in
            --only) kinds=${2//,/ } && shift ;;
            --arch) architectures=${2//,/ } && shift ;;
            --revision) revision=$2 && shift ;;
            --program) programs[${2%%=*}]=${2#*=} && shift ;;
            -*) die "there is no option $1" ;;
            *) out=$1 ;;
        esac
        shift
    done
    [ -n "$out" ] || die "where to? packaging/release.sh DIRECTORY"
    local word
    for word in $kinds; do
        case $word in program | tar | deb | rpm | ipk | oci | sbom) ;; *) die "there is no kind \"$word\"" ;; esac
    done
    for word in $architectures; do triple "$word" >/dev/null; done
}

die() {
    echo "release: $*" >&2
    exit 1
}

# --- Programs ---

# triple ARCH: what Rust calls it. There is no standard library of musl for armv7 everywhere, so that
# programs for it are linked with glibc.
triple() {
    case $1 in
        x86_64) echo x86_64-unknown-linux-musl ;;
        aarch64) echo aarch64-unknown-linux-musl ;;
        armv7) echo armv7-unknown-linux-gnueabihf ;;
        *) die "there is no processor \"$1\" here: x86_64, aarch64 or armv7" ;;
    esac
}

# build ARCH: with zig as the C compiler and linker of all of them.
build() {
    local arch=$1 triple directory flags
    triple=$(triple "$arch")
    directory=$target/release-build
    need_cross "$triple"
    # Where the sources and the caches are is no part of the program.
    flags="--remap-path-prefix=$root=/dwell --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
    flags+=" --remap-path-prefix=$directory=/target"
    echo "building dwell $version for $triple"
    # An old glibc (Debian 11's), so that later ones run it, too.
    local named=$triple
    case $triple in *-gnu*) named=$triple.2.31 ;; esac
    (cd "$root" && PATH=$tools/zig/bin:$PATH CARGO_TARGET_DIR=$directory \
        RUSTFLAGS=$flags CFLAGS="${flags//--remap-path-prefix/-ffile-prefix-map}" \
        cargo zigbuild --release --locked -p dwell --target "$named")
    programs[$arch]=$directory/$triple/release/dwell
}

# Rust's standard library for it, and zig: from PyPI, in an environment of its own.
need_cross() {
    if ! rustup target list --installed | grep -qx "$1"; then
        rustup target add "$1" || die "needs: rustup target add $1"
    fi
    local wanted=$here/requirements.txt env=$tools/zig
    if ! cmp -s "$wanted" "$env/packages"; then
        rm -rf "$env"
        if ! { python3 -m venv "$env" && "$env/bin/pip" install -q --disable-pip-version-check -r "$wanted"; }; then
            die "zig is needed: python3 -m venv $env && $env/bin/pip install -r $wanted"
        fi
        cp "$wanted" "$env/packages"
    fi
}

# Manual pages and completions, made by a program that runs here.
from_command_line() {
    local program="" candidate
    for candidate in "${programs[@]}" "$target/release/dwell" "$target/debug/dwell"; do
        if [ -x "$candidate" ] && [ "$("$candidate" --version 2>/dev/null)" = "dwell $version" ]; then
            program=$candidate
            break
        fi
    done
    [ -n "$program" ] || die "none of the programs runs here: add --arch $(uname -m)"
    mkdir -p "$work/man" "$work/completions"
    "$program" man --out "$work/man" 2>/dev/null
    local shell
    for shell in bash zsh fish; do
        "$program" completions "$shell" >"$work/completions/$shell"
    done
}

# --- What goes into all of them ---

# documents DIRECTORY: what is to be read.
documents() {
    mkdir -p "$1/docs" "$1/monitoring"
    install -m 644 "$root"/README.md "$root"/CHANGELOG.md "$root"/LICENSE-* "$1/"
    gzip -9nc "$work/THIRD-PARTY.txt" >"$1/THIRD-PARTY.txt.gz"
    cp -r "$root"/docs/*.md "$root"/docs/examples "$1/docs/"
    install -m 644 "$root"/monitoring/*.yml "$root"/monitoring/*.json "$1/monitoring/"
}

# system DIRECTORY ARCH: the program as packages of distributions have it, beneath DIRECTORY.
system() {
    local to=$1 page unit
    install -D -m 755 "${programs[$2]}" "$to/usr/bin/dwell"
    for unit in "$here"/*.service; do install -D -m 644 "$unit" "$to/usr/lib/systemd/system/${unit##*/}"; done
    install -D -m 644 "$here/dwell.sysusers" "$to/usr/lib/sysusers.d/dwell.conf"
    for page in "$work"/man/*.1; do
        install -D -m 644 "$page" "$to/usr/share/man/man1/${page##*/}"
        gzip -9n "$to/usr/share/man/man1/${page##*/}"
    done
    install -D -m 644 "$work/completions/bash" "$to/usr/share/bash-completion/completions/dwell"
    install -d -m 755 "$to/etc/dwell"
}

# stamp DIRECTORY: every time in it is the commit's.
stamp() {
    find "$1" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

# pack DIRECTORY NAME...: a tar archive to standard output, the same wherever it is made.
pack() {
    local directory=$1
    shift
    tar --directory="$directory" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu \
        --mtime="@$SOURCE_DATE_EPOCH" --create "$@"
}

# --- The kinds ---

make_tar() {
    local arch=$1 name
    name=dwell-$version-$(triple "$arch")
    local to=$work/tar/$name
    mkdir -p "$to/man" "$to/completions"
    install -m 755 "${programs[$arch]}" "$to/dwell"
    install -m 644 "$work"/man/*.1 "$to/man/"
    install -m 644 "$work"/completions/* "$to/completions/"
    install -m 644 "$here"/*.service "$here"/dwell.sysusers "$to/"
    documents "$to"
    pack "$work/tar" "$name" | gzip -9n >"$out/$name.tar.gz"
}

make_deb() {
    local arch=$1 name to=$work/deb-$1
    case $arch in x86_64) name=amd64 ;; aarch64) name=arm64 ;; armv7) name=armhf ;; esac
    system "$to" "$arch"
    install -D -m 644 "$work/completions/zsh" "$to/usr/share/zsh/vendor-completions/_dwell"
    install -D -m 644 "$work/completions/fish" "$to/usr/share/fish/vendor_completions.d/dwell.fish"
    local doc=$to/usr/share/doc/dwell
    documents "$doc"
    rm "$doc"/LICENSE-*
    gzip -9nc "$root/CHANGELOG.md" >"$doc/changelog.gz"
    rm "$doc/CHANGELOG.md"
    debian_changelog | gzip -9n >"$doc/changelog.Debian.gz"
    debian_copyright >"$doc/copyright"
    mkdir "$to/DEBIAN"
    install -m 755 "$here"/deb/{postinst,prerm,postrm} "$to/DEBIAN/"
    local depends=""
    [ "$arch" != armv7 ] || depends="Depends: libc6 (>= 2.31), libgcc-s1"
    sed -e "s/@VERSION@/$version-$revision/" -e "s/@ARCH@/$name/" -e "s/@DEPENDS@/$depends/" -e '/^$/d' \
        -e "s/@SIZE@/$(du -sk --apparent-size "$to" | cut -f 1)/" "$here/deb/control" >"$to/DEBIAN/control"
    (cd "$to" && find usr -type f | sort | xargs md5sum) >"$to/DEBIAN/md5sums"
    stamp "$to"
    dpkg-deb --root-owner-group -Zxz --build "$to" "$out/dwell_$version-${revision}_$name.deb" >/dev/null
}

# What the project changes stands in CHANGELOG.md, once; this is what Debian asks for beside it.
debian_changelog() {
    cat <<END
dwell ($version-$revision) unstable; urgency=medium

  * What has changed: /usr/share/doc/dwell/changelog.gz

 -- $(maintainer)  $(date -R --date="@$SOURCE_DATE_EPOCH")
END
}

maintainer() {
    sed -n 's/^Maintainer: //p' "$here/deb/control"
}

debian_copyright() {
    cat "$here/deb/copyright"
    sed 's/^$/./; s/^/ /' "$root/LICENSE-MIT"
}

make_rpm() {
    local arch=$1 name=$1 to=$work/rpm-$1
    [ "$arch" != armv7 ] || name=armv7hl
    command -v rpmbuild >/dev/null || die "rpmbuild is needed: apt-get install rpm"
    system "$to" "$arch"
    install -D -m 644 "$work/completions/zsh" "$to/usr/share/zsh/site-functions/_dwell"
    install -D -m 644 "$work/completions/fish" "$to/usr/share/fish/vendor_completions.d/dwell.fish"
    documents "$to/usr/share/doc/dwell"
    stamp "$to"
    local log=$work/rpm-$arch.log
    rpmbuild -bb --quiet --target "$name-linux" --define "_topdir $work/rpmbuild-$arch" --define "tree $to" \
        --define "dwell_version $version" --define "dwell_revision $revision" \
        --define "_rpmdir $work/rpms" --define "_buildhost localhost" "$here/rpm/dwell.spec" >"$log" 2>&1 ||
        { cat "$log" && die "rpmbuild failed"; }
    cp "$work/rpms/$name/dwell-$version-$revision.$name.rpm" "$out/"
}

# As OpenWrt's opkg reads it: a tar of tars. openwrt/Makefile makes the same in OpenWrt's own build.
make_ipk() {
    local arch=$1 name to=$work/ipk-$1
    case $arch in x86_64) name=x86_64 ;; aarch64) name=aarch64_generic ;; armv7) return 0 ;; esac
    mkdir -p "$to/control" "$to/data"
    install -D -m 755 "${programs[$arch]}" "$to/data/usr/bin/dwell"
    install -D -m 755 "$here/openwrt/files/dwell.init" "$to/data/etc/init.d/dwell"
    install -D -m 644 "$here/openwrt/files/dwell.keep" "$to/data/lib/upgrade/keep.d/dwell"
    install -d -m 755 "$to/data/etc/dwell" "$to/data/usr/share/doc/dwell"
    gzip -9nc "$work/THIRD-PARTY.txt" >"$to/data/usr/share/doc/dwell/THIRD-PARTY.txt.gz"
    install -m 644 "$root"/LICENSE-* "$to/data/usr/share/doc/dwell/"
    install -m 755 "$here"/openwrt/files/{postinst,prerm} "$to/control/"
    sed -e "s/@VERSION@/$version-r$revision/" -e "s/@ARCH@/$name/" \
        -e "s/@SIZE@/$(du -sb "$to/data" | cut -f 1)/" "$here/openwrt/files/control" >"$to/control/control"
    echo 2.0 >"$to/debian-binary"
    pack "$to/control" . | gzip -9n >"$to/control.tar.gz"
    pack "$to/data" . | gzip -9n >"$to/data.tar.gz"
    pack "$to" ./debian-binary ./data.tar.gz ./control.tar.gz | gzip -9n >"$out/dwell_$version-r${revision}_$name.ipk"
}

make_oci() {
    local pairs=() arch
    for arch in $architectures; do
        # The image has no C library.
        [ "$arch" = armv7 ] || pairs+=("$arch=${programs[$arch]}")
    done
    "$here/oci/image.sh" "$version" "$work/THIRD-PARTY.txt" "$work/oci" "${pairs[@]}"
    local image=$out/dwell-$version.oci.tar bytes
    pack "$work/oci" . >"$image"
    bytes=$(stat -c %s "$image")
    [ "$bytes" -lt "$image_bytes_max" ] || die "the image has $bytes bytes: $image_bytes_max or more is too much"
}

make_sbom() {
    "$here/sbom.py" "$root" "$version" >"$out/dwell-$version.cdx.json"
}

main "$@"
