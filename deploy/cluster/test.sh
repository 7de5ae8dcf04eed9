#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the commands of README.md's first section, as they are written there, then cluster_test.py on
# what they made, then those of its second section, which take everything away.
#
#   deploy/cluster/test.sh [--only=STEP,…]    as cluster_test.py; --keep leaves the cluster up
. "$(dirname "$0")/env.sh"
cd "$here/../.."
keep=0 options=()
for argument in "$@"; do
  if [ "$argument" = --keep ]; then keep=1; else options+=("$argument"); fi
done
# commands HEADING: what stands in the fences of that section.
commands() {
  awk -v heading="## $1" '/^## / {in_section = $0 == heading} /^```/ {in_fence = /^```sh$/; next} in_section && in_fence' \
    "$here/README.md"
}
clean_up() { [ "$keep" = 1 ] || bash -ec "$(commands 'And back to zero')"; }
trap clean_up EXIT

begin=$(date +%s)
bash -euxo pipefail -c "$(commands 'From zero to tokens on a cluster')"
echo "page: $(($(date +%s) - begin)) s"

# Another build of the same sources: its programs tell another version.
version=$(sed -n 's/^project(continuo VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
VERSION_SUFFIX=-next deploy/images/build.sh gateway worker-cpu
deploy/cluster/client_image.sh
"$here/import.sh" build/images/*.tar
kubectl apply -f "$here/manifests/client.yaml" >/dev/null
kubectl -n default wait --for=condition=Ready pod/client --timeout=60s >/dev/null
"$here/monitoring.sh"
build/venv/bin/python "$here/cluster_test.py" --tag="$version" "${options[@]}"
