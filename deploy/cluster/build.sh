#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds what the cluster runs from the Go module proxy: Kubernetes, etcd, CoreDNS, Helm, Prometheus
# and its adapter, metrics-server, KEDA, the endpoint picker, and the sandbox program. What is there in the
# wanted version stays. About twenty minutes on two cores with empty caches, much of it for KEDA.
. "$(dirname "$0")/env.sh"
command -v go >/dev/null || { echo "go is missing: scripts/setup.sh --cluster" >&2; exit 1; }
export CGO_ENABLED=0 GOFLAGS="-trimpath -p=2 -buildvcs=false -mod=mod" GOTOOLCHAIN=local

# wanted PROGRAM VERSION: whether it is yet to be built; enters the folder to build it in.
wanted() {
  [ "$(cat "$BIN/.$1.version" 2>/dev/null)" != "$2" ] || return 1
  echo "cluster: building $1 $2"
  mkdir -p "$SRC/$1"
  cd "$SRC/$1"
  rm -f go.mod go.sum
}
built() { echo "$2" >"$BIN/.$1.version"; }

# module REQUIRE...: a wrapper module in this folder. `go install` refuses modules with `replace`,
# and the proxy lists no versions of some.
module() {
  printf 'module local/wrapper\n\ngo 1.24.0\n\n' >go.mod
  printf 'require %s\n' "$@" >>go.mod
}
# build OUTPUT PACKAGE [LDFLAGS]
build() { nice -n 10 go build -ldflags "-s -w ${3:-}" -o "$BIN/$1" "$2" 2>"$LOG/build-$1.log" || { tail -20 "$LOG/build-$1.log"; exit 1; }; }
go_mod_of() { (cd / && go mod download -json "$1") | sed -n 's/.*"GoMod": "\(.*\)",/\1/p'; }

for program in kubectl kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy; do
  wanted $program "$K8S_VERSION" || continue
  # The staging modules are required as v0.0.0 with a replace by folder; that of a dependency is
  # ignored, so it is repeated here by version. Kubernetes' go line and GODEBUG default stay.
  go_mod=$(go_mod_of "k8s.io/kubernetes@v$K8S_VERSION")
  {
    printf 'module local/kubernetes\n\n'
    grep -E '^(go|godebug) ' "$go_mod"
    printf '\nrequire k8s.io/kubernetes v%s\n\nreplace (\n' "$K8S_VERSION"
    awk -v version="v0.${K8S_VERSION#1.}" \
      '$2 == "=>" && $3 ~ /^\.\/staging\// {print "\t" $1 " => " $1 " " version}' "$go_mod"
    echo ')'
  } >go.mod
  flags=
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=v$K8S_VERSION -X $package.gitMajor=1 -X $package.gitMinor=$(echo "$K8S_VERSION" | cut -d. -f2)"
    flags+=" -X $package.gitTreeState=clean -X $package.gitCommit=proxy -X $package.buildDate=1970-01-01T00:00:00Z"
  done
  build $program k8s.io/kubernetes/cmd/$program "$flags"
  built $program "$K8S_VERSION"
done
if wanted etcd "$ETCD_VERSION"; then
  module "go.etcd.io/etcd/server/v3 v$ETCD_VERSION"
  build etcd go.etcd.io/etcd/server/v3
  built etcd "$ETCD_VERSION"
fi
if wanted coredns "$COREDNS_VERSION"; then
  module "github.com/coredns/coredns v$COREDNS_VERSION"
  build coredns github.com/coredns/coredns
  built coredns "$COREDNS_VERSION"
fi
if wanted helm "$HELM_VERSION"; then
  module "helm.sh/helm/v3 v$HELM_VERSION"
  build helm helm.sh/helm/v3/cmd/helm
  built helm "$HELM_VERSION"
fi
if wanted prometheus "$PROMETHEUS_VERSION"; then  # Debian's is built without kubernetes_sd_configs
  go_mod=$(go_mod_of "github.com/prometheus/prometheus@v$PROMETHEUS_VERSION")
  module "github.com/prometheus/prometheus v$PROMETHEUS_VERSION"
  { echo 'replace ('; grep -E '^\s*(replace )?k8s.io/klog\S* .*=>' "$go_mod" | sed 's/replace //'; echo ')'; } >>go.mod
  GOFLAGS="$GOFLAGS -tags=netgo" build prometheus github.com/prometheus/prometheus/cmd/prometheus
  built prometheus "$PROMETHEUS_VERSION"
fi
if wanted prometheus-adapter "$PROMETHEUS_ADAPTER_VERSION"; then
  module "sigs.k8s.io/prometheus-adapter v$PROMETHEUS_ADAPTER_VERSION"
  build prometheus-adapter sigs.k8s.io/prometheus-adapter/cmd/adapter
  built prometheus-adapter "$PROMETHEUS_ADAPTER_VERSION"
fi
if wanted metrics-server "$METRICS_SERVER_VERSION"; then
  module "sigs.k8s.io/metrics-server v$METRICS_SERVER_VERSION"
  build metrics-server sigs.k8s.io/metrics-server/cmd/metrics-server
  built metrics-server "$METRICS_SERVER_VERSION"
fi
if wanted epp "$EPP_VERSION"; then
  module "sigs.k8s.io/gateway-api-inference-extension v$EPP_VERSION"
  build epp sigs.k8s.io/gateway-api-inference-extension/cmd/epp
  built epp "$EPP_VERSION"
fi
# Envoy's messages, by which the test speaks to the picker as a proxy does; made by the grpcio that reads them.
xds_protos=$("$here/../../build/venv/bin/python" -c 'import grpc; print(grpc.__version__)')
if wanted xds-protos "$xds_protos"; then
  "$here/../../build/venv/bin/pip" install -q --disable-pip-version-check --no-deps --upgrade \
    --target "$K8S_ROOT/python" "xds-protos==$xds_protos"
  built xds-protos "$xds_protos"
fi
for program in operator adapter; do
  wanted keda-$program "$KEDA_VERSION" || continue
  go_mod=$(go_mod_of "github.com/kedacore/keda/v2@v$KEDA_VERSION")
  {
    printf 'module local/keda\n\n'
    grep -E '^go ' "$go_mod"
    printf '\nrequire github.com/kedacore/keda/v2 v%s\n\n' "$KEDA_VERSION"
    sed -n '/^replace (/,/^)/p' "$go_mod"
  } >go.mod
  build keda-$program github.com/kedacore/keda/v2/cmd/$program
  built keda-$program "$KEDA_VERSION"
done
if wanted pause 1; then
  cc -Os -static -s -o "$BIN/pause" "$here/pause.c"
  built pause 1
fi
