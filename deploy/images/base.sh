#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the base image where no container registry is reached: debian:experimental as on Docker Hub,
# which is Debian unstable with experimental among its sources, by debootstrap from the same mirror
# as this machine's packages. Where the public image is at hand, this does nothing.
. "$(dirname "$0")/env.sh"
if buildah inspect --type image "$BASE" >/dev/null 2>&1; then exit 0; fi
command -v debootstrap >/dev/null || { echo "debootstrap is missing: scripts/setup.sh --cluster" >&2; exit 1; }
root=$IMAGES_ROOT/rootfs
if ! [ -f "$root.done" ]; then
  rm -rf "$root"
  debootstrap --variant=minbase --include=ca-certificates sid "$root" >"$IMAGES_ROOT/debootstrap.log" 2>&1 ||
    { tail -20 "$IMAGES_ROOT/debootstrap.log" >&2; exit 1; }
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
  sed 's/ sid / experimental /' "$root/etc/apt/sources.list" >"$root/etc/apt/sources.list.d/experimental.list"
  # A mirror that stands still is as fine in there as it is out here.
  apt-config dump | grep -E '^Acquire::Check-Valid-Until ' >"$root/etc/apt/apt.conf.d/90-mirror" || true
  touch "$root.done"
fi
container=$(buildah from scratch)
buildah copy -q "$container" "$root" / >/dev/null
buildah config --cmd bash "$container"
buildah commit -q "$container" "localhost/$BASE" >/dev/null
buildah rm "$container" >/dev/null
echo "base: localhost/$BASE from debootstrap"
