#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Certificate authorities, certificates and kubeconfigs of the cluster. Made once
# for a family of addresses, which stand in them.
. "$(dirname "$0")/env.sh"
cd "$PKI"
[ "$(cat done 2>/dev/null)" != "$CONTINUO_CLUSTER_FAMILY" ] || exit 0
key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key" 2>/dev/null; }
# authority NAME COMMON_NAME
authority() {
  key "$1"
  openssl req -x509 -new -key "$1.key" -subj "/CN=$2" -days 3650 -out "$1.crt" \
    -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature
}
# certificate NAME AUTHORITY SUBJECT [ALTERNATIVE_NAMES]
certificate() {
  key "$1"
  openssl req -new -key "$1.key" -subj "$3" -out "$1.csr"
  {
    echo "basicConstraints=CA:FALSE"
    echo "keyUsage=critical,digitalSignature,keyEncipherment"
    echo "extendedKeyUsage=clientAuth,serverAuth"
    [ -z "${4:-}" ] || echo "subjectAltName=$4"
  } >"$1.ext"
  openssl x509 -req -in "$1.csr" -CA "$2.crt" -CAkey "$2.key" -CAcreateserial -days 3650 \
    -extfile "$1.ext" -out "$1.crt" 2>/dev/null
  rm -f "$1.csr" "$1.ext"
}
authority ca kubernetes-ca
authority front-proxy-ca front-proxy-ca
names=DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc
certificate apiserver ca /CN=kube-apiserver \
  "$names,DNS:kubernetes.default.svc.cluster.local,IP:$LOOPBACK,IP:$API_IP,IP:$API_CLUSTER_IP"
certificate apiserver-kubelet-client ca /O=system:masters/CN=kube-apiserver-kubelet-client
certificate front-proxy-client front-proxy-ca /CN=front-proxy-client
certificate admin ca /O=system:masters/CN=kubernetes-admin
for name in controller-manager scheduler proxy; do
  certificate $name ca /CN=system:kube-$name
done
for n in $(seq $MAX_NODES); do
  certificate "kubelet$n" ca "/O=system:nodes/CN=system:node:node$n"
  certificate "kubelet-server$n" ca "/O=system:nodes/CN=system:node:node$n" "DNS:node$n,IP:${NODE_PREFIX}1$n"
done
openssl genrsa -out sa.key 2048 2>/dev/null
openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
for user in admin controller-manager scheduler proxy $(seq -f kubelet%g $MAX_NODES); do
  data() { base64 -w0 <"$PKI/$1"; }
  cat >"$user.conf" <<Y
apiVersion: v1
kind: Config
clusters: [{name: local, cluster: {server: "https://$(in_url "$API_IP"):6443", certificate-authority-data: $(data ca.crt)}}]
users: [{name: $user, user: {client-certificate-data: $(data "$user.crt"), client-key-data: $(data "$user.key")}}]
contexts: [{name: local, context: {cluster: local, user: $user}}]
current-context: local
Y
done
echo "$CONTINUO_CLUSTER_FAMILY" >done
