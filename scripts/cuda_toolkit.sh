#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cuda_toolkit.sh PIP [13|12]: unpacks a CUDA toolkit and NCCL, unless they are there: compiler, headers and
# libraries. Nothing of them needs a GPU or a driver.
#   13  the wheels of kernels/cuda/requirements.txt, below build/cuda-toolkit, where the preset cuda looks
#   12  those of kernels/cuda/requirements-12.txt, below build/cuda-toolkit-12, where the preset cuda12 looks.
#       They lack nvcc, which is Debian's (nvidia-cuda-toolkit 12.4 of trixie's section non-free); ptxas is the
#       wheels'. PTX is therefore of 12.4, which older drivers compile, too.
set -euo pipefail
cd "$(dirname "$0")/.."
pip=$1 major=${2:-13}
case $major in
  13) requirements=kernels/cuda/requirements.txt toolkit=$PWD/build/cuda-toolkit ;;
  12) requirements=kernels/cuda/requirements-12.txt toolkit=$PWD/build/cuda-toolkit-12 ;;
  *) sed -n '3,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
! cmp -s "$requirements" "$toolkit/installed.txt" || exit 0
echo "setup: CUDA $major toolkit and NCCL"
rm -rf "$toolkit"
"$pip" install -q --disable-pip-version-check --no-deps --target "$toolkit" -r "$requirements"
cuda=$toolkit/nvidia/cu$major
if [ "$major" = 12 ]; then
  # A folder as CUDA 13's wheels have it.
  mkdir -p "$cuda"/{bin,include,lib,nvvm}
  for wheel in "$toolkit"/nvidia/{cublas,cuda_cccl,cuda_nvcc,cuda_nvrtc,cuda_runtime,nvml_dev}; do
    cp -rsf "$wheel/include/." "$cuda/include/"
    for library in "$wheel"/lib/*.{a,so.*}; do
      [ ! -e "$library" ] || ln -s "../../$(basename "$wheel")/lib/$(basename "$library")" "$cuda/lib/"
    done
  done
  # nvlink of 12.4 refuses the wheels' library of kernels that launch kernels. There are none here.
  rm "$cuda/lib/libcudadevrt.a"
  ar qc "$cuda/lib/libcudadevrt.a"
  state=$toolkit/apt
  mkdir -p "$state"/{lists,cache/archives}/partial
  : >"$state/status"
  # The mirror that this machine takes Debian from. Release files name the origin once lists are there.
  mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -m1 '/debian/\?$')
  echo "deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie non-free" \
    >"$state/sources.list"
  apt=(apt-get -qq -o "Dir::Etc::SourceList=$state/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State=$state" -o "Dir::State::status=$state/status" -o "Dir::Cache=$state/cache"
    -o APT::Sandbox::User=root)
  "${apt[@]}" update
  (cd "$state" && "${apt[@]}" download nvidia-cuda-toolkit)
  dpkg-deb -x "$state"/nvidia-cuda-toolkit_*.deb "$state/root"
  mv "$state"/root/usr/bin/{bin2c,cudafe++,cuobjdump,fatbinary,nvdisasm,nvlink} "$cuda/bin/"
  mv "$state"/root/usr/lib/nvidia-cuda-toolkit/bin/{nvcc,crt} "$cuda/bin/"
  mkdir "$cuda/nvvm/bin"
  mv "$state"/root/usr/lib/nvidia-cuda-toolkit/bin/cicc "$cuda/nvvm/bin/"
  mv "$state"/root/usr/lib/nvidia-cuda-toolkit/libdevice "$cuda/nvvm/"
  rm -rf "$state"
  install -m 755 "$toolkit/nvidia/cuda_nvcc/bin/ptxas" "$cuda/bin/"
  cat >"$cuda/bin/nvcc.profile" <<'P'
TOP = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib"
P
fi
# The wheels have no development links.
for library in "$cuda"/lib/lib{cublas,cublasLt,cudart,nvrtc}.so."$major" "$toolkit/nvidia/nccl/lib/libnccl.so.2"; do
  ln -sf "$(basename "$library")" "${library%.so.*}.so"
done
ln -sfn lib "$cuda/lib64"  # where nvcc looks
cp "$requirements" "$toolkit/installed.txt"
