#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh machine to streaming tokens: set-up, release build, one gateway and two workers, one streamed answer, the
# fleet as a table, clean shutdown.
#
#   scripts/quickstart.sh             the demo model, which is in the repository
#   scripts/quickstart.sh --smollm2   SmolLM2-135M-Instruct (scripts/real_model.sh, 93 MB); on a terminal it ends in a
#                                     conversation
set -euo pipefail
cd "$(dirname "$0")/.."
smollm2=0
case "${1:-}" in
  '') ;;
  --smollm2) smollm2=1 ;;
  *) sed -n '3,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
. scripts/programs.sh
scripts/setup.sh --quick
model=deploy/demo-model
worker_flags=(--kv_cache_memory=64MiB)
question="Mira lives in Oslo and plays the violin. Tom lives in Lima and plays the drums. Where does Mira live?"
if [ "$smollm2" = 1 ]; then
  model=$(scripts/real_model.sh)
  worker_flags=(--model_name=smollm2 --max_context_tokens=4096 --kv_cache_memory=256MiB)
  question="What is the capital of France?"
fi
echo "== building the gateway, the worker and the client (six to twelve minutes on two cores the first time)"
scripts/build.sh --native release continuo-worker continuo-gateway continuo
bin=build/release/bin

logs=$(mktemp -d)

echo "== what would be loaded"
"$bin/continuo-worker" --describe --model="$model" "${worker_flags[@]}"
echo "== one gateway, two workers"
workers=
for i in 1 2; do
  start_program "$logs/worker-$i.log" "$bin/continuo-worker" --model="$model" --listen=127.0.0.1:0 \
    --metrics_listen=127.0.0.1:0 --threads=1 "${worker_flags[@]}"
  workers+=${workers:+,}$address
  echo "worker $i at $address"
done
start_program "$logs/gateway.log" "$bin/continuo-gateway" --workers="$workers" --listen=127.0.0.1:0 \
  --http_listen=127.0.0.1:0 --metrics_listen=127.0.0.1:0
gateway=$address
echo "gateway at $gateway"

echo
echo "> $question"
"$bin/continuo" chat --server="$gateway" --temperature=0 <<<"$question"
echo
"$bin/continuo" fleet --workers="$workers"
if [ "$smollm2" = 1 ] && [ -t 0 ] && [ -t 1 ]; then
  echo
  echo "== a conversation with SmolLM2; control-D ends it"
  # These are the values that its makers recommend; without them so small a model wanders off.
  "$bin/continuo" chat --server="$gateway" --temperature=0.2 --top_p=0.9
fi

echo
echo "== stopping"
stop_programs
cat <<END
It works. To serve a model of your own (docs/models.md lists what is loaded), from a Hugging Face folder, a GGUF file or
a hub:

  $bin/continuo-worker --model=/path/to/folder &
  $bin/continuo-gateway --workers=localhost:50051 &
  $bin/continuo chat
  curl localhost:8080/v1/chat/completions -d '{"messages":[{"role":"user","content":"Hello"}]}'
END
