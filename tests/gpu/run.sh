#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs a GPU; the machine with it needs no compiler.
#
#   tests/gpu/run.sh pack         where build/cuda is built (or build/$CONTINUO_BUILD): stripped programs,
#                                 the libraries that they need but for CUDA's, and the shared models of
#                                 hf_test, as build/gpu.tar.xz. Refused where a program is not up to date,
#                                 or the archive and the files that git does not ignore are beyond 64 MiB
#   tests/gpu/run.sh [STAGE...]   on a machine with a GPU; without arguments everything. Where there is no
#                                 archive, but a build, its programs are run
#
# Stages, done in this order however they are named; those of models take STAGE:SHAPE,SHAPE:
#   smoke      tests of the device, NCCL, models and Hugging Face's logits
#   models     makes the models that are not there, in the background of the tests
#   memcheck   compute-sanitizer on a few tests of ops, beside the others
#   tests      tests of ops, a process each, as many at a time as there are cores, or $CONTINUO_GPU_JOBS
#   goals      what serving has to reach (goals.py): Llama-3.1-8B in fp8 under all streams that it has
#              memory for, the gateway's loss, single streams
#   ops        ops_bench, nothing beside it
#   hf         log-probabilities beside transformers', where Python has them
#   sanitize   compute-sanitizer's other tools, and memcheck of a model's steps
#   serve      a gateway and a worker under load, without speculation and with
#   variants   what --deterministic costs ops, steps and served runs; fp16, int4
#   steps      step_bench: as stored, fp8, int8, keys and values of 8 bits
#   ranks      NCCL, models, steps and a served run on 2 and 4 devices, where there are so many
#   xid        raises an Xid, so it is last
# Results are in build/gpu-results, each step's output behind its command line; goals.txt says which
# goals they meet, predicted.txt how they compare with the cost model (cost_model.py). With $OUT, where
# they are fetched from, $OUT/summary.txt and $OUT/results.tar.gz are whole after every step, however the
# call ends. A call takes $CONTINUO_GPU_SECONDS, with $OUT 540 unless said; steps that get no time are
# named. The exit code is 1 where a step failed or a test was skipped, 2 where something was left out.
#
# In half an hour on an H200, which the goals are for, with calls of at most ten minutes, what counts most
# is done by these; they leave 5 minutes for what is between them:
#   CONTINUO_GPU_SECONDS=270 tests/gpu/run.sh smoke models tests memcheck
#   CONTINUO_GPU_SECONDS=540 tests/gpu/run.sh goals
#   CONTINUO_GPU_SECONDS=445 tests/gpu/run.sh ops hf:qwen3-0.6b sanitize
#   CONTINUO_GPU_SECONDS=205 tests/gpu/run.sh serve:qwen3-0.6b variants:llama-3.1-8b steps:qwen3-0.6b
#   CONTINUO_GPU_SECONDS=40 tests/gpu/run.sh xid
#
# CUDA's libraries are taken from build/cuda-toolkit, or else from the Python packages nvidia-cublas,
# nvidia-cuda-runtime and nvidia-nccl-cu13 (PyTorch for CUDA 13 has them), or from where
# LD_LIBRARY_PATH says.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/programs.sh
packed=build/gpu
archive=$packed.tar.xz
stages=(smoke models memcheck tests goals ops hf sanitize serve variants steps ranks xid)
all_shapes="llama-3.1-8b llama-3.2-1b qwen3-0.6b"
smoke_tests=(gpu_device_test gpu_pdl_test gpu_nccl_test gpu_model_test gpu_hf_test)
hf_models=data/models/hf_tiny_random
max_bytes=$((64 << 20))

