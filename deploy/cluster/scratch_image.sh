#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scratch_image.sh NAME PROGRAM: an image of one static program, imported into every node.
. "$(dirname "$0")/env.sh"
name=$1 program=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root" "$work/oci/blobs/sha256"
cp "$program" "$work/root/"
# blob FILE: moves it to where its digest says, and prints that.
blob() {
  local digest
  digest=$(sha256sum <"$1" | cut -d' ' -f1)
  mv "$1" "$work/oci/blobs/sha256/$digest"
  echo "$digest"
}
tar -C "$work/root" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf "$work/layer" .
layer_size=$(stat -c %s "$work/layer")
layer=$(blob "$work/layer")
jq -n --arg entry "/$(basename "$program")" --arg layer "sha256:$layer" \
  '{architecture: "amd64", os: "linux", config: {Entrypoint: [$entry]}, rootfs: {type: "layers", diff_ids: [$layer]}}' >"$work/config"
config_size=$(stat -c %s "$work/config")
config=$(blob "$work/config")
media=application/vnd.oci.image
jq -n --arg media $media --arg config "sha256:$config" --argjson config_size "$config_size" \
  --arg layer "sha256:$layer" --argjson layer_size "$layer_size" \
  '{schemaVersion: 2, mediaType: "\($media).manifest.v1+json",
    config: {mediaType: "\($media).config.v1+json", digest: $config, size: $config_size},
    layers: [{mediaType: "\($media).layer.v1.tar", digest: $layer, size: $layer_size}]}' >"$work/manifest"
manifest_size=$(stat -c %s "$work/manifest")
manifest=$(blob "$work/manifest")
jq -n --arg media $media --arg name "$name" --arg manifest "sha256:$manifest" --argjson size "$manifest_size" \
  '{schemaVersion: 2, manifests: [{mediaType: "\($media).manifest.v1+json", digest: $manifest, size: $size,
    platform: {architecture: "amd64", os: "linux"}, annotations: {"io.containerd.image.name": $name}}]}' >"$work/oci/index.json"
echo '{"imageLayoutVersion": "1.0.0"}' >"$work/oci/oci-layout"
tar -C "$work/oci" -cf "$work/image.tar" .
"$here/import.sh" "$work/image.tar"
