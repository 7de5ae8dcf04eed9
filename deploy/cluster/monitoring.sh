#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prometheus, prometheus-adapter with the rules of deploy/monitoring, and metrics-server in the cluster.
. "$(dirname "$0")/env.sh"
for program in prometheus prometheus-adapter metrics-server; do
  "$here/scratch_image.sh" localhost/$program:1 "$BIN/$program"
done
kubectl create namespace monitoring --dry-run=client -o yaml | kubectl apply -f - >/dev/null
kubectl -n monitoring create configmap config --from-file="$here/manifests/prometheus.yml" \
  --from-file=adapter.yaml="$here/../monitoring/prometheus-adapter.yaml" --dry-run=client -o yaml |
  kubectl apply -f - >/dev/null
kubectl apply -f "$here/manifests/monitoring.yaml" -f "$here/manifests/metrics-server.yaml" >/dev/null
kubectl -n monitoring rollout status deployment/prometheus --timeout=90s
kubectl -n kube-system rollout status deployment/metrics-server --timeout=90s