# collect BUILD: copies the programs of a build that is up to date to build/gpu.
collect() {
  local built=$1 shared=${CONTINUO_SHARED:-../shared} program todo
  local programs=("${smoke_tests[@]/#/tests/}" tests/gpu_ops_test tests/gpu_xid_test bench/ops_bench
    bench/score_tokens bench/step_bench bin/continuo-worker bin/continuo-gateway bin/continuo
    bin/continuo-make-model)
  ninja -C "$built" build.ninja >/dev/null
  # A dry run always finds build.ninja itself out of date and stops there, so this one does not check it.
  todo=$(ninja -C "$built" -f <(echo "include build.ninja") -n "${programs[@]}")
  [[ $todo == *"no work to do"* ]] || {
    echo "$built is not up to date: ninja -C $built cuda_tests ${programs[*]##*/}" >&2
    return 1
  }
  mkdir -p "$packed/bin" "$packed/lib" "$packed/shared/$hf_models"
  git describe --always --dirty --abbrev=12 --exclude='*' >"$packed/commit" 2>/dev/null ||
    echo "no commit" >"$packed/commit"
  for program in "${programs[@]}"; do
    strip -o "$packed/bin/$(basename "$program")" "$built/$program"
  done
  # The machine's own C library is used.
  ldd "$packed"/bin/* | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    { grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|ld-linux[^/]*|libcuda[^/]*|libcublas[^/]*|libnccl)\.so' || true; } |
    while read -r program; do
      strip --strip-unneeded -o "$packed/lib/$(basename "$program")" "$program"
    done
  if [ -d "$shared/$hf_models" ]; then
    cp "$shared/$hf_models"/* "$packed/shared/$hf_models"
  else
    echo "there is no $shared/$hf_models for hf_test" >&2
  fi
  chmod -R u+w "$packed"
}

pack() {
  local size
  rm -rf "$packed" "$archive"  # a refusal leaves none to take along
  collect "build/${CONTINUO_BUILD:-cuda}"
  # Eight programs hold the same kernels: the dictionary spans them all.
  tar -C build -cf - gpu | xz -T1 --lzma2=preset=6,dict=192MiB >"$archive.tmp"
  size=$(($(stat -c %s "$archive.tmp") + $(git ls-files -z --cached --others --exclude-standard |
    xargs -0 stat -c %s 2>/dev/null | awk '{n += $1} END {print n + 0}')))
  echo "$archive: $(($(stat -c %s "$archive.tmp") >> 20)) MiB of $(cat "$packed/commit"), with all that" \
    "travels $((size >> 20)) MiB"
  [ "$size" -le "$max_bytes" ] || {
    echo "more than $((max_bytes >> 20)) MiB" >&2
    rm "$archive.tmp"
    return 1
  }
  mv "$archive.tmp" "$archive"
}

if [ "${1:-}" = pack ]; then
  pack
  exit
fi

declare -A wanted=()  # stages, each with the shapes of its models
for stage in "${stages[@]}"; do
  [ $# -gt 0 ] || wanted[$stage]=$all_shapes
done
for stage in "$@"; do
  [[ " ${stages[*]} " == *" ${stage%%:*} "* ]] || {
    echo "there is no stage ${stage%%:*}, but ${stages[*]}" >&2
    exit 2
  }
  shapes=$all_shapes
  [[ $stage != *:* ]] || shapes=${stage#*:}
  wanted[${stage%%:*}]=${shapes//,/ }
done
seconds=${CONTINUO_GPU_SECONDS:-${OUT:+540}}
deadline=$((SECONDS + ${seconds:-1000000}))

rm -rf "$packed"
if [ ! -f "$archive" ] && [ -d "build/${CONTINUO_BUILD:-cuda}" ]; then
  collect "build/${CONTINUO_BUILD:-cuda}"
elif [ ! -f "$archive" ]; then
  echo "$archive is missing: tests/gpu/run.sh pack makes it" >&2
  exit 1
elif command -v xz >/dev/null; then
  tar -C build -xJf "$archive"
else
  python3 -m tarfile -e "$archive" build
fi
bin=$packed/bin
export CONTINUO_SHARED=${CONTINUO_SHARED:-$PWD/$packed/shared}
out=build/gpu-results
# Calls of one build add to each other's results.
cmp -s "$packed/commit" "$out/commit" || rm -rf "$out"
mkdir -p "$out" build/gpu-models
cp "$packed/commit" "$out/commit"
rm -f "$out"/*.end
summaries=("$out/summary.txt")
[ -z "${OUT:-}" ] || summaries+=("$OUT/summary.txt")
failed=() left_out=() beside=()
declare -A process_of=()  # of those beside

# The machine's own libraries are Python's and the driver's.
as_found=(env -u LD_LIBRARY_PATH)
[ -z "${LD_LIBRARY_PATH+set}" ] || as_found=(env "LD_LIBRARY_PATH=$LD_LIBRARY_PATH")
libraries=$PWD/$packed/lib:$PWD/build/cuda-toolkit/nvidia/cu13/lib:$PWD/build/cuda-toolkit/nvidia/nccl/lib
python_libraries=$(python3 - <<'PY' 2>/dev/null || true
import glob, os, sys
found = [d for p in sys.path for d in glob.glob(os.path.join(p, "nvidia", "*", "lib"))]
print(":".join(found))
PY
)
export LD_LIBRARY_PATH=$libraries${python_libraries:+:$python_libraries}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[ ! -d /usr/local/cuda/bin ] || PATH=$PATH:/usr/local/cuda/bin

tell() { tee -a "${summaries[@]}"; }
left() { echo $((deadline - SECONDS)); }

# publish: writes the results so far, since a call may end without notice.
publish() {
  [ -n "${OUT:-}" ] || return 0
  tar -C build -czf "$OUT/results.tmp" gpu-results 2>/dev/null || [ $? = 1 ]  # 1: a file grew meanwhile
  mv "$OUT/results.tmp" "$OUT/results.tar.gz"
}

# run_step NAME SECONDS COMMAND...: the command line and its output in NAME.txt, then its exit code (or
# none, where there was no time for it) and how long it took in NAME.end.
run_step() {
  local name=$1 limit=$2 code=0 begin=$SECONDS; shift 2
  rm -f "$out/$name.end" "$out/$name.json"
  { printf '$'; printf ' %q' "$@"; echo; } >"$out/$name.txt"
  [ "$limit" -le "$(left)" ] || limit=$(left)
  if [ "$limit" -gt 0 ]; then
    timeout -k 5 "$limit" "$@" >>"$out/$name.txt" 2>&1 </dev/null || code=$?
  else
    code=none
  fi
  echo "$code $((SECONDS - begin))" >"$out/$name.end.tmp"
  mv "$out/$name.end.tmp" "$out/$name.end"
}

# report NAME: prints how it ended and the last lines of its output, more where it failed.
report() {
  local name=$1 code taken skipped what=ok lines=${LINES_SHOWN:-1}
  read -r code taken <"$out/$name.end"
  case $code in
    0)
      skipped=$(grep '^\[  SKIPPED \] .*\.' "$out/$name.txt" | grep -v TwoDevices || true)
      [[ $name == gpu_xid_test || -z $skipped ]] || what="skips a test"
      ;;
    none) what="left out, no time is left" ;;
    124 | 137) what="cut off" ;;
    lost) what="lost: what ran it has ended without a word" ;;
    *) what="exit code $code" ;;
  esac
  if [ "$code" = none ]; then
    left_out+=("$name")
    lines=0
  elif [ "$what" != ok ]; then
    failed+=("$name")
    lines=20
  fi
  {
    echo "== $name: $what, $taken s"
    [ "$lines" = 0 ] || tail -n "$lines" "$out/$name.txt" | cut -c1-300
  } | tell
  publish
}

step() { run_step "$@"; report "$1"; }

# beside NAME SECONDS COMMAND...: as step, a few at a time; `together` waits for all of them.
beside() {
  while [ "${#beside[@]}" -ge "${CONTINUO_GPU_JOBS:-$(nproc)}" ]; do one_of_them; done
  run_step "$@" &
  process_of[$1]=$!
  beside+=("$1")
}
one_of_them() {
  local name rest=()
  wait -n 2>/dev/null || true
  for name in "${beside[@]}"; do
    if ! kill -0 "${process_of[$name]}" 2>/dev/null && [ ! -f "$out/$name.end" ]; then
      echo "lost 0" >"$out/$name.end"
    fi
    if [ -f "$out/$name.end" ]; then report "$name"; else rest+=("$name"); fi
  done
  beside=("${rest[@]}")
}
together() { while [ "${#beside[@]}" -gt 0 ]; do one_of_them; done; }

# leave_out NAME WHY: notes a step that does not run, for lack of time or another reason.
leave_out() { echo "== $1: left out, $2" | tell; left_out+=("$1"); publish; }

model_of() { echo "build/gpu-models/$1"; }
# A model gets its name when it is complete.
make_model() {
  # shellcheck disable=SC2016
  run_step "make-$1" 400 nice -n 19 bash -c 'rm -rf "$2.tmp" && "$0" --shape="$1" --out="$2.tmp" --seed=1 && mv "$2.tmp" "$2"' \
    "$bin/continuo-make-model" "$1" "$(model_of "$1")"
}
has_model() { [ -f "$(model_of "$1")/config.json" ]; }
# need_model STAGE SHAPE: makes it now if it is not there; names what is left out without it.
need_model() {
  if ! has_model "$2" && [ ! -f "$out/make-$2.end" ]; then
    make_model "$2"
    report "make-$2"
  fi
  has_model "$2" || { leave_out "$1 of $2" "there is no model"; return 1; }
}
maker='' made=()
models_are_made() {
  [ -n "$maker" ] || return 0
  wait "$maker" || true
  maker=''
  for shape in "${made[@]}"; do report "make-$shape"; done
}

sanitizer_works=''
# sanitize NAME SECONDS TOOL PROGRAM FILTER. It runs only if a first trial works.
sanitize() {
  if [ -z "$sanitizer_works" ]; then
    sanitizer_works=no
    if ! command -v compute-sanitizer >/dev/null; then
      leave_out sanitizer "compute-sanitizer is not installed"
    else
      step sanitizer-trial 60 compute-sanitizer --tool memcheck --error-exitcode 9 "$bin/ops_bench" --list
      [[ $(cat "$out/sanitizer-trial.end") != 0\ * ]] || sanitizer_works=yes
    fi
  fi
  if [ "$sanitizer_works" = yes ]; then
    beside "$1" "$2" compute-sanitizer --tool "$3" --error-exitcode 9 "$bin/$4" --gtest_filter="$5"
  fi
}
few='*Small*'

device=cuda:0  # of steps and workers
step_bench() {  # NAME SHAPE FLAGS...
  local name=$1 shape=$2; shift 2
  LINES_SHOWN=8 step "$name" 120 "$bin/step_bench" --model="$(model_of "$shape")" --device="$device" \
    --threads="$(nproc)" --json="$out/$name.json" "$@"
  [[ $(cat "$out/$name.end") =~ ^(0|none)\  ]] || echo '{"failed": true}' >"$out/$name.json"
}

. tests/gpu/served.sh

# Prints the results beside the goals and beside what the cost model predicts.
figures() {
  "${as_found[@]}" python3 tests/gpu/goals.py "$out" >"$out/goals.txt" 2>&1 || failed+=(goals.py)
  "${as_found[@]}" python3 tests/gpu/cost_model.py "$out" >"$out/predicted.txt" 2>&1 || failed+=(cost_model.py)
  cat "$out/goals.txt" "$out/predicted.txt" | tell
  publish
}

hopper=''  # which has products of fp8
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || true)
[[ $capability != 9.0* ]] || hopper=fp8
{ date -u; nvidia-smi -q || true; } >"$out/machine.txt" 2>&1
{
  echo "programs of $(cat "$packed/commit"); stages: ${*:-all}"
  nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null || true
} | tell
step device 60 "$bin/ops_bench" --list
if [ ${#failed[@]} -gt 0 ]; then
  echo "no device, so nothing was run" | tell
  exit 1
fi

if [ -n "${wanted[smoke]:-}" ]; then
  for test in "${smoke_tests[@]}"; do step "$test" 120 "$bin/$test"; done
fi
if [ -n "${wanted[models]:-}" ]; then
  for shape in ${wanted[models]}; do has_model "$shape" || made+=("$shape"); done
  for shape in "${made[@]}"; do make_model "$shape"; done &
  maker=$!
fi
if [ -n "${wanted[memcheck]:-}" ]; then sanitize sanitizer-memcheck 200 memcheck gpu_ops_test "$few"; fi
if [ -n "${wanted[tests]:-}" ]; then
  LINES_SHOWN=0 step list-tests 60 "$bin/gpu_ops_test" --gtest_list_tests
  tests=''
  if [[ $(cat "$out/list-tests.end") == 0\ * ]]; then
    # The longest come first.
    tests=$(awk '/^[^ ]/ {suite = $1} /^ / {print ($1 ~ /^AttentionIs/ ? 0 : 1), suite $1}' "$out/list-tests.txt" |
      sort -s -k1,1 | cut -d' ' -f2)
    [ -n "$tests" ] || { echo "== list-tests: there are none" | tell; failed+=(list-tests); }
  fi
  for test in $tests; do
    beside "ops-${test#*.}" 300 "$bin/gpu_ops_test" --gtest_filter="$test"
  done
fi
together
models_are_made

if [ -n "${wanted[goals]:-}" ]; then
  goals
  figures
fi
if [ -n "${wanted[ops]:-}" ]; then
  LINES_SHOWN=60 step ops_bench 300 "$bin/ops_bench" --json="$out/ops_bench.json"
  # A step that was ended has not printed this itself.
  [[ $(cat "$out/ops_bench.end") =~ ^(0|1|none)\  ]] || echo '{"failed": true}' >>"$out/ops_bench.json"
  LINES_SHOWN=2 step ops_bench-no-pdl-chains 30 "$bin/ops_bench" --cuda_experiments=no_pdl --only=chains \
    --json="$out/ops_bench-no-pdl-chains.json"
  LINES_SHOWN=20 step ops_bench-no-wgmma-prefill 60 "$bin/ops_bench" --cuda_experiments=no_wgmma_prefill --only=prefill \
    --json="$out/ops_bench-no-wgmma-prefill.json"
fi
if [ -n "${wanted[hf]:-}" ]; then
  step python 120 "${as_found[@]}" HF_HUB_OFFLINE=1 python3 -c \
    'import torch, transformers; print(torch.__version__, transformers.__version__, torch.cuda.is_available())'
  if [[ $(cat "$out/python.end") == 0\ * ]]; then
    for shape in ${wanted[hf]}; do
      need_model hf "$shape" || continue
      LINES_SHOWN=4 step "hf-$shape" 180 "${as_found[@]}" HF_HUB_OFFLINE=1 \
        CONTINUO_LIBRARIES="$LD_LIBRARY_PATH" python3 tests/gpu/hf_scores.py "$bin/score_tokens" \
        "$(model_of "$shape")" --json="$out/hf-$shape.json"
    done
  fi
fi
if [ -n "${wanted[sanitize]:-}" ]; then
  for tool in racecheck initcheck synccheck; do
    sanitize "sanitizer-$tool" 200 "$tool" gpu_ops_test "$few"
  done
  sanitize sanitizer-memcheck-model 200 memcheck gpu_model_test '*EveryFamily*'
  together
fi
for shape in ${wanted[serve]:-}; do
  need_model serve "$shape" || continue
  serve "serve-$shape-off" "$shape" off "1 16 64 256"
  serve "serve-$shape-lookup" "$shape" lookup "1 64"
done
# The cost of --deterministic: runs with and without it in turn, twice.
for shape in ${wanted[variants]:-}; do
  need_model variants "$shape" || continue
  for n in 1 2; do
    step_bench "price-$shape-$n-as-is" "$shape" --decode=1,16,64 --prefill=512
    step_bench "price-$shape-$n-deterministic" "$shape" --decode=1,16,64 --prefill=512 --deterministic=1
  done
  serve "price-$shape-as-is" "$shape" off "64"
  serve "price-$shape-deterministic" "$shape" off "64" --deterministic
done
if [ -n "${wanted[variants]:-}" ]; then
  for group in products decode prefill; do
    LINES_SHOWN=7 step "ops_bench-deterministic-$group" 60 "$bin/ops_bench" --deterministic \
      --only="$group" --json="$out/ops_bench-deterministic-$group.json"
  done
fi
for shape in ${wanted[variants]:-}; do
  has_model "$shape" || continue
  for weights in fp16 int4; do step_bench "step-$shape-$weights" "$shape" --weights="$weights"; done
  [ -z "$hopper" ] || step_bench "step-$shape-fp8-fast" "$shape" --weights=fp8 --fp8_fast_accumulation=1
done
for shape in ${wanted[steps]:-}; do
  need_model steps "$shape" || continue
  step_bench "step-$shape" "$shape"
  few_works=(--decode=1,64 --prefill=512)
  step_bench "step-$shape-no-pdl" "$shape" "${few_works[@]}" --cuda_experiments=no_pdl
  step_bench "step-$shape-no-wgmma-prefill" "$shape" "${few_works[@]}" --cuda_experiments=no_wgmma_prefill
  for weights in $hopper int8; do
    step_bench "step-$shape-$weights" "$shape" "${few_works[@]}" --weights="$weights"
  done
  for kv in fp8 int8; do step_bench "step-$shape-kv-$kv" "$shape" "${few_works[@]}" --kv_dtype="$kv"; done
done
if [ -n "${wanted[ranks]:-}" ]; then
  num_devices=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true)
  if [ "$num_devices" -lt 2 ]; then
    echo "== ranks: one device: not run" | tell
  else
    for test in gpu_nccl_test gpu_model_test; do step "ranks-$test" 120 "$bin/$test"; done
    for shape in ${wanted[ranks]}; do
      need_model ranks "$shape" || continue
      for n in 2 4; do
        [ "$n" -le "$num_devices" ] || continue
        device=cuda:$(seq -s, 0 $((n - 1)))
        step_bench "ranks-$n-$shape" "$shape"
        serve "ranks-$n-serve-$shape" "$shape" off "1 64 256"
      done
      device=cuda:0
    done
  fi
fi
if [ -n "${wanted[xid]:-}" ]; then step gpu_xid_test 60 "$bin/gpu_xid_test"; fi

if [ -n "${wanted[goals]:-}${wanted[ops]:-}${wanted[variants]:-}${wanted[steps]:-}" ]; then figures; fi
echo "== the end, after $SECONDS s; failed: ${failed[*]:-none}; left out: ${left_out[*]:-none}" | tell
publish
[ ${#failed[@]} = 0 ] || exit 1
[ ${#left_out[@]} = 0 ] || exit 2
