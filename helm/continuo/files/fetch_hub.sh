# SPDX-License-Identifier: Apache-2.0
# Fetches a model from $HUB (a Hugging Face hub): $REPOSITORY at $REVISION, with $HUB_TOKEN where one is
# needed. Runs in busybox' sh with curl. Each commit has a folder of its own beside $TARGET, which is a
# link to the last one that is whole: where a branch moves on, nobody sees files of two commits.
#
# One pod at a time fetches what several share: the others wait at a lock, which the kernel or the file
# server opens when its pod is gone, and find the files. $STREAMS connections fetch at a time, large files
# in pieces of $PIECE bytes. What is complete stays and the rest goes on after a restart; a file is seen
# under its name only when it is whole and its digest is right. Digests are computed beside the downloads,
# one file per stream, of what was just written.
# No two dollar signs in a row: Kubernetes makes one of them in an argument.
set -eu
trap 'exit 143' TERM
: "${STREAMS:=8}" "${PIECE:=134217728}"

fetch() { # fetch URL CURL_OPTIONS...
  url=$1; shift
  {
    echo "url = \"$url\""
    # Not as an argument, which others can see.
    [ -z "${HUB_TOKEN:-}" ] || echo "header = \"authorization: Bearer $HUB_TOKEN\""
  } | curl --config - --fail --silent --show-error --location --connect-timeout 20 \
    --speed-limit 1 --speed-time 60 "$@"
}

is() { # is FILE DIGEST SIZE
  [ -f "$1" ] || return 1
  case $2 in
    sha256:*) [ "$2" = "sha256:$(sha256sum <"$1" | cut -d' ' -f1)" ] ;;
    git:*) [ "$2" = "git:$({ printf 'blob %s\0' "$3"; cat "$1"; } | sha1sum | cut -d' ' -f1)" ] ;;
    *) return 1 ;;
  esac
}

show() { # $folder, from one moment to the next
  ln -sfn "$(basename "$folder")" "$TARGET.new$own"
  mv -T "$TARGET.new$own" "$TARGET"
}

in_parallel() { # in_parallel LIST FUNCTION: called with the words of each line, $STREAMS lines at a time
  mkdir "$state/$2"
  streams=
  for stream in $(seq "$STREAMS"); do
    (
      number=0
      while read -r line; do
        number=$((number + 1))
        [ ! -e "$state/failed" ] || exit 1
        # The stream that makes the file takes the line. The shell makes it, not a program, since
        # every stream looks at every line.
        set -C
        { true >"$state/$2/$number"; } 2>/dev/null || { set +C; continue; }
        set +C
        "$2" $line </dev/null || { touch "$state/failed"; exit 1; }
      done <"$1"
    ) &
    streams="$streams $!"
  done
  for stream in $streams; do wait "$stream" || failed=1; done
  [ -z "${failed:-}" ]
}

plan() { # plan NAME DIGEST SIZE: writes the pieces that the file is fetched in, unless it is there
  ! is "$folder/$1" "$2" "$3" || return 0
  # As it is in the commit before.
  if is "$before/$1" "$2" "$3"; then
    ln "$before/$1" "$folder/$1" 2>/dev/null || :
    # A file with the right hash counts, whoever has put it there.
    ! is "$folder/$1" "$2" "$3" || return 0
  fi
  echo "fetching $1, $3 bytes"
  piece=$3
  # Pieces need a hub that knows ranges.
  if [ "$3" -gt "$PIECE" ]; then
    # The body of a redirection counts, too, so that a limit of one byte would be too low.
    code=0
    answer=$(fetch "$HUB/$REPOSITORY/resolve/$commit/$1" --retry 8 --range 0-0 --max-filesize "$PIECE" \
      --output /dev/null --write-out '%{http_code}' 2>"$state/said.$1") || code=$?
    case $code:$answer in
      0:206) piece=$PIECE ;;
      0:200 | 63:*) ;; # more than was asked for
      *) cat "$state/said.$1" >&2; return 1 ;;
    esac
  fi
  begin=0
  while
    end=$((begin + piece))
    [ "$end" -lt "$3" ] || end=$3
    echo "$1 $2 $3 $piece $begin $end"
    begin=$end
    [ "$begin" -lt "$3" ]
  do :; done >"$state/plans/$1"
}

bring() { # bring NAME DIGEST SIZE PIECE BEGIN END: fetches a piece; the last one ends the file
  part=$folder/.$1.part$own
  if [ "$4" = "$3" ]; then
    whole "$1" || return 1
  elif ! [ -e "$part.$5-$6" ]; then
    range "$1" "$5" "$6" || return 1
    touch "$part.$5-$6"
  fi
  while read -r _ _ _ _ begin end; do
    [ "$4" = "$3" ] || [ -e "$part.$begin-$end" ] || return 0
  done <"$state/plans/$1"
  mkdir "$state/ended.$1" 2>/dev/null || return 0 # by the stream of another piece
  if [ "$2" != - ] && ! is "$part" "$2" "$3"; then
    rm -f "$part" "$part".*
    echo "$1 is not what $HUB says that it is" >&2
    return 1
  fi
  mv "$part" "$folder/$1" && rm -f "$part".* && echo "$1 is there"
}

