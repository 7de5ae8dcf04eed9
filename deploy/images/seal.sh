#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# seal.sh IMAGE VERSION REVISION ARCHIVE: makes of an image of buildah's store one whose bytes follow from its files,
# its name and the arguments alone, under the same name and as an OCI archive. It has one layer, and all times in it
# are $SOURCE_DATE_EPOCH, by default the commit's. Prints the manifest's digest.
. "$(dirname "$0")/env.sh"
image=$1 version=$2 revision=$3 archive=$4
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
container=$(buildah from --pull-never "$image")
trap 'buildah rm "$container" >/dev/null; rm -rf "$archive.layout"' EXIT
# Where all layers were there already, buildah took the labels of whoever made them. The base would be this image
# as it was.
buildah config --label "org.opencontainers.image.version=$version" \
  --label "org.opencontainers.image.revision=$revision" \
  --annotation org.opencontainers.image.base.digest- --annotation org.opencontainers.image.base.name- "$container"
buildah commit -q --format oci --squash --timestamp "$SOURCE_DATE_EPOCH" "$container" "$image" >/dev/null
rm -rf "$archive" "$archive.layout"
buildah push -q "$image" "oci:$archive.layout:$image"
tar c --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
  -C "$archive.layout" blobs index.json oci-layout >"$archive"
sed -n 's/.*"digest":"\(sha256:[0-9a-f]*\)".*/\1/p' "$archive.layout/index.json"
