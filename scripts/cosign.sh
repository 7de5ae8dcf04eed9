#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds cosign, by which scripts/release.sh and scripts/publish.py sign with a key, from its Go module into
# build/cosign. Takes minutes. Safe to run again: what is there in the pinned version stays.
set -euo pipefail
cd "$(dirname "$0")/.."
version=v2.6.5
[ "$(cat build/cosign/installed.txt 2>/dev/null)" != "$version" ] || exit 0
echo "setup: cosign $version"
. scripts/go_toolchain.sh
export GOBIN=$PWD/build/cosign/bin CGO_ENABLED=0
mkdir -p build/cosign
GOFLAGS="-trimpath -buildvcs=false -modcacherw" "$go" install -ldflags "-s -w" \
  "github.com/sigstore/cosign/v2/cmd/cosign@$version" 2>build/cosign/install.log ||
  { cat build/cosign/install.log >&2; exit 1; }
echo "$version" >build/cosign/installed.txt
