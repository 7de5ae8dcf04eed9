#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A Kubernetes cluster on this machine: control plane, two nodes (or as many as given, at most
# four), CoreDNS. Builds first what is not there yet. down.sh ends it. With CONTINUO_CLUSTER_FAMILY=ipv6
# nodes, pods and Services have IPv6 addresses alone.
#
#   deploy/cluster/up.sh [NODES]
. "$(dirname "$0")/env.sh"
for program in containerd ctr runc iptables conntrack jq openssl; do
  command -v $program >/dev/null || { echo "$program is missing: scripts/setup.sh --cluster" >&2; exit 1; }
done
if [ -f "$RUN/family" ] && [ "$(cat "$RUN/family")" != "$CONTINUO_CLUSTER_FAMILY" ]; then
  echo "a cluster of $(cat "$RUN/family") is up: deploy/cluster/down.sh" >&2
  exit 1
fi
"$here/build.sh"
"$here/pki.sh"
echo "$CONTINUO_CLUSTER_FAMILY" >"$RUN/family"
"$here/network.sh" 1
node_vars 1
# The kubelet changes these for the whole machine; down.sh puts them back.
[ -f "$RUN/sysctl.saved" ] ||
  sysctl kernel.panic kernel.panic_on_oops vm.overcommit_memory >"$RUN/sysctl.saved"
loopback=$(in_url $LOOPBACK)
start etcd "$BIN/etcd" --name n1 --data-dir "$RUN/etcd" --unsafe-no-fsync \
  --listen-client-urls "http://$loopback:2379" --advertise-client-urls "http://$loopback:2379" \
  --listen-peer-urls "http://$loopback:2380" --initial-advertise-peer-urls "http://$loopback:2380" \
  --initial-cluster "n1=http://$loopback:2380"
start kube-apiserver "$BIN/kube-apiserver" --etcd-servers="http://$loopback:2379" \
  --advertise-address="$API_IP" --bind-address=$EVERYWHERE --secure-port=6443 \
  --service-cluster-ip-range=$SERVICE_NET --allow-privileged=true --authorization-mode=Node,RBAC \
  --enable-admission-plugins=NodeRestriction --client-ca-file="$PKI/ca.crt" \
  --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" \
  --kubelet-client-certificate="$PKI/apiserver-kubelet-client.crt" \
  --kubelet-client-key="$PKI/apiserver-kubelet-client.key" \
  --kubelet-certificate-authority="$PKI/ca.crt" --kubelet-preferred-address-types=InternalIP \
  --service-account-issuer=https://kubernetes.default.svc.cluster.local \
  --service-account-key-file="$PKI/sa.pub" --service-account-signing-key-file="$PKI/sa.key" \
  --requestheader-client-ca-file="$PKI/front-proxy-ca.crt" \
  --requestheader-allowed-names=front-proxy-client --requestheader-username-headers=X-Remote-User \
  --requestheader-group-headers=X-Remote-Group --requestheader-extra-headers-prefix=X-Remote-Extra- \
  --proxy-client-cert-file="$PKI/front-proxy-client.crt" \
  --proxy-client-key-file="$PKI/front-proxy-client.key"
wait_for 60 "the API server" "$BIN/kubectl" get --raw /readyz
# An HPA's decisions are taken more often than by default, for the tests' sake.
start kube-controller-manager "$BIN/kube-controller-manager" \
  --kubeconfig="$PKI/controller-manager.conf" \
  --authentication-kubeconfig="$PKI/controller-manager.conf" \
  --authorization-kubeconfig="$PKI/controller-manager.conf" \
  --cluster-cidr=$POD_NET --service-cluster-ip-range=$SERVICE_NET --root-ca-file="$PKI/ca.crt" \
  --service-account-private-key-file="$PKI/sa.key" --use-service-account-credentials=true \
  --cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key" \
  --requestheader-client-ca-file="$PKI/front-proxy-ca.crt" --leader-elect=false \
  --bind-address=$LOOPBACK --horizontal-pod-autoscaler-sync-period=5s
start kube-scheduler "$BIN/kube-scheduler" --kubeconfig="$PKI/scheduler.conf" \
  --authentication-kubeconfig="$PKI/scheduler.conf" \
  --authorization-kubeconfig="$PKI/scheduler.conf" --leader-elect=false --bind-address=$LOOPBACK
for n in $(seq "${1:-2}"); do "$here/node.sh" "$n"; done
"$here/scratch_image.sh" localhost/coredns:1 "$BIN/coredns"
sed "s/DNS_IP/$DNS_IP/" "$here/manifests/coredns.yaml" | kubectl apply -f - >/dev/null
kubectl -n kube-system rollout status deployment/coredns --timeout=90s >/dev/null
kubectl get nodes -o wide
