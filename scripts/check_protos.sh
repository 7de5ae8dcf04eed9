#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks proto/: style, and that nothing changed that would break clients, gateways and workers that
# were built with the protos of proto/image.binpb. First shows that the check can fail.
set -euo pipefail
cd "$(dirname "$0")/.."
buf=$PWD/build/npm/node_modules/.bin/buf
image=$PWD/proto/image.binpb

changed=$(mktemp -d)
trap 'rm -rf "$changed"' EXIT
cp -r proto/. "$changed"
sed -i 's/string request_id = 1;/string request_id = 999;/' "$changed/continuo/v1/inference.proto"
if cmp -s proto/continuo/v1/inference.proto "$changed/continuo/v1/inference.proto"; then
  echo "check_protos: no field to renumber" >&2
  exit 1
fi
if (cd "$changed" && "$buf" breaking --against "$image" >"$changed/report" 2>&1); then
  echo "check_protos: a renumbered field was not noticed" >&2
  exit 1
fi
grep -q 'field "1" with name "request_id"' "$changed/report" || { cat "$changed/report" >&2; exit 1; }

cd proto
"$buf" lint
"$buf" breaking --against "$image"
