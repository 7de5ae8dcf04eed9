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
page=$(mktemp)
bash -euo pipefail -c "BASH_XTRACEFD=1; set -x; $(commands 'From zero to tokens on a cluster')" | tee "$page"
echo "page: $(($(date +%s) - begin)) s"
# printed COMMAND: what the page's command that begins so has printed.
printed() { awk -v command="+ $1" '/^\+ / {on = index($0, command) == 1; next} on' "$page"; }
printed 'kubectl logs ask' | grep '[[:alnum:]]' >/dev/null || { echo "the page's client in a pod got no tokens" >&2; exit 1; }
printed 'nsenter --net=/run/netns/kube1 curl' | grep -E '"content": ?"[^"]*[[:alnum:]]' >/dev/null ||
  { echo "the page's client outside got no tokens" >&2; exit 1; }
rm -f "$page"

# Another build of the same sources: its programs tell another version.
version=$(sed -n 's/^project(continuo VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
VERSION_SUFFIX=-next deploy/images/build.sh gateway worker-cpu
deploy/cluster/client_image.sh
"$here/import.sh" build/images/*.tar
kubectl apply -f "$here/manifests/client.yaml" >/dev/null
kubectl -n default wait --for=condition=Ready pod/client --timeout=60s >/dev/null
"$here/monitoring.sh"
build/venv/bin/python "$here/cluster_test.py" --tag="$version" "${options[@]}"
