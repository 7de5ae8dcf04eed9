#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the end-to-end tests, the goldens, the kills and the floods against the programs of the images
# as deploy/images/build.sh has built them, with the libraries of the images and nothing else.
#
#   deploy/images/e2e.sh [CTEST_OPTIONS...]    as ctest's; all of them where none are given
#   deploy/images/e2e.sh --floods [TESTS...]   the floods alone
#
# With --arch=arm64 first: the images of that architecture, where it is another one run by qemu, which is some ten
# times slower; tests with clocks of their own may fail there.
. "$(dirname "$0")/env.sh"
ARCH=$machine
case "${1:-}" in --arch=*) ARCH=${1#--arch=}; shift ;; esac
version=$(sed -n 's/^project(continuo VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
tag=${TAG:-$version}
emulator=
if [ "$ARCH" != "$machine" ]; then
  tag+=-$ARCH
  case $ARCH in amd64) emulator=qemu-x86_64 ;; arm64) emulator=qemu-aarch64 ;; esac
  emulator=$(command -v "$emulator") || { echo "e2e.sh: no emulator of $ARCH: scripts/setup.sh --arm64" >&2; exit 1; }
fi
build=build/images-e2e
cmake --preset release -B "$build" >"$IMAGES_ROOT/e2e-configure.log" 2>&1 ||
  { cat "$IMAGES_ROOT/e2e-configure.log" >&2; exit 1; }
mkdir -p "$build/bin"
containers=()
trap 'for c in "${containers[@]}"; do buildah umount "$c" >/dev/null; buildah rm "$c" >/dev/null; done' EXIT
for image in gateway:continuo-gateway worker-cpu:continuo-worker cli:continuo; do
  container=$(buildah from --pull-never "localhost/continuo-${image%:*}:$tag")
  containers+=("$container")
  root=$(buildah mount "$container")
  program=${image#*:}
  # The image's own loader and libraries: this machine's are older.
  loader=$(echo "$root"/usr/lib/*-linux-gnu/ld-linux-*)
  printf '#!/bin/sh\nexec %s --library-path %s %s "$@"\n' "${emulator:+$emulator }$loader" "$(dirname "$loader")" \
    "$root/usr/bin/$program" >"$build/bin/$program"
  chmod +x "$build/bin/$program"
  "$build/bin/$program" --version
done
# What makes the tests' models is in no image.
[ -x build/release/bin/continuo-make-model ] || { echo "continuo-make-model is missing: scripts/test.sh" >&2; exit 1; }
ln -sf "$PWD/build/release/bin/continuo-make-model" "$build/bin/"
if [ "${1:-}" = --floods ]; then
  shift
  CONTINUO_BIN=$PWD/$build/bin build/venv/bin/python deploy/images/flood_test.py "$@"
  exit
fi
[ $# -gt 0 ] || set -- -R '^(e2e|conformance/e2e|chaos)/' -LE slow
ctest --test-dir "$build" --output-on-failure --no-tests=error "$@"
CONTINUO_BIN=$PWD/$build/bin build/venv/bin/python deploy/images/flood_test.py
