#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the commands of README.md's first section, as they are written there, then cluster_test.py on
# what they made, then those of its second section, which take everything away. The same again with the
# commands of the section on IPv6.
#
#   deploy/cluster/test.sh [--family=ipv4|ipv6] [--only=STEP,…] [--keep]
#
# --family brings up one of the two clusters; --only runs some steps of cluster_test.py, on that of IPv4
# where no family is said; --keep leaves the cluster up.
. "$(dirname "$0")/env.sh"
unset CONTINUO_CLUSTER_FAMILY  # the pages' commands say theirs
cd "$here/../.."
keep=0 families= options=()
for argument in "$@"; do
  case $argument in
    --keep) keep=1 ;;
    --family=*) families=${argument#*=} ;;
    *) options+=("$argument") ;;
  esac
done
if [ ! "$families" ]; then
  families="ipv4 ipv6"
  [ ${#options[@]} = 0 ] || families=ipv4
fi
[ "$keep" = 0 ] || [ "$families" != "ipv4 ipv6" ] || { echo "--keep needs --family or --only" >&2; exit 1; }
# commands HEADING: what stands in the fences of that section.
commands() {
  awk -v heading="## $1" '/^## / {in_section = $0 == heading} /^```/ {in_fence = /^```sh$/; next} in_section && in_fence' \
    "$here/README.md"
}
clean_up() { [ "$keep" = 1 ] || bash -ec "$(commands 'And back to zero')"; }
trap clean_up EXIT
page=$(mktemp)
# run_page HEADING: the commands of that section, and what they print, into $page.
run_page() {
  local begin
  begin=$(date +%s)
  bash -euo pipefail -c "BASH_XTRACEFD=1; set -x; $(commands "$1")" | tee "$page"
  echo "page: $(($(date +%s) - begin)) s"
}
# printed COMMAND PATTERN: what the page's command that begins so has printed has the pattern.
printed() {
  awk -v command="+ $1" '/^\+ / {on = index($0, command) == 1; next} on' "$page" | grep -E "$2" >/dev/null ||
    { echo "the page's command got no tokens: $1" >&2; exit 1; }
}
content='"content": ?"[^"]*[[:alnum:]]'
steps() {
  kubectl apply -f "$here/manifests/client.yaml" >/dev/null
  kubectl -n default wait --for=condition=Ready pod/client --timeout=60s >/dev/null
  build/venv/bin/python "$here/cluster_test.py" --tag="$version" "${options[@]}"
}

# Another build of the same sources: its programs tell another version.
version=$(sed -n 's/^project(continuo VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
for family in $families; do
  case $family in
    ipv4)
      run_page 'From zero to tokens on a cluster'
      printed 'kubectl logs ask' '[[:alnum:]]'
      printed 'nsenter --net=/run/netns/kube1 curl' "$content"
      VERSION_SUFFIX=-next deploy/images/build.sh gateway worker-cpu
      deploy/cluster/client_image.sh
      "$here/import.sh" build/images/*.tar
      "$here/monitoring.sh"
      "$here/keda.sh"
      steps ;;
    ipv6)
      [ "$families" != ipv6 ] || deploy/images/build.sh
      deploy/cluster/client_image.sh
      run_page 'A cluster of IPv6 alone'
      printed 'nsenter --net=/run/netns/kube1 curl' "$content"
      "$here/import.sh" build/images/test-client.tar
      steps ;;
    *) echo "--family is ipv4 or ipv6" >&2; exit 1 ;;
  esac
  [ "$family" = "${families##* }" ] || clean_up
done
rm -f "$page"
