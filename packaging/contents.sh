#!/usr/bin/env bash
# What is in the files of a release, by the programs that read such files: rpm installs and erases its package with the
# scripts in it, skopeo and umoci read and unpack the image, dpkg-deb and tar open the others. All of one processor must
# have the same program, and it must start: for another processor in an emulator (qemu-user). `./x test --all` runs it; as
# root only.
#
#     packaging/contents.sh DIRECTORY RELEASE-FILES CLEAN
#
# DIRECTORY is for what is unpacked. CLEAN: a Debian system of trial.sh's, which stays as it is. Mounts are in a namespace of
# their own and gone at the end. Exit code 1 if something does not hold.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
directory=$(readlink -m "$1")
release=$(readlink -f "$2")
clean=$(readlink -f "$3")

if [ -z "${DWELL_CONTENTS_INSIDE-}" ]; then
    [ "$(id -u)" = 0 ] || { echo "packages are installed here: it needs root" >&2 && exit 1; }
    rm -rf "$directory"
    mkdir -p "$directory"
    DWELL_CONTENTS_INSIDE=1 exec unshare --mount --pid --fork --kill-child --propagation private \
        "$0" "$directory" "$release" "$clean"
fi

# shellcheck source=packaging/trial-site.sh
. "$here/trial-site.sh"

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$here/../Cargo.toml")

main() {
    local archive arch
    holds "the check sums are those of the files" sums
    for archive in "$release"/dwell-"$version"-*-linux-*.tar.gz; do
        arch=${archive##*/dwell-"$version"-}
        arch=${arch%%-*}
        title "$arch"
        archive_has "$arch" "$archive"
        deb_has "$arch"
        rpm_has "$arch"
        ipk_has "$arch"
        image_has "$arch"
    done
    echo
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}

sums() {
    (cd "$release" && sha256sum --quiet --check SHA256SUMS &&
        [ "$(wc -l <SHA256SUMS)" = "$(find . -type f ! -name SHA256SUMS | wc -l)" ])
}

# called KIND ARCH: what the format calls a processor.
called() {
    case $1-$2 in
        deb-x86_64 | oci-x86_64) echo amd64 ;;
        deb-aarch64 | oci-aarch64) echo arm64 ;;
        ipk-aarch64) echo aarch64_generic ;;
        *) echo "$2" ;;
    esac
}

# starts ARCH PROGRAM-OR-SYSTEM: of a system, the program in it, from within.
starts() {
    local run=() said
    if [ "$1" != "$(uname -m)" ]; then
        run=("qemu-$1-static" "$2")
        [ ! -d "$2" ] || run=("qemu-$1-static" "$2/usr/bin/dwell")
    elif [ -d "$2" ]; then
        run=(chroot "$2" /usr/bin/dwell)
    else
        run=("$2")
    fi
    said=$("${run[@]}" --version 2>&1) || true
    has "it starts" "$said" "^dwell ${version//./\\.}\$"
}

# same_list WHAT WANTED FOUND: names of files.
same_list() {
    local differences
    differences=$(diff <(echo "$2" | sed '/^$/d' | sort) <(echo "$3" | sed '/^$/d' | sort) || true)
    if [ -z "$differences" ]; then ok "$1"; else bad "$1" "$differences"; fi
}

# archive_has ARCH FILE: the first, whose program the others are held to.
archive_has() {
    local to=$directory/tar-$1
    mkdir "$to"
    tar -xzf "$2" -C "$to" --strip-components=1
    starts "$1" "$to/dwell"
    local file
    for file in man/dwell.1 completions/bash dwell.service docs/packages.md CHANGELOG.md LICENSE-MIT THIRD-PARTY.txt.gz; do
        holds "archive: $file" test -s "$to/$file"
    done
}

# same_program ARCH KIND FILE
same_program() {
    holds "$2: the archive's program" cmp "$directory/tar-$1/dwell" "$3"
}

deb_has() {
    local file name to=$directory/deb-$1
    name=$(called deb "$1")
    file=$(echo "$release/dwell_$version"-*_"$name.deb")
    dpkg-deb -x "$file" "$to"
    has "deb: its processor" "$(dpkg-deb -f "$file" Architecture)" "^$name\$"
    has "deb: its version" "$(dpkg-deb -f "$file" Version)" "^${version//./\\.}-[0-9]+\$"
    holds "deb: sums of its files" deb_sums "$file" "$to"
    same_program "$1" deb "$to/usr/bin/dwell"
}

deb_sums() {
    dpkg-deb --ctrl-tarfile "$1" | tar -xO ./md5sums | (cd "$2" && md5sum --quiet --check)
}

