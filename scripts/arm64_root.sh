#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Unpacks the arm64 libraries that kernels and their tests need below build/arm64-root, from the package
# lists that this machine has: what the preset arm64 compiles against and qemu runs with.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(libabsl-dev libbenchmark-dev libgmock-dev libgtest-dev libstdc++-12-dev nlohmann-json3-dev)
root=$PWD/build/arm64-root
[ "$(cat "$root/installed.txt" 2>/dev/null)" != "${packages[*]}" ] || exit 0
echo "setup: libraries for arm64"
state=$PWD/build/arm64-apt
rm -rf "$root" "$state"
mkdir -p "$root" "$state"/{lists,cache/archives}/partial
: >"$state/status"  # as of a machine on which nothing is installed
apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State=$state"
  -o "Dir::State::status=$state/status" -o "Dir::Cache=$state/cache" -o APT::Sandbox::User=root)
"${apt[@]}" update
"${apt[@]}" install -y --download-only --no-install-recommends "${packages[@]}" >/dev/null
for archive in "$state"/cache/archives/*.deb; do dpkg-deb -x "$archive" "$root"; done
rm -rf "$state"
echo "${packages[*]}" >"$root/installed.txt"
