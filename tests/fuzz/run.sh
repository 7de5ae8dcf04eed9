#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs fuzz targets one after the other, each until it has made so many executions or used so much
# CPU time, whichever comes first. Prints a table and writes build/bench/fuzz.json. Fails where a
# target found something; what made it fail is then build/fuzz-corpus/TARGET-crash-… or the like.
#
#   tests/fuzz/run.sh [--executions=N] [--cpu_seconds=S] [--slice_seconds=S] [--build=DIR] [--resume]
#                     [TARGET...]
#
# N: default without bound; S: default 60. A target runs in slices of --slice_seconds (default 120)
# of wall-clock time; with --resume what earlier runs with --resume did counts, too. DIR is where
# the fuzz preset was built (default build/fuzz). Without a TARGET: all. What is found on the way
# is kept in build/fuzz-corpus. SIGTERM ends it after the current slice, with the table.
set -euo pipefail
cd "$(dirname "$0")/../.."

hang_seconds=10
executions=0 cpu_seconds=60 slice_seconds=120 build=build/fuzz resume=0 targets=()
for argument in "$@"; do
  case "$argument" in
    --executions=*) executions=${argument#*=} ;;
    --cpu_seconds=*) cpu_seconds=${argument#*=} ;;
    --slice_seconds=*) slice_seconds=${argument#*=} ;;
    --build=*) build=${argument#*=} ;;
    --resume) resume=1 ;;
    -*) sed -n '3,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    *) targets+=("$argument") ;;
  esac
done
if [ ${#targets[@]} = 0 ]; then
  for path in "$build"/fuzz/*_fuzz; do targets+=("$(basename "$path")"); done
fi

# Inputs beyond this say nothing new and are slow.
max_len() {
  case "$1" in
    text_tokenizer_json_fuzz | model_*) echo 16384 ;;
    *) echo 4096 ;;
  esac
}

# is_slow TARGET FILE: whether the input, alone, takes $hang_seconds of CPU time. libFuzzer's limit is of
# wall-clock time, which passes while other processes have the cores, too.
is_slow() {
  local TIMEFORMAT='%U %S' used
  used=$({ time "$build/fuzz/$1" -timeout=$((60 * hang_seconds)) "$2" >/dev/null 2>&1; } 2>&1) || return 0
  awk -v most="$hang_seconds" '{exit $1 + $2 < most}' <<<"$used"
}

# slice TARGET SECONDS RUNS: one libFuzzer process; adds to the totals of the target.
slice() {
  local name=$1 corpus=build/fuzz-corpus/$1 log=build/fuzz-corpus/$1.log options=() rc=0 runs slow
  local seeds=("tests/fuzz/corpus/$1")
  [ ! -d "$build/fuzz/grown/$1" ] || seeds+=("$build/fuzz/grown/$1")
  [ ! -e "tests/fuzz/dict/$name.dict" ] || options+=("-dict=tests/fuzz/dict/$name.dict")
  [ "$3" = 0 ] || options+=("-runs=$3")
  TIMEFORMAT='%U %S'
  { time "$build/fuzz/$name" -max_total_time="$2" -max_len="$(max_len "$name")" -timeout=$hang_seconds \
      -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix="$corpus-" "${options[@]}" \
      "$corpus" "${seeds[@]}" >"$log" 2>&1; } 2>"$log.time" || rc=$?
  # Inputs of the corpus that it repeats at its start are no new executions.
  runs=$(awk '/INITED/ {sub("#", "", $1); inited = $1 + 0}
              /^stat::number_of_executed_units/ {done = $2 + 0}
              END {print (done > inited ? done - inited : 0)}' "$log")
  total_runs=$((total_runs + runs))
  total_cpu=$(awk -v cpu="$total_cpu" '{printf "%.1f", cpu + $1 + $2}' "$log.time")
  coverage=$(grep -o 'cov: [0-9]*' "$log" | tail -1 | cut -d' ' -f2 || true)
  if [ "$rc" = 72 ]; then  # interrupted
    stopped=1
  elif [ "$rc" = 70 ] && slow=$(sed -n 's/.*Test unit written to \(.*-timeout-.*\)/\1/p' "$log") && [ -e "$slow" ] &&
    ! is_slow "$name" "$slow"; then
    echo "$name: $slow took 10 s among other processes and little CPU time alone" >&2
  elif [ "$rc" != 0 ]; then
    findings=$((findings + 1))
    echo "$name: finding (exit status $rc), see $log:" >&2
    grep -E 'SUMMARY|artifact_prefix|CHECK' "$log" | cut -c1-300 >&2 || tail -5 "$log" >&2
  fi
  [ $resume = 0 ] || echo "$total_runs $total_cpu $findings ${coverage:-0}" >"$corpus.total"
}

# Allocation stacks matter only once there is a finding, and are then printed in full.
export ASAN_OPTIONS=malloc_context_size=${MALLOC_CONTEXT_SIZE:-2}:${ASAN_OPTIONS:-}
mkdir -p build/fuzz-corpus build/bench
failed=0 rows=() stopped=0
trap 'stopped=1' TERM
for name in "${targets[@]}"; do
  total_runs=0 total_cpu=0 findings=0 coverage=0
  mkdir -p "build/fuzz-corpus/$name"
  if [ $resume = 1 ] && [ -e "build/fuzz-corpus/$name.total" ]; then
    read -r total_runs total_cpu findings coverage <"build/fuzz-corpus/$name.total"
  fi
  before=$findings
  while [ "$findings" = "$before" ] && [ $stopped = 0 ]; do
    left=$(awk -v all="$cpu_seconds" -v cpu="$total_cpu" 'BEGIN {printf "%d", all - cpu + 0.5}')
    left_runs=0
    if [ "$executions" != 0 ]; then
      left_runs=$((executions - total_runs))
      [ "$left_runs" -gt 0 ] || break
    fi
    [ "$left" -gt 0 ] || break
    # libFuzzer counts the corpus that it repeats among its runs: twice the number of files.
    [ "$left_runs" = 0 ] || left_runs=$((left_runs + 2 * $(find "build/fuzz-corpus/$name" | wc -l) + 1000))
    slice "$name" $((left < slice_seconds ? left : slice_seconds)) "$left_runs"
  done
  [ "$findings" = "$before" ] || failed=1
  rows+=("$name $total_runs $total_cpu ${coverage:-0} $findings")
done

{
  printf '{"date": "%s", "commit": "%s", "command": "tests/fuzz/run.sh %s", "targets": [' \
    "$(date -u +%F)" "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" "$*"
  separator=
  for row in "${rows[@]}"; do
    read -r name runs cpu coverage findings <<<"$row"
    printf '%s\n  {"target": "%s", "executions": %d, "cpu_seconds": %s, "coverage": %d, "findings": %d}' \
      "$separator" "$name" "$runs" "$cpu" "$coverage" "$findings"
    separator=,
  done
  printf '\n]}\n'
} >build/bench/fuzz.json
printf '%-26s %12s %8s %8s %8s %8s\n' target executions 'CPU s' 'exec/s' edges findings
for row in "${rows[@]}"; do
  awk '{printf "%-26s %12d %8.0f %8.0f %8d %8d\n", $1, $2, $3, ($3 > 0 ? $2 / $3 : 0), $4, $5}' <<<"$row"
done
exit $failed