# On a clean Debian system, since there is no other; so without what it depends on by Fedora's names.
rpm_has() {
    local file site=rpm-$1 system=$directory/rpm-$1 before after
    file=$(echo "$release/dwell-$version"-*."$1.rpm")
    has "rpm: its processor and version" "$(rpm -qp --qf '%{ARCH} %{VERSION}' "$file")" "^$1 ${version//./\\.}\$"
    mkdir "$system" "$directory/$site.upper"
    mount -t tmpfs tmpfs "$directory/$site.upper"
    mkdir "$directory/$site.upper/files" "$directory/$site.upper/work"
    mount -t overlay overlay "$system" \
        -o "lowerdir=$clean,upperdir=$directory/$site.upper/files,workdir=$directory/$site.upper/work"
    before=$(files "$site")
    holds "rpm: it installs" as_rpm "$system" --nodeps --ignorearch -i "$file"
    has "rpm: its files are as it says" "$(as_rpm "$system" -V --nodeps dwell && echo verified)" '^verified$'
    has "rpm: it makes the proxies' user" "$(chroot "$system" getent passwd dwell)" "^dwell:.*nologin"
    starts "$1" "$system"
    same_program "$1" rpm "$system/usr/bin/dwell"
    same_list "rpm: the files of the deb, but for those that only Debian asks for" \
        "$(cd "$directory/deb-$1" && find . ! -type d | sed -e 's,zsh/vendor-completions,zsh/site-functions,' \
            -e '/doc\/dwell\/\(changelog\|copyright\)/d')" \
        "$(cd "$system" && as_rpm "$system" -ql dwell | sed 's,^/,./,' |
            while read -r name; do [ -d "$name" ] || echo "$name"; done | sed '/doc\/dwell\/\(CHANGELOG\.md\|LICENSE-\)/d')"
    holds "rpm: it is erased" as_rpm "$system" --nodeps -e dwell
    after=$(files "$site" | grep -vE '/(etc/(passwd|group|shadow|gshadow|subuid|subgid)-?|(var/lib|usr/lib/sysimage|root)/\.?rpm(db)?(/.*)?)$')
    same_list "rpm: nothing is left but the user" "" "$(comm -13 <(echo "$before") <(echo "$after"))"
    umount "$system" "$directory/$site.upper"
}

# Debian's refuses to install into a system of dpkg's, unless it is asked to.
as_rpm() {
    local system=$1
    shift
    rpm --root "$system" "$@" 2>&1
}

ipk_has() {
    local file name to=$directory/ipk-$1
    name=$(called ipk "$1")
    file=$(echo "$release/dwell_$version"-r*_"$name.ipk")
    same_list "ipk: its parts" "$(printf './%s\n' debian-binary data.tar.gz control.tar.gz)" "$(tar -tzf "$file")"
    mkdir -p "$to/parts" "$to/data" "$to/control"
    tar -xzf "$file" -C "$to/parts"
    tar -xzf "$to/parts/data.tar.gz" -C "$to/data"
    tar -xzf "$to/parts/control.tar.gz" -C "$to/control"
    same_list "ipk: its files" "$(printf './%s\n' etc/init.d/dwell lib/upgrade/keep.d/dwell usr/bin/dwell \
        usr/share/doc/dwell/{LICENSE-APACHE,LICENSE-MIT,THIRD-PARTY.txt.gz})" "$(cd "$to/data" && find . -type f)"
    holds "ipk: a place for keys" test -d "$to/data/etc/dwell"
    local script
    for script in data/etc/init.d/dwell control/postinst control/prerm; do
        holds "ipk: $script is a script" test -x "$to/$script" -a -s "$to/$script"
        holds "ipk: a shell reads it" sh -n "$to/$script"
    done
    has "ipk: its version" "$(cat "$to/control/control")" "^Version: ${version//./\\.}-r[0-9]+\$"
    has "ipk: its processor" "$(cat "$to/control/control")" "^Architecture: $name\$"
    same_program "$1" ipk "$to/data/usr/bin/dwell"
}

image_has() {
    local name file=$release/dwell-$version.oci.tar to=$directory/image-$1
    name=$(called oci "$1")
    has "image: skopeo reads it" "$(skopeo --override-arch "$name" --override-os linux inspect "oci-archive:$file" 2>&1 || true)" \
        "\"Architecture\": \"$name\""
    skopeo --insecure-policy --override-arch "$name" --override-os linux copy --quiet "oci-archive:$file" "oci:$to:dwell"
    umoci unpack --image "$to:dwell" "$to-unpacked" >"$log" 2>&1
    has "image: what it starts" "$(tr -d ' \n\t' <"$to-unpacked/config.json")" \
        '"args":\["/usr/bin/dwell","relay","--config","/etc/dwell/relay\.toml"\]'
    same_list "image: its files" "$(printf './%s\n' etc/group etc/passwd usr/bin/dwell \
        usr/share/doc/dwell/{LICENSE-APACHE,LICENSE-MIT,THIRD-PARTY.txt.gz})" "$(cd "$to-unpacked/rootfs" && find . -type f)"
    same_program "$1" image "$to-unpacked/rootfs/usr/bin/dwell"
    starts "$1" "$to-unpacked/rootfs"
}

main
