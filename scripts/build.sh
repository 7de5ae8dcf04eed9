#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures a preset and builds it, telling how far it is.
#
#   scripts/build.sh [--native] PRESET [TARGET...]
#
# --native leaves out the CPU kernels that this machine cannot run.
# On a terminal one line tells; elsewhere a line every twentieth part. JOBS: how many compilers run at once
# (default: all cores).
set -euo pipefail
cd "$(dirname "$0")/.."
options=()
if [ "${1:-}" = --native ]; then options=(-DCONTINUO_NATIVE_KERNELS=ON); shift; fi
[ $# -ge 1 ] || { sed -n '3,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
preset=$1; shift
mkdir -p build
cmake --preset "$preset" "${options[@]}" >"build/configure-$preset.log" 2>&1 || { cat "build/configure-$preset.log"; exit 1; }
export NINJA_STATUS='[%f/%t, %e s] '
ninja=(ninja -C "build/$preset" -j "${JOBS:-$(nproc)}" "$@")
if [ -t 1 ]; then
  exec "${ninja[@]}"
fi
# Steps that say nothing of their own are left out but for a line each twentieth part.
"${ninja[@]}" | awk '
  /^ninja: (Entering|no work)/ { next }
  match($0, /^\[[0-9]+\/[0-9]+, [0-9.]+ s\]/) {
    split(substr($0, 2), n, /[\/,]/)
    part = int(20 * n[1] / n[2])
    if (part > last) { print substr($0, 1, RLENGTH); fflush(); last = part }
    next
  }
  { print; fflush() }'
