#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts the demo model into the cluster as the claim `models`, folder `demo`, and beside it `other`:
# the same model with other weights.
. "$(dirname "$0")/env.sh"
models=$K8S_ROOT/models
mkdir -p "$models/demo" "$models/other"
cp "$here/../demo-model/"*.json "$here/../demo-model/model.safetensors" "$models/demo/"
cp "$models/demo/"* "$models/other/"
python3 "$here/other_weights.py" "$models/other/model.safetensors"
chmod -R a+rX "$models"
kubectl apply -f "$here/manifests/namespace.yaml" >/dev/null
sed "s|MODELS|$models|" "$here/manifests/models.yaml" | kubectl apply -f - >/dev/null
kubectl -n continuo wait --for=jsonpath='{.status.phase}'=Bound pvc/models --timeout=30s
