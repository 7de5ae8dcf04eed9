#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ends the cluster by the process ids that its scripts recorded, then unmounts and removes what it
# made. KEEP_IMAGES=1 keeps containerd's stores, with the images that were imported.
. "$(dirname "$0")/env.sh"
set +e
# stop NAMES...: SIGTERM to all, SIGKILL to what is there after 10 s.
stop() {
  local name pid i
  for name in "$@"; do
    pid=$(cat "$RUN/pids/$name" 2>/dev/null) && kill "$pid" 2>/dev/null
  done
  for name in "$@"; do
    pid=$(cat "$RUN/pids/$name" 2>/dev/null) || continue
    for i in $(seq 50); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.2
    done
    kill -9 "$pid" 2>/dev/null
    rm -f "$RUN/pids/$name"
  done
}
on_every_node() { for n in $(seq $MAX_NODES); do echo "$1$n"; done; }
stop $(on_every_node kubelet)
# Containers are children of containerd's shims: they end while containerd still answers.
for socket in /run/kube-containerd*/containerd.sock; do
  [ -S "$socket" ] || continue
  tasks() { ctr -a "$socket" -n k8s.io tasks "$@"; }
  for task in $(tasks ls -q); do tasks kill -s SIGKILL "$task"; done
  sleep 1
  for task in $(tasks ls -q); do tasks rm -f "$task"; done
  for id in $(ctr -a "$socket" -n k8s.io containers ls -q); do
    ctr -a "$socket" -n k8s.io containers rm "$id"
  done
done >/dev/null 2>&1
stop $(on_every_node kube-proxy) kube-scheduler kube-controller-manager kube-apiserver
stop etcd $(on_every_node containerd)
# Pod volumes, root file systems, network namespaces of pods.
ours=" ($K8S_ROOT/|/run/kube-containerd)"
grep -E "$ours" /proc/self/mounts | awk '{print $2}' | sort -r | while read -r mount; do
  umount "$mount" 2>/dev/null || umount -l "$mount"
done
for namespace in /run/netns/cni-*; do
  [ ! -e "$namespace" ] || { umount "$namespace"; rm -f "$namespace"; }
done
for n in $(seq $MAX_NODES); do [ ! -e "/run/netns/kube$n" ] || ip netns del "kube$n"; done
ip link del kube-br 2>/dev/null
for cgroup in /sys/fs/cgroup/*/kube[1-9]; do
  [ ! -d "$cgroup" ] || find "$cgroup" -depth -type d -exec rmdir {} \; 2>/dev/null
done
[ ! -f "$RUN/sysctl.saved" ] || sed 's/ = /=/' "$RUN/sysctl.saved" | xargs -r sysctl -qw
if grep -qE "$ours" /proc/self/mounts; then
  echo "something is still mounted below $K8S_ROOT; not removed" >&2
  exit 1
fi
rm -rf "$K8S_ROOT"/kubelet[1-9] "$RUN" /run/kube-containerd[1-9] "$LOG"/pods[1-9] /var/log/containers
[ "${KEEP_IMAGES:-}" ] || rm -rf "$K8S_ROOT"/containerd[1-9]
exit 0
