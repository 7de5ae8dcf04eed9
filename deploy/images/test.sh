#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and tests the project against what the images carry: the compiler, gRPC, Protocol Buffers
# and Abseil of the toolchain stage.
#
#   deploy/images/test.sh                     builds everything and runs what scripts/test.sh runs of it
#   deploy/images/test.sh CTEST_OPTIONS...    the tests that ctest's options choose
#   deploy/images/test.sh --run COMMAND...    any command in there, the sources at /src
#
# The build tree lives below $IMAGES_ROOT, apart from build/; ccache's and cargo's caches are those of
# the images, so what is compiled here is not compiled again there.
. "$(dirname "$0")/env.sh"
deploy/images/base.sh
buildah_build toolchain-tests continuo-toolchain-tests >"$IMAGES_ROOT/toolchain.log" 2>&1 ||
  { tail -20 "$IMAGES_ROOT/toolchain.log" >&2; exit 1; }
shared=${CONTINUO_SHARED:-$PWD/../shared}
mkdir -p "$IMAGES_ROOT/build" "$CACHES"/continuo-{ccache,cargo,cargo-target}
container=$(buildah from --pull-never localhost/continuo-toolchain-tests)
trap 'buildah rm "$container" >/dev/null' EXIT
mounts=(-v "$PWD:/src" -v "$IMAGES_ROOT/build:/src/build" -v "$CACHES/continuo-ccache:/ccache"
  -v "$CACHES/continuo-cargo:/cargo" -v "$CACHES/continuo-cargo-target:/src/build/cargo")
[ ! -d "$shared" ] || mounts+=(-v "$(cd "$shared" && pwd):/shared:ro")
certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
[ ! -f "$certificates" ] || mounts+=(-v "$certificates:/etc/ssl/certs/ca-certificates.crt:ro")
inside() {
  buildah run --isolation chroot --workingdir /src "${mounts[@]}" \
    -e CCACHE_DIR=/ccache -e CARGO_HOME=/cargo -e CONTINUO_SHARED=/shared -e JOBS="${JOBS:-$(nproc)}" \
    "$container" -- "$@"
}
if [ "${1:-}" = --run ]; then
  shift
  inside "$@"
  exit
fi
# Charts and dashboards are the same whatever the programs are built with.
[ $# -gt 0 ] || set -- -LE slow -E '^(helm|monitoring)/'
inside bash -ec '
  cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
  ninja -C build/release -j "$JOBS" --quiet
  if ! cmp -s tests/requirements.txt build/venv/installed.txt; then
    python3 -m venv --clear build/venv
    build/venv/bin/pip install -q --disable-pip-version-check -r tests/requirements.txt
    cp tests/requirements.txt build/venv/installed.txt
  fi
  dpkg-query -W -f "\${Package} \${Version}\n" g++ libgrpc++-dev libprotobuf-dev libabsl-dev cargo
  ctest --test-dir build/release -j "$JOBS" --output-on-failure --no-tests=error "$@"' - "$@"
