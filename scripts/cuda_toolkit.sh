#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cuda_toolkit.sh PIP: unpacks the wheels of kernels/cuda/requirements.txt below build/cuda-toolkit, where
# the preset cuda looks, unless they are there: compiler, headers and libraries. Nothing of them
# needs a GPU or a driver.
set -euo pipefail
cd "$(dirname "$0")/.."
toolkit=build/cuda-toolkit
! cmp -s kernels/cuda/requirements.txt "$toolkit/installed.txt" || exit 0
echo "setup: CUDA 13.0 toolkit and NCCL"
rm -rf "$toolkit"
"$1" install -q --disable-pip-version-check --no-deps --target "$toolkit" -r kernels/cuda/requirements.txt
# The wheels have no development links.
for library in cu13/lib/lib{cublas,cublasLt,cudart,nvrtc}.so.13 nccl/lib/libnccl.so.2; do
  ln -sf "$(basename "$library")" "$toolkit/nvidia/${library%.so.*}.so"
done
ln -sfn lib "$toolkit/nvidia/cu13/lib64"  # where nvcc looks
cp kernels/cuda/requirements.txt "$toolkit/installed.txt"
