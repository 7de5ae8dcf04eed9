#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# seal.sh gives equal bytes for equal files that were made at other times, in other layers and with other labels, and
# other bytes where a file is another one. Its images are small and in a store of their own.
folder=$(mktemp -d)
export IMAGES_ROOT=$folder/images RUNROOT=$folder/run
. "$(dirname "$0")/env.sh"
image=localhost/continuo-seal-test:1
trap 'buildah rm --all >/dev/null; buildah rmi --all --force >/dev/null; rm -rf "$folder"' EXIT
fail() { echo "seal_test.sh: $1" >&2; exit 1; }

make() { # make TIME CONTENT FILES...: an image with a layer for each file
  local time=$1 content=$2 container; shift 2
  buildah rmi -f "$image" >/dev/null 2>&1 || true
  container=$(buildah from scratch)
  buildah commit -q --format oci "$container" "$image" >/dev/null
  buildah rm "$container" >/dev/null
  for file in "$@"; do
    rm -rf "$folder/files"; mkdir -p "$folder/files/folder"
    echo "$content $file" >"$folder/files/folder/$file"
    find "$folder/files" -exec touch -d "$time" {} +
    container=$(buildah from --pull-never "$image")
    buildah copy -q "$container" "$folder/files" / >/dev/null
    buildah config --user 65532 --entrypoint '["/folder/a"]' --label org.opencontainers.image.revision="$time" "$container"
    buildah commit -q --format oci "$container" "$image" >/dev/null
    buildah rm "$container" >/dev/null
  done
}

seal() { SOURCE_DATE_EPOCH=1700000000 deploy/images/seal.sh "$image" 1.0.0 commit "$folder/$1.tar"; }

make 2020-01-01 content a b
first=$(seal first)
make 2021-02-03 content b a
[ "$(seal second)" = "$first" ] || fail "equal files have other digests"
cmp "$folder/first.tar" "$folder/second.tar" || fail "archives of equal images differ"
make 2020-01-01 other a b
[ "$(seal third)" != "$first" ] || fail "other files have the same digest"
config=$(tar xOf "$folder/first.tar" --wildcards 'blobs/sha256/*' | grep -ao '{"created":.*"Labels".*' | head -1)
[[ $config == *'"User":"65532"'*'"org.opencontainers.image.revision":"commit"'* ]] || fail "the image lost its configuration: $config"
echo "seal_test.sh: ok, $first"
