#!/usr/bin/env bash
# Makes an image as the Open Container Initiative lays it out, of the static programs alone; no daemon
# and no other image is needed. packaging/release.sh calls it:
#
#     packaging/oci/image.sh VERSION NOTICES DIRECTORY ARCH=PROGRAM...
set -euo pipefail

version=$1
notices=$2
layout=$3
shift 3
: "${SOURCE_DATE_EPOCH:?is the time that all files get}"
created=$(date -u --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
root=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../..
blobs=$layout/blobs/sha256
mkdir -p "$blobs"

# blob FILE: keeps it under its hash, and prints what a descriptor says of it.
blob() {
    local hash size
    hash=$(sha256sum "$1" | cut -d ' ' -f 1)
    size=$(stat -c %s "$1")
    mv "$1" "$blobs/$hash"
    printf '"digest": "sha256:%s", "size": %s' "$hash" "$size"
}

# layer PROGRAM: the files of the image.
layer() {
    local tree=$layout/tree
    rm -rf "$tree"
    install -D -m 755 "$1" "$tree/usr/bin/dwell"
    install -D -m 644 "$root/LICENSE-MIT" "$tree/usr/share/doc/dwell/LICENSE-MIT"
    install -D -m 644 "$root/LICENSE-APACHE" "$tree/usr/share/doc/dwell/LICENSE-APACHE"
    gzip -9nc "$notices" >"$tree/usr/share/doc/dwell/THIRD-PARTY.txt.gz"
    mkdir -p "$tree"/etc/dwell "$tree"/var/lib/dwell "$tree"/run
    printf 'root:x:0:0:root:/:/sbin/nologin\ndwell:x:7733:7733:dwell:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n' >"$tree/etc/passwd"
    printf 'root:x:0:\ndwell:x:7733:\nnogroup:x:65534:\n' >"$tree/etc/group"
    tar --directory="$tree" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu \
        --mtime="@$SOURCE_DATE_EPOCH" --create etc run usr var >"$layout/layer.tar"
    rm -rf "$tree"
}

manifests=()
for pair in "$@"; do
    arch=${pair%%=*}
    case $arch in x86_64) name=amd64 ;; aarch64) name=arm64 ;; *) echo "no image for $arch" >&2 && exit 1 ;; esac
    layer "${pair#*=}"
    unpacked=$(sha256sum "$layout/layer.tar" | cut -d ' ' -f 1)
    gzip -9n "$layout/layer.tar"
    layer=$(blob "$layout/layer.tar.gz")
    cat >"$layout/config" <<END
{
  "created": "$created", "architecture": "$name", "os": "linux",
  "config": {
    "Entrypoint": ["/usr/bin/dwell"], "Cmd": ["relay", "--config", "/etc/dwell/relay.toml"],
    "Volumes": {"/etc/dwell": {}, "/var/lib/dwell": {}}, "ExposedPorts": {"7733/udp": {}}, "StopSignal": "SIGTERM",
    "Labels": {
      "org.opencontainers.image.title": "dwell", "org.opencontainers.image.version": "$version",
      "org.opencontainers.image.description": "Relay that compresses packets while they wait for a slow link",
      "org.opencontainers.image.licenses": "MIT OR Apache-2.0"
    }
  },
  "rootfs": {"type": "layers", "diff_ids": ["sha256:$unpacked"]},
  "history": [{"created": "$created", "created_by": "dwell $version"}]
}
END
    config=$(blob "$layout/config")
    cat >"$layout/manifest" <<END
{
  "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
  "config": {"mediaType": "application/vnd.oci.image.config.v1+json", $config},
  "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", $layer}]
}
END
    manifest=$(blob "$layout/manifest")
    manifests+=("{\"mediaType\": \"application/vnd.oci.image.manifest.v1+json\", $manifest,
      \"platform\": {\"architecture\": \"$name\", \"os\": \"linux\"}}")
done

# One name for all processors: an index of its own, to which the layout's leads.
separated=$(printf ', %s' "${manifests[@]}")
cat >"$layout/list" <<END
{
  "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
  "manifests": [${separated:2}]
}
END
list=$(blob "$layout/list")
cat >"$layout/index.json" <<END
{
  "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
  "manifests": [{"mediaType": "application/vnd.oci.image.index.v1+json", $list,
    "annotations": {"org.opencontainers.image.ref.name": "$version"}}]
}
END
echo '{"imageLayoutVersion": "1.0.0"}' >"$layout/oci-layout"
