#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what compiles the programs, in a stage of the Dockerfile.
set -euo pipefail
. "$(dirname "$0")/target.sh"
packages=(ca-certificates cargo ccache cmake g++ ninja-build pkgconf protobuf-compiler protobuf-compiler-grpc python3
  libcli11-dev nlohmann-json3-dev)
libraries=(libabsl-dev libboost-dev libc-ares-dev libcurl4-openssl-dev libgrpc++-dev libminizip-dev libprotobuf-dev
  libre2-dev libssl-dev libxxhash-dev prometheus-cpp-dev zlib1g-dev)
if [ "$cross" = 1 ]; then
  dpkg --add-architecture "$architecture"
  packages+=("g++-${triple//_/-}" "libstd-rust-dev:$architecture" qemu-user)
fi
apt-get update -q
DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${packages[@]}" \
  "${libraries[@]/%/:$architecture}"
apt-get clean
rm -rf /var/lib/apt/lists/*
