#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds oras, by which scripts/publish.py speaks to registries, from its Go module into build/oras. Safe to run
# again: what is there in the pinned version stays.
set -euo pipefail
cd "$(dirname "$0")/.."
version=v1.3.6
[ "$(cat build/oras/installed.txt 2>/dev/null)" != "$version" ] || exit 0
echo "setup: oras $version"
. scripts/go_toolchain.sh
export GOBIN=$PWD/build/oras/bin CGO_ENABLED=0
mkdir -p build/oras
GOFLAGS="-trimpath -buildvcs=false -modcacherw" "$go" install -ldflags "-s -w" "oras.land/oras/cmd/oras@$version" \
  2>build/oras/install.log || { cat build/oras/install.log >&2; exit 1; }
echo "$version" >build/oras/installed.txt
