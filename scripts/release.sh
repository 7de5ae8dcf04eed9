#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes what a release consists of, from its tag vX.Y.Z, in a new folder: Debian package, Python wheel,
# chart, images with their bills of materials, SHA256SUMS and a statement of provenance.
#
#   scripts/release.sh [--snapshot] [--no_images] [--arch=amd64|arm64] [--key=KEY] DIR
#
# --arch makes images of another architecture, cross-compiled, and no package and wheel, in a folder of their own.
# --snapshot takes any commit, with the version that it states. Images need root. --key signs the digests and the
# statement by cosign: a private key's file, whose password is $COSIGN_PASSWORD, or the URI of one in a KMS.
# Times in all files are those of the commit, so that the same commit on the same system gives the same bytes.
# docs/release.md says how a release is published.
set -euo pipefail
cd "$(dirname "$0")/.."
snapshot=0 images=1 arch=$(dpkg --print-architecture) key=
while [[ ${1:-} == --* ]]; do
  case $1 in
    --snapshot) snapshot=1 ;;
    --no_images) images=0 ;;
    --arch=?*) arch=${1#--arch=} ;;
    --key=?*) key=${1#--key=} ;;
    *) sed -n '3,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done
[ $# = 1 ] || { sed -n '3,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
fail() { echo "release.sh: $1" >&2; exit 1; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
[ -z "$(ls -A "$out")" ] || fail "$1 is not empty"
is_cross=0
[ "$arch" = "$(dpkg --print-architecture)" ] || is_cross=1
[ "$images$is_cross" != 01 ] || fail "--arch is of images"

version=$(sed -n 's/^project(continuo VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
for field in version appVersion; do
  [ "$(sed -n "s/^$field: //p" helm/continuo/Chart.yaml)" = "$version" ] \
    || fail "$field of helm/continuo/Chart.yaml is not $version, the version of CMakeLists.txt"
done
[ -z "$(git status --porcelain)" ] || fail "the work tree has changes"
if [ "$snapshot" = 0 ]; then
  git tag --points-at HEAD | grep -qx "v$version" || fail "the commit has no tag v$version"
  grep -q "^## $version" CHANGELOG.md || fail "CHANGELOG.md has no entries of $version"
fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

scripts/setup.sh
if [ "$is_cross" = 0 ]; then
  echo "== programs"
  scripts/build.sh release continuo-gateway continuo-worker continuo
  echo "== Debian package"
  cpack --config build/release/CPackConfig.cmake -B build/package >build/cpack.log 2>&1 || { cat build/cpack.log; exit 1; }
  cp "build/package/continuo_${version}_$(dpkg --print-architecture).deb" "$out"
  echo "== Python wheel"
  build/venv/bin/python deploy/python/build_wheel.py --out="$out" --bin=build/release/bin
fi
echo "== chart"
build/tools/bin/helm package helm/continuo --destination "$out"
# Packed again: helm writes the time of the moment.
chart=$(mktemp -d)
tar xzf "$out/continuo-$version.tgz" -C "$chart"
tar c --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
  -C "$chart" continuo | gzip -n9 >"$out/continuo-$version.tgz"
rm -r "$chart"
if [ "$images" = 1 ]; then
  echo "== images"
  deploy/images/build.sh --arch="$arch"
  built=build/images
  [ "$is_cross" = 0 ] || built+=/$arch
  for name in gateway worker-cpu cli; do
    cp "$built/continuo-$name".{tar,sbom.cdx.json} "$out"
  done
fi
# As the time of a chart is when its file was made, by which a registry knows it.
touch -d "@$SOURCE_DATE_EPOCH" "$out"/*
(cd "$out" && sha256sum -- * >SHA256SUMS)
python3 scripts/provenance.py "$out/SHA256SUMS" "$version" >"$out/provenance.intoto.json"
if [ -n "$key" ]; then
  echo "== signatures"
  scripts/cosign.sh
  # Not told to the public log, which scripts/publish.py tells of images where that is wanted.
  for file in SHA256SUMS provenance.intoto.json; do
    build/cosign/bin/cosign sign-blob --yes --key "$key" --tlog-upload=false --output-signature "$out/$file.sig" \
      "$out/$file" >/dev/null
  done
fi
echo "release $version is in $out"
