#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh machine to streaming tokens: set-up, release build, one gateway and two workers on
# the demo model, one streamed answer, the fleet as a table, clean shutdown.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/programs.sh
scripts/setup.sh --quick
echo "== building the gateway, the worker and the client (four to seven minutes on two cores the first time)"
scripts/build.sh --native release continuo-worker continuo-gateway continuo
bin=build/release/bin

logs=$(mktemp -d)

echo "== one gateway, two workers"
workers=
for i in 1 2; do
  start_program "$logs/worker-$i.log" "$bin/continuo-worker" --model=deploy/demo-model --listen=127.0.0.1:0 \
    --metrics_listen=127.0.0.1:0 --threads=1 --kv_cache_memory=64MiB
  workers+=${workers:+,}$address
  echo "worker $i at $address"
done
start_program "$logs/gateway.log" "$bin/continuo-gateway" --workers="$workers" --listen=127.0.0.1:0 \
  --http_listen=127.0.0.1:0 --metrics_listen=127.0.0.1:0
gateway=$address
echo "gateway at $gateway"

echo
echo "> Mira lives in Oslo and plays the violin. Tom lives in Lima and plays the drums. Where does Mira live?"
"$bin/continuo" chat --server="$gateway" --temperature=0 \
  <<<"Mira lives in Oslo and plays the violin. Tom lives in Lima and plays the drums. Where does Mira live?"
echo
"$bin/continuo" fleet --workers="$workers"

echo
echo "== stopping"
stop_programs
cat <<END
It works. To serve a model of your own (Llama, Mistral, Mixtral, Qwen2, Qwen3, Qwen3-MoE, Gemma 2 or Phi-3 as a
Hugging Face folder):

  $bin/continuo-worker --model=/path/to/folder &
  $bin/continuo-gateway --workers=localhost:50051 &
  $bin/continuo chat
  curl localhost:8080/v1/chat/completions -d '{"messages":[{"role":"user","content":"Hello"}]}'
END
