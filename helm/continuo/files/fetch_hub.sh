# SPDX-License-Identifier: Apache-2.0
# Fetches a model from $HUB (a Hugging Face hub): $REPOSITORY at $REVISION, with $HUB_TOKEN where one is
# needed. Runs in busybox' sh with curl. Each commit has a folder of its own beside $TARGET, which is a
# link to the last one that is whole: where a branch moves on, nobody sees files of two commits. What
# is complete stays, what was cut off goes on; a file is seen under its name only when it is whole and
# its digest is right.
# No two dollar signs in a row: Kubernetes makes one of them in an argument.
set -eu

fetch() { # fetch URL CURL_OPTIONS...
  url=$1; shift
  {
    echo "url = \"$url\""
    # Not as an argument, which others can see.
    [ -z "${HUB_TOKEN:-}" ] || echo "header = \"authorization: Bearer $HUB_TOKEN\""
  } | curl --config - --fail --silent --show-error --location --retry 8 --retry-connrefused "$@"
}

is() { # is FILE SHA256
  [ -e "$1" ] && [ "$(sha256sum <"$1" | cut -d' ' -f1)" = "$2" ]
}

show() { # $folder, from one moment to the next
  ln -sfn "$(basename "$folder")" "$TARGET.$(hostname)"
  mv -T "$TARGET.$(hostname)" "$TARGET"
}

listing=$(fetch "$HUB/api/models/$REPOSITORY/revision/$REVISION?blobs=true" | tr -d '\n' | sed 's/" *: */":/g')
commit=$(printf '%s' "$listing" | sed -n 's/.*"sha":"\([0-9a-f]\{40\}\)".*/\1/p')
[ -n "$commit" ] || { echo "$HUB did not tell a commit of $REPOSITORY at $REVISION" >&2; exit 1; }
folder=$TARGET@$commit
if [ -e "$folder/.complete" ]; then
  echo "$REPOSITORY@$commit is there"
  show
  exit 0
fi
mkdir -p "$folder"
files=$folder/.files.$(hostname)
before=$(readlink -f "$TARGET" || echo "$TARGET")  # another pod may move the link meanwhile

# NAME SHA256-OR-- a line, of the files beside config.json that a worker reads. A name that could
# leave the folder is none of them.
printf '%s' "$listing" | awk '{
  n = split($0, file, /"rfilename":"/)
  for (i = 2; i <= n; i++) {
    name = file[i]; sub(/".*/, "", name)
    if (name !~ /^[A-Za-z0-9_][A-Za-z0-9._-]*$/) continue
    if (name !~ /\.(json|safetensors|jinja|txt|model|tiktoken)$/) continue
    sha = "-"
    if (match(file[i], /"sha256":"[0-9a-f]+"/)) sha = substr(file[i], RSTART + 10, RLENGTH - 11)
    print name, sha
  }
}' >"$files"
grep -q '^config.json ' "$files" || { echo "$REPOSITORY has no config.json" >&2; exit 1; }

while read -r name sha; do
  ! is "$folder/$name" "$sha" || continue
  # As it is in the commit before.
  if is "$before/$name" "$sha"; then
    ln "$before/$name" "$folder/$name" || :
    # A file with the right hash counts, whoever has put it there.
    ! is "$folder/$name" "$sha" || continue
  fi
  echo "fetching $name"
  part=$folder/.$name.$(hostname).part
  fetch "$HUB/$REPOSITORY/resolve/$commit/$name" --continue-at - --output "$part" </dev/null || {
    # Refused, as where nothing is left to fetch: what is there is of no use.
    code=$?; [ "$code" != 22 ] || rm -f "$part"; exit "$code"
  }
  if [ "$sha" != - ] && ! is "$part" "$sha"; then
    rm -f "$part"
    echo "$name is not what $HUB says that it is" >&2
    exit 1
  fi
  mv "$part" "$folder/$name"
done <"$files"
rm -f "$files"
echo "$REPOSITORY@$commit" >"$folder/.complete"
show
