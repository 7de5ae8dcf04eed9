#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the image of the tests' client, build/images/test-client.tar.
. "$(dirname "$0")/../images/env.sh"
deploy/images/base.sh
mkdir -p build/images
log=$IMAGES_ROOT/test-client.log
options=(--isolation chroot --pull-never --layers --format oci --build-arg "BASE=$BASE" --ignorefile /dev/null)
certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
[ ! -f "$certificates" ] || options+=(-v "$certificates:/etc/ssl/certs/ca-certificates.crt:ro")
buildah build "${options[@]}" -t localhost/continuo-test-client:1 -f deploy/cluster/client.Dockerfile . \
  >"$log" 2>&1 || { tail -30 "$log" >&2; exit 1; }
rm -f build/images/test-client.tar
buildah push -q localhost/continuo-test-client:1 \
  oci-archive:build/images/test-client.tar:localhost/continuo-test-client:1
