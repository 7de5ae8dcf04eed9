# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts of this folder. Every setting may be given in the environment.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ ! -d /usr/local/go/bin ] || export PATH=$PATH:/usr/local/go/bin
: "${K8S_ROOT:=${XDG_CACHE_HOME:-$HOME/.cache}/continuo-cluster}"  # everything lives below it
: "${K8S_VERSION:=1.34.4}"  # the last that takes cgroup v1 and containerd 1.6 as they are
: "${ETCD_VERSION:=3.6.4}"
: "${COREDNS_VERSION:=1.12.4}"
: "${HELM_VERSION:=3.19.5}"
: "${PROMETHEUS_VERSION:=0.53.3}"  # the module's name for 2.53
: "${PROMETHEUS_ADAPTER_VERSION:=0.12.0}"
: "${METRICS_SERVER_VERSION:=0.7.2}"
: "${EPP_VERSION:=1.5.0}"  # the last of its module that has the whole endpoint picker
: "${KEDA_VERSION:=2.18.0}"  # tests/helm/crds.py has the same
BIN=$K8S_ROOT/bin SRC=$K8S_ROOT/src RUN=$K8S_ROOT/run PKI=$K8S_ROOT/pki LOG=$K8S_ROOT/log
mkdir -p "$BIN" "$SRC" "$RUN/pids" "$PKI" "$LOG"
export KUBECONFIG=$PKI/admin.conf

# The family of all addresses of nodes, pods and Services, ipv4 or ipv6: that of the cluster that is up,
# or ipv4.
: "${CONTINUO_CLUSTER_FAMILY:=$(cat "$RUN/family" 2>/dev/null || echo ipv4)}"
# These addresses exist only inside network namespaces and on a bridge that up.sh makes. HOST_IP is the
# bridge's, on the host; the control plane runs in node 1's namespace.
case $CONTINUO_CLUSTER_FAMILY in
  ipv4)
    IP=-4 NODE_PREFIX=10.250.0. NODE_BITS=24 EVERYWHERE=0.0.0.0 LOOPBACK=127.0.0.1 DEFAULT_ROUTE=0.0.0.0/0
    POD_NET=10.244.0.0/16 SERVICE_NET=10.96.0.0/16 API_CLUSTER_IP=10.96.0.1 DNS_IP=10.96.0.10
    pod_net_of() { echo "10.244.$1.0/24"; } ;;
  ipv6)
    IP=-6 NODE_PREFIX=fd0c:250:: NODE_BITS=64 EVERYWHERE=:: LOOPBACK=::1 DEFAULT_ROUTE=::/0
    POD_NET=fd0c:244::/48 SERVICE_NET=fd0c:96::/112 API_CLUSTER_IP=fd0c:96::1 DNS_IP=fd0c:96::a
    pod_net_of() { echo "fd0c:244:0:$1::/64"; } ;;
  *) echo "CONTINUO_CLUSTER_FAMILY is $CONTINUO_CLUSTER_FAMILY, neither ipv4 nor ipv6" >&2; exit 1 ;;
esac
HOST_IP=${NODE_PREFIX}1 API_IP=${NODE_PREFIX}11
MAX_NODES=4
# in_url ADDRESS: as URLs and HOST:PORT have it.
in_url() { case $1 in *:*) echo "[$1]" ;; *) echo "$1" ;; esac; }

# node_vars N: what belongs to node N.
node_vars() {
  N=$1 NETNS=kube$1 NODE_NAME=node$1 NODE_IP=${NODE_PREFIX}1$1 NODE_CIDR=$(pod_net_of "$1")
  NODE_RUN=$RUN/node$1 CRI_STATE=/run/kube-containerd$1 CRI_ROOT=$K8S_ROOT/containerd$1
  CRI=$CRI_STATE/containerd.sock
}

# start NAME COMMAND...: in node $N's network namespace, detached, with a pid file and a log.
# nsenter --net, not `ip netns exec`: that one mounts /sys anew and hides the cgroups.
start() {
  local name=$1
  shift
  if [ -s "$RUN/pids/$name" ] && kill -0 "$(cat "$RUN/pids/$name")" 2>/dev/null; then return; fi
  setsid nice -n "${CLUSTER_NICE:-0}" nsenter --net="/run/netns/$NETNS" "$@" >>"$LOG/$name.log" 2>&1 </dev/null &
  echo $! >"$RUN/pids/$name"
}

# wait_for SECONDS WHAT COMMAND...
wait_for() {
  local seconds=$1 what=$2 i
  shift 2
  for ((i = 0; i < seconds * 5; i++)); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    sleep 0.2
  done
  echo "timed out after $seconds s waiting for $what" >&2
  return 1
}

kubectl() { "$BIN/kubectl" "$@"; }
