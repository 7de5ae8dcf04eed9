#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the images, writes their archives and bills of materials, checks what they promise
# (check_image.py), and prints their sizes.
#
#   deploy/images/build.sh [--arch=amd64|arm64] [TARGETS...]    gateway, worker-cpu, cli, or those
#                                                    given; worker-cuda and worker-cuda12 by name
#
# The results are build/images/NAME.tar (an OCI archive) and NAME.sbom.cdx.json, the images
# localhost/continuo-NAME:TAG in buildah's store. TAG in the environment names them (default: the
# project's version); VERSION_SUFFIX is appended to the version that the programs tell.
# The images are of this machine's architecture. Those of another one are cross-compiled, lie in
# build/images/ARCH and have tags that end in -ARCH. The same files make the same bytes (seal.sh).
# What was compiled is kept by ccache and cargo in cache mounts, so a second build is short.
. "$(dirname "$0")/env.sh"
ARCH=$machine
case "${1:-}" in --arch=*) ARCH=${1#--arch=}; shift ;; esac
case $ARCH in amd64 | arm64) ;; *) echo "build.sh: --arch is amd64 or arm64, not '$ARCH'" >&2; exit 2 ;; esac
[ $# -gt 0 ] || set -- gateway worker-cpu cli
version=$(sed -n 's/^project(continuo VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)${VERSION_SUFFIX:-}
tag=${TAG:-${version/+/-}}
out=build/images
if [ "$ARCH" != "$machine" ]; then
  tag+=-$ARCH out+=/$ARCH
  [[ " $*" != *\ worker-cuda* ]] || { echo "build.sh: images for CUDA are built on a machine of their architecture" >&2; exit 2; }
fi
deploy/images/base.sh
mkdir -p "$out"
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
for target in "$@"; do
  name=continuo-$target
  stage=$target cuda=13
  [ "$target" != worker-cuda12 ] || { stage=worker-cuda; cuda=12; }
  buildah_build "$stage" "$name:$tag" --build-arg "CUDA=$cuda" --build-arg "VERSION=$version" \
    --build-arg "VERSION_SUFFIX=${VERSION_SUFFIX:-}" --build-arg "REVISION=$revision" \
    >"$IMAGES_ROOT/$target.log" 2>&1 || { tail -30 "$IMAGES_ROOT/$target.log" >&2; exit 1; }
  digest=$(deploy/images/seal.sh "localhost/$name:$tag" "$version" "$revision" "$out/$name.tar")
  container=$(buildah from --pull-never "localhost/$name:$tag")
  root=$(buildah mount "$container")
  cp "$root/usr/share/continuo/sbom.cdx.json" "$out/$name.sbom.cdx.json"
  python3 deploy/images/check_image.py "$out/$name.tar" "$root" "$name" "$version" "$revision" "$ARCH"
  printf '%-22s %4d MB on disk, %3d MB to pull, %3d components  localhost/%s:%s@%s\n' "$name" \
    "$(du -sm "$root" | cut -f1)" "$(($(stat -c %s "$out/$name.tar") / 1000000))" \
    "$(grep -c '"bom-ref"' "$out/$name.sbom.cdx.json")" "$name" "$tag" "$digest"
  buildah umount "$container" >/dev/null
  buildah rm "$container" >/dev/null
done
