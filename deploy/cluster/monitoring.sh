#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prometheus and prometheus-adapter in the cluster, the latter with the rules of deploy/monitoring.
. "$(dirname "$0")/env.sh"
for program in prometheus prometheus-adapter; do
  "$here/scratch_image.sh" localhost/$program:1 "$BIN/$program"
done
kubectl create namespace monitoring --dry-run=client -o yaml | kubectl apply -f - >/dev/null
kubectl -n monitoring create configmap config --from-file="$here/manifests/prometheus.yml" \
  --from-file=adapter.yaml="$here/../monitoring/prometheus-adapter.yaml" --dry-run=client -o yaml |
  kubectl apply -f - >/dev/null
kubectl apply -f "$here/manifests/monitoring.yaml" >/dev/null
kubectl -n monitoring rollout status deployment/prometheus --timeout=90s
