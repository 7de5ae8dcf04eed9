#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# import.sh ARCHIVE...: puts images into every node's containerd. There is no registry to pull from.
. "$(dirname "$0")/env.sh"
for archive in "$@"; do
  for socket in /run/kube-containerd*/containerd.sock; do
    ctr -a "$socket" -n k8s.io images import "$archive" >/dev/null
  done
done
