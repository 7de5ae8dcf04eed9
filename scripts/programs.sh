# SPDX-License-Identifier: Apache-2.0
# Sourced by scripts that run Continuo's programs. What was started is stopped when the script ends.

programs=()

# start_program LOG PROGRAM FLAGS...: runs it in the background, its standard error in the file LOG.
# Returns once it says where it listens, with that in $address; or 1, and tells LOG, once it has ended,
# or has been quiet for $start_seconds (default 60), without saying so.
start_program() {
  local log=$1 line= fifo said
  shift
  fifo=$(mktemp -u)
  mkfifo -m 600 "$fifo" || return 1
  "$@" 2>"$fifo" &
  programs+=($!)
  exec {said}<"$fifo"
  rm "$fifo"
  address=
  : >"$log"
  while [ -z "$address" ] && IFS= read -r -t "${start_seconds:-60}" -u "$said" line; do
    printf '%s\n' "$line" >>"$log"
    [[ $line != *'"message":"listening"'* ]] ||
      address=$(sed -nE 's/.*"address":"([^"]+)".*/\1/p' <<<"$line")
  done
  [ -n "$address" ] || printf '%s' "$line" >>"$log"  # a last line without an end
  cat <&"$said" >>"$log" &  # ends with the program
  exec {said}<&-
  [ -z "$address" ] || return 0
  echo "$(basename "$1") did not start:" >&2
  cat "$log" >&2
  return 1
}

# stop_programs: asks all to end and waits until they have.
stop_programs() {
  local program
  for program in "${programs[@]}"; do kill -TERM "$program" 2>/dev/null || true; done
  for program in "${programs[@]}"; do wait "$program" 2>/dev/null || true; done
  programs=()
}
trap stop_programs EXIT
