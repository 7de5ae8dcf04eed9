#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# KEDA in the cluster: its operator and its metrics server, with the definitions, roles and Services of
# its Go module.
. "$(dirname "$0")/env.sh"
module=$(cd / && go mod download -json "github.com/kedacore/keda/v2@v$KEDA_VERSION" | jq -r .Dir)/config
kubectl create namespace keda --dry-run=client -o yaml | kubectl apply -f - >/dev/null
kubectl apply --server-side -f "$module/crd/bases" >/dev/null
kubectl wait --for=condition=Established crd --all --timeout=60s >/dev/null
kubectl apply -f "$module/service_account/service_account.yaml" -f "$module/rbac/role.yaml" \
  -f "$module/rbac/role_binding.yaml" -f "$module/manager/service.yaml" \
  -f "$module/metrics-server/role.yaml" -f "$module/metrics-server/role_binding.yaml" \
  -f "$module/metrics-server/service.yaml" >/dev/null
# The two know each other by one certificate, which is its own authority.
if ! kubectl -n keda get secret kedaorg-certs >/dev/null 2>&1; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=keda -days 3650 \
    -addext "subjectAltName=DNS:keda-operator.keda.svc,DNS:keda-operator.keda.svc.cluster.local,DNS:keda-metrics-apiserver.keda.svc" \
    -keyout "$work/tls.key" -out "$work/tls.crt" 2>/dev/null
  cp "$work/tls.crt" "$work/ca.crt"
  kubectl -n keda create secret generic kedaorg-certs --from-file="$work" >/dev/null
fi
sed "s|PROGRAMS|$BIN|" "$here/manifests/keda.yaml" | kubectl apply -f - >/dev/null
kubectl -n keda rollout status deployment/keda-operator --timeout=90s
kubectl -n keda rollout status deployment/keda-metrics-apiserver --timeout=90s
