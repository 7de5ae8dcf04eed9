#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Breaks a real fleet at random moments and compares every stream with its undisturbed run.
#
#   tests/chaos/run.sh                        1,000 faults, about 25 minutes
#   tests/chaos/run.sh --faults=30 --seed=7   as many as wanted; a seed draws the same faults again
#   tests/chaos/run.sh --json=report.json     also writes the report as JSON
#
# Programs come from $CONTINUO_BIN (default build/release/bin). Everything happens in a network
# namespace of its own without a way out, which needs root or user namespaces.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
as=()
[ "$(id -u)" = 0 ] || as=(--map-root-user)
exec unshare "${as[@]}" --net sh -c 'ip link set lo up && exec "$@"' - \
  "$here/../../build/venv/bin/python" "$here/chaos.py" "$@"
