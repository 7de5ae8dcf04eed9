#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# network.sh N: node N's network namespace, on a bridge that has no route to the outside: neither
# pods nor kube-proxy's rules can touch the machine's real network.
. "$(dirname "$0")/env.sh"
node_vars "$1"
[ ! -e "/run/netns/$NETNS" ] || exit 0
# add_address IP_COMMAND DEVICE ADDRESS. An address of IPv6 is used at once: nobody else has it.
add_address() {
  local nodad=
  [ "$IP" = -4 ] || nodad=nodad
  $1 address add "$3/$NODE_BITS" dev "$2" $nodad
}
if ! ip link show kube-br >/dev/null 2>&1; then
  ip link add kube-br type bridge
  add_address ip kube-br "$HOST_IP"
  ip link set kube-br up
  # The host reaches Services through node 1. The unreachable routes stay when the bridge goes, so
  # that a stray client never sends such an address out of the real interface.
  ip $IP route replace unreachable $POD_NET metric 4000
  ip $IP route replace unreachable $SERVICE_NET metric 4000
  ip $IP route replace $SERVICE_NET via "$API_IP" dev kube-br metric 10
fi
ip netns add "$NETNS"
ip link add "kube-h$N" type veth peer name eth0 netns "$NETNS"
ip link set "kube-h$N" master kube-br up
inside() { nsenter --net="/run/netns/$NETNS" "$@"; }
inside ip link set lo up
add_address "inside ip" eth0 "$NODE_IP"
inside ip link set eth0 up
inside ip $IP route add $SERVICE_NET dev eth0  # local packets need a route before they are translated
ip $IP route replace "$NODE_CIDR" via "$NODE_IP" dev kube-br metric 10
for m in $(seq $MAX_NODES); do
  [ "$m" = "$N" ] || inside ip $IP route add "$(pod_net_of "$m")" via "${NODE_PREFIX}1$m"
done
case $CONTINUO_CLUSTER_FAMILY in
  ipv4) inside sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1 net.ipv4.conf.all.rp_filter=0 ;;
  ipv6) inside sysctl -qw net.ipv6.conf.all.forwarding=1 net.bridge.bridge-nf-call-ip6tables=1 ;;
esac
