# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts of this folder. Images, layers and caches live below $IMAGES_ROOT, so that
# a clone in another place finds them again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
: "${IMAGES_ROOT:=${XDG_CACHE_HOME:-$HOME/.cache}/continuo-images}"
: "${BASE:=debian:experimental}"
mkdir -p "$IMAGES_ROOT/tmp"
cat > "$IMAGES_ROOT/storage.conf" <<C
[storage]
driver = "overlay"
graphroot = "$IMAGES_ROOT/storage"
runroot = "${RUNROOT:-/run/continuo-images}"
C
export CONTAINERS_STORAGE_CONF=$IMAGES_ROOT/storage.conf
export TMPDIR=$IMAGES_ROOT/tmp  # buildah keeps the cache mounts of a Dockerfile there
CACHES=$TMPDIR/buildah-cache

command -v buildah >/dev/null || { echo "buildah is missing: scripts/setup.sh --cluster" >&2; exit 1; }

machine=$(dpkg --print-architecture)

# buildah_build TARGET TAG [OPTIONS...]: a target of the Dockerfile, for $ARCH (by default the machine's architecture).
# Isolation by chroot needs no network namespace and no runc, so this works inside a container, too.
buildah_build() {
  local target=$1 tag=$2
  shift 2
  local options=(--isolation chroot --pull-never --layers --format oci --build-arg "BASE=$BASE"
    --platform "linux/${ARCH:-$machine}" --build-arg "BUILDPLATFORM=linux/$machine")
  # Certificates that only this machine trusts (a registry's proxy) are for the build alone.
  local certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
  [ ! -f "$certificates" ] || options+=(-v "$certificates:/etc/ssl/certs/ca-certificates.crt:ro")
  buildah build "${options[@]}" --target "$target" -t "localhost/$tag" "$@" .
}
