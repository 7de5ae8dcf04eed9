# SPDX-License-Identifier: Apache-2.0
# For a shell: `. deploy/cluster/activate.sh` makes kubectl and helm speak to the cluster.
K8S_ROOT=${K8S_ROOT:-${XDG_CACHE_HOME:-$HOME/.cache}/continuo-cluster}
export PATH=$K8S_ROOT/bin:$PATH KUBECONFIG=$K8S_ROOT/pki/admin.conf
