#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs a GPU, in one command; the machine with it needs no compiler.
#
#   tests/gpu/run.sh pack   where build/cuda is built (or build/$CONTINUO_BUILD): stripped programs and
#                           the libraries that they need, but for CUDA's, as build/gpu.tar.gz; refused
#                           beyond 64 MiB
#   tests/gpu/run.sh        on a machine with a GPU: tests, compute-sanitizer where it is installed,
#                           benches, whole models beside transformers where that is installed, and a
#                           gateway and a worker under load; results in $OUT, or build/gpu-results
#
# CUDA's libraries are taken from build/cuda-toolkit, or else from the Python packages nvidia-cublas,
# nvidia-cuda-runtime and nvidia-nccl-cu13 (PyTorch for CUDA 13 has them), or from where
# LD_LIBRARY_PATH says.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/programs.sh
packed=build/gpu
tests=(gpu_device_test gpu_backend_test gpu_model_test gpu_hf_test gpu_nccl_test gpu_xid_test)

if [ "${1:-}" = pack ]; then
  built=build/${CONTINUO_BUILD:-cuda}
  rm -rf "$packed"
  mkdir -p "$packed/bin" "$packed/lib"
  for program in "${tests[@]/#/tests/}" bench/ops_bench bench/score_tokens bench/step_bench \
      bin/continuo-worker bin/continuo-gateway bin/continuo bin/continuo-make-model; do
    strip -o "$packed/bin/$(basename "$program")" "$built/$program"
  done
  # The C library is the machine's own.
  ldd "$packed"/bin/* | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|ld-linux[^/]*|libcuda[^/]*|libcublas[^/]*|libnccl)\.so' |
    while read -r library; do
      strip --strip-unneeded -o "$packed/lib/$(basename "$library")" "$library"
    done
  tar -C build -czf "$packed.tar.gz" gpu
  size=$(du -sm "$packed.tar.gz" | cut -f1)
  echo "$packed.tar.gz: $size MiB"
  [ "$size" -le 64 ] || { echo "more than 64 MiB" >&2; exit 1; }
  exit 0
fi

[ -f "$packed.tar.gz" ] || { echo "$packed.tar.gz is missing: tests/gpu/run.sh pack makes it" >&2; exit 1; }
rm -rf "$packed"
tar -C build -xzf "$packed.tar.gz"
[ -d shared ] && export CONTINUO_SHARED=${CONTINUO_SHARED:-$PWD/shared}
out=${OUT:-build/gpu-results}
mkdir -p "$out"
libraries=$PWD/$packed/lib:$PWD/build/cuda-toolkit/nvidia/cu13/lib:$PWD/build/cuda-toolkit/nvidia/nccl/lib
python_libraries=$(python3 - <<'PY' 2>/dev/null || true
import glob, os, sys
found = [d for p in sys.path for d in glob.glob(os.path.join(p, "nvidia", "*", "lib"))]
print(":".join(found))
PY
)
export LD_LIBRARY_PATH=$libraries${python_libraries:+:$python_libraries}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
failed=()
# step NAME COMMAND...: runs it with its output in a file, goes on after a failure.
step() {
  local name=$1 code=0; shift
  echo "== $name"
  "$@" >"$out/$name.txt" 2>&1 || code=$?
  tail -n "${LINES_SHOWN:-4}" "$out/$name.txt"
  [ "$code" = 0 ] || { echo "$name: exit code $code"; failed+=("$name"); }
}

{ date -u; nvidia-smi -q || true; } >"$out/machine.txt" 2>&1
nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null || true
if "$packed/bin/ops_bench" --list >/dev/null 2>"$out/device.txt"; then :; else
  echo "no device, so nothing was run: $(cat "$out/device.txt")" >&2
  exit 1
fi
for test in "${tests[@]}"; do
  step "$test" "$packed/bin/$test" --gtest_output=xml:"$out/$test.xml"
done
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck synccheck initcheck; do
    step "sanitizer-$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 \
      "$packed/bin/gpu_backend_test" --gtest_filter='*Rows*:*Keys*:*FewShapes*:*EveryByte*:*Experts*:*Quantised*:*Joined*:*Draws*'
    step "sanitizer-$tool-model" compute-sanitizer --tool "$tool" --error-exitcode 9 \
      "$packed/bin/gpu_model_test"
  done
else
  echo "compute-sanitizer is not installed: skipped"
fi
LINES_SHOWN=100 step ops_bench "$packed/bin/ops_bench" --json="$out/ops_bench.json"
step ops_bench-deterministic "$packed/bin/ops_bench" --deterministic --json="$out/ops_bench-deterministic.json"
for shape in qwen3-0.6b ${CONTINUO_GPU_SHAPES:-llama-3.2-1b llama-3.1-8b}; do
  model=build/gpu-models/$shape
  [ -f "$model/config.json" ] || step "make-$shape" "$packed/bin/continuo-make-model" \
    --shape="$shape" --out="$model" --seed=1
  [ -f "$model/config.json" ] || continue
  for deterministic in 0 1; do
    name=step-$shape; [ "$deterministic" = 0 ] || name+=-deterministic
    LINES_SHOWN=10 step "$name" "$packed/bin/step_bench" --model="$model" --device=cuda:0 \
      --threads=8 --deterministic="$deterministic" --json="$out/$name.json"
  done
  if python3 -c 'import torch, transformers' 2>/dev/null; then
    # PyTorch has libraries of its own.
    step "hf-$shape" env -u LD_LIBRARY_PATH CONTINUO_LIBRARIES="$LD_LIBRARY_PATH" python3 \
      tests/gpu/hf_scores.py "$packed/bin/score_tokens" "$model" --json="$out/hf-$shape.json"
  else
    echo "hf-$shape: PyTorch and transformers are not installed: skipped"
  fi
  formats=(fp16 int8 int4)
  # fp8 is for Hopper.
  nvidia-smi --query-gpu=compute_cap --format=csv,noheader | grep -q '^9\.0' && formats+=(fp8)
  for weights in "${formats[@]}"; do
    LINES_SHOWN=10 step "step-$shape-$weights" "$packed/bin/step_bench" --model="$model" \
      --device=cuda:0 --threads=8 --weights="$weights" --json="$out/step-$shape-$weights.json"
  done
  for kv in int8 fp8; do
    LINES_SHOWN=10 step "step-$shape-kv-$kv" "$packed/bin/step_bench" --model="$model" \
      --device=cuda:0 --threads=8 --kv_dtype="$kv" --json="$out/step-$shape-kv-$kv.json"
  done
done

start_seconds=180
served=build/gpu-models/qwen3-0.6b
if start_program "$out/worker.log" "$packed/bin/continuo-worker" --model="$served" --device=cuda:0 \
    --listen=127.0.0.1:0 \
    --metrics_listen=127.0.0.1:0 --max_context_tokens=8192 &&
  start_program "$out/gateway.log" "$packed/bin/continuo-gateway" --workers="$address" --listen=127.0.0.1:0 \
    --http_listen=off --metrics_listen=127.0.0.1:0; then
  for streams in 1 16 64 256; do
    LINES_SHOWN=12 step "serve-$streams" "$packed/bin/continuo" bench --server="$address" \
      --concurrency="$streams" --requests=$((streams * 4)) --warmup="$streams" --prompt_tokens=128 \
      --output_tokens=128 --json="$out/serve-$streams.json"
  done
else
  failed+=(serve)
fi
echo "results are in $out"
[ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}"; exit 1; }
