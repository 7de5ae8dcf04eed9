#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up, builds the release preset and runs its tests.
#
#   scripts/test.sh         everything that CI runs (an hour on two slow cores with empty caches)
#   scripts/test.sh --all   also the slow tests, AddressSanitizer and UndefinedBehaviorSanitizer,
#                           ThreadSanitizer, kernels for ARM, fuzzing, a format check, and peers; as
#                           root also images and a cluster of Kubernetes (Debian 12)
#
# CONTINUO_SHARED names the folder of models and goldens that the conformance tests read (default
# ../shared); with CONTINUO_REQUIRE_SHARED=1 a conformance test that was skipped is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
all=0
case "${1:-}" in
  '') ;;
  --all) all=1 ;;
  *) sed -n '3,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
export CONTINUO_SHARED=${CONTINUO_SHARED:-$PWD/../shared}
export JOBS=${JOBS:-$(nproc)}

# run_tests PRESET CTEST_OPTIONS...: fails on a failed test, and where required on a skipped one.
run_tests() {
  local preset=$1; shift
  local report=$PWD/build/tests-$preset.xml
  ctest --test-dir "build/$preset" -j "$JOBS" --output-on-failure --no-tests=error \
    --output-junit "$report" "$@" | grep -vE '^ *Start +[0-9]+:|^ *[0-9]+/[0-9]+ Test +#[0-9]+: .* Passed '
  /usr/bin/python3 scripts/check_skipped.py "$report"
}

if [ "$all" = 1 ]; then scripts/setup.sh --all --arm64 --browser --clients --cuda --cuda=12 --peers; else scripts/setup.sh --browser --cuda; fi
echo "== build: release (a few minutes the first time; ccache keeps what was compiled)"
scripts/build.sh release
if [ "$all" = 1 ]; then scripts/build.sh release benches; fi
echo "== CUDA: kernels for sm_80 and sm_90a, the worker, host code over a shim"
scripts/build.sh cuda cuda_tests
if [ "$all" = 1 ]; then scripts/build.sh cuda ops_bench score_tokens; fi
if [ "$all" = 1 ]; then run_tests cuda -L 'cuda|gpu'; else run_tests cuda -L 'cuda|gpu' -LE slow; fi
if [ -x build/npm/node_modules/.bin/buf ]; then
  echo "== protos: lint, breaking changes"
  scripts/check_protos.sh
elif [ "$all" = 1 ]; then
  echo "buf is missing: it needs npm" >&2
  exit 1
else
  echo "== protos: skipped, buf needs npm"
fi
if [ "$all" = 0 ]; then
  echo "== tests"
  run_tests release -LE slow
else
  echo "== tests, the slow ones included"
  run_tests release
fi
echo "== screenshots of the page, in build/release/page"
ls build/release/page 2>/dev/null || echo "none: they need scripts/setup.sh --browser"
[ "$all" = 1 ] || exit 0

echo "== simulated fleets: ${FLEET_SEEDS:-100000} seeds, and a tenth with an autoscaler"
fleet_seeds() { # FILTER COUNT: four parts beside each other
  seq 0 3 | CONTINUO_SEEDS=0:$2 xargs -P "$JOBS" -I{} nice -n 10 build/release/tests/simulate_test \
    --gtest_brief=1 --gtest_filter="Parts/$1.*/{}"
}
fleet_seeds SeedsTest "${FLEET_SEEDS:-100000}"
fleet_seeds ScaledSeedsTest $((${FLEET_SEEDS:-100000} / 10))
echo "== CUDA 12: the worker, kernels for sm_80 and sm_90a, host code over a shim"
scripts/build.sh cuda12 continuo-worker continuo_cuda_kernels kernels_cuda_runtime_test step_bench
run_tests cuda12 -R '^kernels/cuda/(machine_code|linked_worker|runtime/)'
echo "== kernels for 64-bit ARM, with and without the products of four bytes"
scripts/build.sh arm64
for cpu in max cortex-a72; do QEMU_CPU=$cpu run_tests arm64; done
echo "== format"
git ls-files '*.cc' '*.h' '*.cu' '*.cuh' | xargs clang-format --dry-run --Werror
echo "== the gateway beside nginx and smg"
CONTINUO_SOURCE=$PWD CONTINUO_BIN=$PWD/build/release/bin build/venv/bin/python tests/bench/gateway/gateway.py
echo "== ten times the load, and a flood"
CONTINUO_SOURCE=$PWD CONTINUO_BIN=$PWD/build/release/bin build/venv/bin/python tests/bench/gateway/overload.py
if [ "$(id -u)" = 0 ]; then
  echo "== images, and the chart on a cluster"
  deploy/cluster/test.sh
else
  echo "== images, and the chart on a cluster: skipped, they need root"
fi
echo "== AddressSanitizer and UndefinedBehaviorSanitizer"
scripts/build.sh asan
run_tests asan -LE 'slow|no_asan'
echo "== ThreadSanitizer"
scripts/build_tsan_abseil.sh
scripts/build.sh tsan
run_tests tsan -LE 'slow|no_tsan'
echo "== fuzzing, ${FUZZ_SECONDS:-60} s a target"
scripts/build.sh fuzz fuzzers
tests/fuzz/run.sh --cpu_seconds="${FUZZ_SECONDS:-60}"
echo "all passed"
