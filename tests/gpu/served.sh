# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# Sourced by run.sh, whose steps these are: gateways and workers under load. Every bench has a seed of
# its own: with the same one its prompts would be those of the last, and in the worker's prefix cache.

gpu_state() {
  { echo "$1"; nvidia-smi --query-gpu=memory.used,memory.free,clocks.sm --format=csv,noheader; } \
    >>"$out/gpu-state.txt" 2>&1 || true
}

# start_served NAME SHAPE FLAGS...: a worker with these flags in $worker_address, a gateway before it in
# $gateway_address.
start_served() {
  local name=$1 shape=$2; shift 2
  worker_address='' gateway_address=''
  if [ "$(left)" -lt 10 ]; then leave_out "$name" "no time is left"; return 1; fi
  start_seconds=$(($(left) < 180 ? $(left) : 180))
  gpu_state "before $name"
  { printf '$'; printf ' %q' continuo-worker "$@"; echo; } >"$out/$name-worker-flags.txt"
  if start_program "$out/$name-worker.log" timeout -k 5 "$(left)" "$bin/continuo-worker" \
      --model="$(model_of "$shape")" --device="$device" --listen=127.0.0.1:0 --metrics_listen=127.0.0.1:0 \
      "$@" 2>/dev/null && worker_address=$address &&
    start_program "$out/$name-gateway.log" timeout -k 5 "$(left)" "$bin/continuo-gateway" \
      --workers="$worker_address" --listen=127.0.0.1:0 --http_listen=off --metrics_listen=127.0.0.1:0 \
      2>/dev/null; then
    gateway_address=$address
    return
  fi
  failed+=("$name")
  { echo "== $name: did not start"; tail -n 10 "$out/$name"-*.log; } | tell
  stop_served "$name"
  return 1
}
stop_served() {
  gpu_state "behind $1"
  stop_programs
  publish
}

bench_seed=0
# bench NAME SECONDS SERVER STREAMS REQUESTS PROMPT OUTPUT [WARMUP]
# Twice as many requests as streams are enough for what is steady ("in between"): all begin once more.
bench() {
  bench_seed=$((bench_seed + 1))
  step "$1" "$2" "$bin/continuo" bench --server="$3" --concurrency="$4" --requests="$5" \
    --warmup="${8:-$(($4 < 16 ? $4 : 16))}" --prompt_tokens="$6" --output_tokens="$7" --seed="$bench_seed" \
    --json="$out/$1.json"
  # A bench that was ended or had failures also has figures, in its output.
  [[ $(cat "$out/$1.end") =~ ^(0|none)\  ]] || echo '{"failed": true}' >"$out/$1.json"
}

serve() {  # NAME SHAPE SPECULATION "STREAMS..." FLAGS...
  local name=$1 shape=$2 speculation=$3 all_streams=$4 streams; shift 4
  start_served "$name" "$shape" --max_context_tokens=8192 --speculation="$speculation" "$@" || return 0
  for streams in $all_streams; do
    LINES_SHOWN=12 bench "$name-$streams" 90 "$gateway_address" "$streams" \
      $((streams < 4 ? 16 : streams * 4)) 128 128
  done
  stop_served "$name"
}

# Streams of so many tokens whose keys and values a device holds to the last token of all, so that none
# is preempted: a token of Llama-3.1-8B takes 67,584 bytes in fp8, the rest of the device is weights,
# 9 GB, and what steps need. At most 1,024, in 64s.
streams_of() {  # PROMPT OUTPUT
  local mebibytes positions streams
  mebibytes=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null | head -n 1 || true)
  [[ $mebibytes =~ ^[0-9]+$ ]] || mebibytes=143771
  positions=$(((mebibytes * 1048576 - 14000000000) / 67584))
  streams=$((positions / ($1 + $2) / 64 * 64))
  echo $((streams > 1024 ? 1024 : streams < 64 ? 64 : streams))
}

goals_8b() {
  local lengths prompt output streams n
  if [ -z "$hopper" ]; then leave_out goals-fp8 "fp8 weights need compute capability 9.0"; return; fi
  # Keys and values are fp8, too: in bf16 the device would hold no more than half of the streams.
  # shellcheck disable=SC2086
  start_served goals-fp8 llama-3.1-8b --weights=fp8 --kv_dtype=fp8 --max_context_tokens=2304 \
    --max_running=1024 --max_batch_tokens=4096 --max_prefill_chunk=1024 --max_queued_tokens=4194304 \
    --speculation=off ${CONTINUO_GOAL_FLAGS:-} || return 0
  for lengths in 1000/1000 128/2048; do
    prompt=${lengths%/*} output=${lengths#*/}
    streams=$(streams_of "$prompt" "$output")
    # The steady state begins long after the first tokens, so these answers need no warm-up.
    LINES_SHOWN=12 bench "goals-8b-fp8-$prompt-$output" 180 "$gateway_address" "$streams" $((streams * 2)) \
      "$prompt" "$output" 0
  done
  # The same service with a gateway before it and without, in turn.
  for n in 1 2 3 4 5 6 7; do
    LINES_SHOWN=0 bench "goals-gateway-$n-through" 30 "$gateway_address" 128 256 128 128
    LINES_SHOWN=0 bench "goals-gateway-$n-direct" 30 "$worker_address" 128 256 128 128
  done
  stop_served goals-fp8
}

# The most important come first: a call may have no time for the last ones.
goals() {
  local shape shapes="llama-3.1-8b llama-3.2-1b"
  LINES_SHOWN=4 step goals-ceilings 60 "$bin/ops_bench" --only=ceilings --json="$out/goals-ceilings.json"
  if need_model goals llama-3.1-8b; then goals_8b; fi
  for shape in $shapes; do
    need_model goals "$shape" || continue
    cp "$(model_of "$shape")/config.json" "$out/goals-config-$shape.json"
    start_served "goals-$shape" "$shape" --max_context_tokens=2048 --max_running=4 --speculation=off || continue
    LINES_SHOWN=12 bench "goals-single-$shape" 60 "$worker_address" 1 8 128 512
    stop_served "goals-$shape"
  done
  for shape in $shapes; do
    if has_model "$shape"; then step_bench "goals-step-$shape" "$shape" --decode=1,64 --prefill=512; fi
  done
  # Steps as served above, with as many rows as on an H200, and with numbers of rows that have a graph.
  if [ -n "$hopper" ] && has_model llama-3.1-8b; then
    step_bench goals-step-llama-3.1-8b-fp8 llama-3.1-8b --weights=fp8 --kv_dtype=fp8 --decode=64,896 \
      --prefill=512
  fi
}
