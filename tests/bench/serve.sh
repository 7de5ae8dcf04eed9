#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Throughput through gateway and worker at a real model's shape with seeded random weights: one
# stream and 16, after the machine's ceilings (read bandwidth, multiply-add peak) and MatMul beside
# them. Prints tables and writes build/bench/serve-*.json.
#
#   tests/bench/serve.sh [qwen3-0.6b|llama-3.2-1b]
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/programs.sh
shape=${1:-qwen3-0.6b}
bin=build/release/bin
out=build/bench
model=$out/$shape
mkdir -p "$out"
if [ ! -f "$model/config.json" ]; then  # under its name a model is whole
  rm -rf "$model.tmp" "$model"
  "$bin/continuo-make-model" --shape="$shape" --out="$model.tmp" --seed=1
  mv "$model.tmp" "$model"
fi

echo "== ceilings, and MatMul beside them"
build/release/bench/matmul_bench --n=3072 --k=1024 --weights=bf16 --rows=1,16,64,256 \
  --json="$out/serve-ceilings.json"

start_seconds=120
start_program "$out/serve-worker.log" "$bin/continuo-worker" --model="$model" --listen=127.0.0.1:0 \
  --metrics_listen=127.0.0.1:0 --kv_cache_memory=4GiB --max_context_tokens=8192
start_program "$out/serve-gateway.log" "$bin/continuo-gateway" --workers="$address" --listen=127.0.0.1:0 \
  --http_listen=off --metrics_listen=127.0.0.1:0
for streams in 1 16; do
  echo "== $streams at once: 128 prompt tokens, 96 output tokens"
  # Each run has a seed of its own, since the same prompts would be in the worker's prefix cache.
  "$bin/continuo" bench --server="$address" --concurrency="$streams" --requests=$((streams * 3 + 1)) \
    --warmup="$streams" --prompt_tokens=128 --output_tokens=96 --seed="$streams" \
    --json="$out/serve-$streams.json"
done