whole() { # whole NAME: into $part, on from where it ends
  tries=2 # the second time from the beginning
  while [ "$tries" -gt 0 ]; do
    code=0
    fetch "$HUB/$REPOSITORY/resolve/$commit/$1" --retry 8 --retry-connrefused --continue-at - \
      --output "$part" || code=$?
    case $code in
      0) return 0 ;;
      # Refused, as where nothing is left to fetch or the hub knows no ranges: what is there is of no use.
      22 | 33) [ -e "$part" ] || return 1; rm -f "$part" ;;
      *) return 1 ;;
    esac
    tries=$((tries - 1))
  done
  return 1
}

range() { # range NAME BEGIN END: into $part, from BEGIN on, which is a multiple of 1 MiB, up to END
  next=$2 failures=0 said=$(mktemp "$state/said.XXXXXX")
  while [ "$next" -lt "$3" ]; do
    next=$((next / 1048576 * 1048576)) # dd seeks by blocks
    # dd is done when all that came is on the volume.
    { fetch "$HUB/$REPOSITORY/resolve/$commit/$1" --range "$next-$(($3 - 1))" \
      --write-out '%{stderr}\n%{size_download}' 2>"$said" || :; } | head -c $(($3 - next)) |
      dd of="$part" bs=1048576 seek=$((next / 1048576)) conv=notrunc,fsync 2>"$said.dd" ||
      { cat "$said.dd" >&2; return 1; }
    got=$(tail -n 1 "$said")
    case $got in '' | *[!0-9]*) got=0 ;; esac
    next=$((next + got))
    [ "$next" -lt "$3" ] || break
    [ "$got" -lt 1048576 ] || failures=0
    failures=$((failures + 1))
    sed '$d' "$said" >&2
    [ "$failures" -lt 8 ] || return 1
    sleep $((failures * failures))
  done
  [ "$next" -eq "$3" ] || { echo "$HUB sends more of $1 than it was asked for" >&2; return 1; }
}

listing=$(fetch "$HUB/api/models/$REPOSITORY/revision/$REVISION?blobs=true" --retry 8 --retry-connrefused |
  tr -d '\n' | sed 's/" *: */":/g')
commit=$(printf '%s' "$listing" | sed -n 's/.*"sha":"\([0-9a-f]\{40\}\)".*/\1/p')
[ -n "$commit" ] || { echo "$HUB did not tell a commit of $REPOSITORY at $REVISION" >&2; exit 1; }
folder=$TARGET@$commit
mkdir -p "$folder"

own='' # what is added to the names of a pod's own files
exec 9>"$TARGET.lock"
if ! flock -n 9; then
  waiting=
  trap '[ -z "$waiting" ] || kill "$waiting"; exit 143' TERM
  echo "waiting for another pod that fetches $REPOSITORY"
  flock 9 & waiting=$!
  wait "$waiting" || { own=.$(hostname); echo "the volume has no locks: each pod fetches for itself" >&2; }
  trap 'exit 143' TERM
fi
if [ -e "$folder/.complete" ]; then
  echo "$REPOSITORY@$commit is there"
  show
  exit 0
fi
before=$(readlink -f "$TARGET" || echo "$TARGET")  # a pod of another revision may move the link meanwhile
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
mkdir "$state/plans"

# NAME DIGEST-OR-- SIZE a line, of the files beside config.json that a worker reads. A name that could
# leave the folder is none of them.
printf '%s' "$listing" | awk '{
  n = split($0, file, /"rfilename":"/)
  for (i = 2; i <= n; i++) {
    name = file[i]; sub(/".*/, "", name)
    if (name !~ /^[A-Za-z0-9_][A-Za-z0-9._-]*$/) continue
    if (name !~ /\.(json|safetensors|jinja|txt|model|tiktoken)$/) continue
    digest = "-"; size = 0
    if (match(file[i], /"size":[0-9]+/)) size = substr(file[i], RSTART + 7, RLENGTH - 7)
    if (size && match(file[i], /"blobId":"[0-9a-f]+"/)) digest = "git:" substr(file[i], RSTART + 10, RLENGTH - 11)
    if (match(file[i], /"sha256":"[0-9a-f]+"/)) digest = "sha256:" substr(file[i], RSTART + 10, RLENGTH - 11)
    print name, digest, size
  }
}' >"$state/files"
grep -q '^config.json ' "$state/files" || { echo "$REPOSITORY has no config.json" >&2; exit 1; }

in_parallel "$state/files" plan
# Files in the order of the listing, small ones among large ones.
while read -r name _; do
  [ ! -e "$state/plans/$name" ] || cat "$state/plans/$name"
done <"$state/files" >"$state/pieces"
in_parallel "$state/pieces" bring
# What pods left that have ended.
[ -n "$own" ] || rm -f "$folder"/.*.part "$folder"/.*.part.* "$folder"/.files.*
echo "$REPOSITORY@$commit" >"$folder/.complete"
show
