#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what tests/helm and tests/monitoring use into build/tools/bin: helm, kubeconform and
# helm-unittest built from their Go modules, prometheus, promtool and docker-registry out of Debian's
# packages, without their services. Safe to run again: what is there in the pinned version stays.
set -euo pipefail
cd "$(dirname "$0")/.."

HELM=v3.19.5
KUBECONFORM=v0.7.0
UNITTEST=v1.1.2

pinned="helm $HELM, kubeconform $KUBECONFORM, helm-unittest $UNITTEST, Prometheus, docker-registry"
[ "$(cat build/tools/installed.txt 2>/dev/null)" != "$pinned" ] || exit 0
echo "setup: $pinned"
mkdir -p build/tools/bin build/tools/src
tools=$PWD/build/tools

rm -rf "$tools/src/debian"
mkdir "$tools/src/debian"
download() { apt-get -qq -o APT::Sandbox::User=root download prometheus docker-registry; }
(cd "$tools/src/debian" && { download 2>/dev/null || { apt-get -qq update && download; }; } &&
  for package in *.deb; do dpkg-deb -x "$package" .; done &&
  cp usr/bin/prometheus usr/bin/promtool usr/bin/docker-registry "$tools/bin")

. scripts/go_toolchain.sh
export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false -mod=mod -modcacherw"
# Modules fetched, not what they fetch: only errors are of interest.
quiet() { { "$@" 2>&1 >&3 | { grep -vE '^go: (downloading|finding|found|added)' >&2 || true; }; } 3>&1; }

export GOBIN=$tools/bin
# The linker sets what helm's own release sets: its version, and the Kubernetes that it assumes offline.
helm=helm.sh/helm/v3
quiet "$go" install -ldflags "-s -w -X $helm/internal/version.version=$HELM
  -X $helm/pkg/lint/rules.k8sVersionMajor=1 -X $helm/pkg/lint/rules.k8sVersionMinor=34
  -X $helm/pkg/chartutil.k8sVersionMajor=1 -X $helm/pkg/chartutil.k8sVersionMinor=34" "$helm/cmd/helm@$HELM"
quiet "$go" install -ldflags "-s -w" "github.com/yannh/kubeconform/cmd/kubeconform@$KUBECONFORM"
# `go install` refuses a module that replaces others; a module of our own repeats the replacement.
mkdir -p "$tools/src/helm-unittest"
cat >"$tools/src/helm-unittest/go.mod" <<END
module local/helm-unittest

go 1.26.0

require github.com/helm-unittest/helm-unittest $UNITTEST

replace github.com/vmware-labs/yaml-jsonpath v0.3.2 => github.com/helm-unittest/yaml-jsonpath v0.4.0
END
(cd "$tools/src/helm-unittest" &&
  quiet "$go" build -ldflags "-s -w" -o "$tools/bin/helm-unittest" \
    github.com/helm-unittest/helm-unittest/cmd/helm-unittest)
rm -rf "$tools/src"
echo "$pinned" >"$tools/installed.txt"
