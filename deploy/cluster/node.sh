#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# node.sh N: network, containerd, kubelet and kube-proxy of node N; returns when it is Ready.
. "$(dirname "$0")/env.sh"
"$here/network.sh" "$1"
node_vars "$1"
mkdir -p "$NODE_RUN/cni" "$NODE_RUN/manifests"
: >"$NODE_RUN/resolv.conf"  # nothing outside is reachable
# restrict_oom_score_adj, and oomScoreAdj 0 below: root may lack CAP_SYS_RESOURCE in a container.
cat >"$NODE_RUN/containerd.toml" <<T
version = 2
root = "$CRI_ROOT"
state = "$CRI_STATE"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "$CRI"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$NODE_RUN/cni"
T
cat >"$NODE_RUN/cni/10-bridge.conflist" <<J
{"cniVersion": "1.0.0", "name": "kube", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$NODE_RUN/ipam",
            "ranges": [[{"subnet": "$NODE_CIDR"}]], "routes": [{"dst": "$DEFAULT_ROUTE"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
J
start "containerd$N" containerd --config "$NODE_RUN/containerd.toml"
wait_for 30 containerd ctr -a "$CRI" version
"$here/scratch_image.sh" localhost/pause:1 "$BIN/pause"
# A node's pods are below a cgroup of their own, which every hierarchy of v1 must have.
for hierarchy in /sys/fs/cgroup/*/; do mkdir -p "${hierarchy}kube$N"; done
for file in cpuset.mems cpuset.cpus; do
  cat "/sys/fs/cgroup/cpuset/$file" >"/sys/fs/cgroup/cpuset/kube$N/$file"
done
# Images are never collected: they could not be pulled again.
cat >"$NODE_RUN/kubelet.yaml" <<Y
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://$CRI
cgroupDriver: cgroupfs
cgroupRoot: /kube$N
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
address: "$EVERYWHERE"
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $PKI/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $PKI/kubelet-server$N.crt
tlsPrivateKeyFile: $PKI/kubelet-server$N.key
clusterDNS: ["$DNS_IP"]
clusterDomain: cluster.local
resolvConf: $NODE_RUN/resolv.conf
staticPodPath: $NODE_RUN/manifests
podLogsDir: $LOG/pods$N
volumePluginDir: $NODE_RUN/volumeplugins
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
Y
start "kubelet$N" "$BIN/kubelet" --config="$NODE_RUN/kubelet.yaml" --kubeconfig="$PKI/kubelet$N.conf" \
  --root-dir="$K8S_ROOT/kubelet$N" --cert-dir="$PKI" --hostname-override="$NODE_NAME" --node-ip="$NODE_IP"
# conntrack's limits cannot be written in a network namespace.
cat >"$NODE_RUN/kube-proxy.yaml" <<Y
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clusterCIDR: "$POD_NET"
clientConnection: {kubeconfig: $PKI/proxy.conf}
hostnameOverride: $NODE_NAME
oomScoreAdj: 0
iptables: {syncPeriod: 30s}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
Y
start "kube-proxy$N" "$BIN/kube-proxy" --config="$NODE_RUN/kube-proxy.yaml"
wait_for 90 "$NODE_NAME to be Ready" sh -c "'$BIN/kubectl' get node $NODE_NAME | grep -qw Ready"
