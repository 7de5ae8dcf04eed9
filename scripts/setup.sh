#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what building and testing Continuo needs on Debian 12, from the package registries.
# Safe to run again: what is there stays. Mostly downloads: about a minute with --quick, about eight with every
# option. Each step says what it installs.
#
#   scripts/setup.sh            compilers, libraries, Rust, the tests' Python packages, helm, promtool, oras,
#                               where there is npm also buf
#   scripts/setup.sh --quick    less: what building and running needs, without the tools of tests
#   scripts/setup.sh --all      also what `scripts/test.sh --all` needs: clang, npm, stock clients, original
#                               tokenizers, lm-eval, SmolLM2
#   scripts/setup.sh --peers    also the programs that benches measure beside ours
#   scripts/setup.sh --browser  also Chromium, Node.js and playwright-core, for tests/e2e/page
#   scripts/setup.sh --clients  also Node.js, Java and Maven, for services/cli/examples
#   scripts/setup.sh --cuda     also the CUDA toolkit and NCCL, below build/cuda-toolkit, for the preset cuda
#   scripts/setup.sh --cuda=12  also those of CUDA 12, below build/cuda-toolkit-12, for the preset cuda12
#   scripts/setup.sh --arm64    also a cross compiler, qemu and libraries for the preset arm64
#   scripts/setup.sh --cluster  also what deploy/images and deploy/cluster need: buildah, containerd
set -euo pipefail
cd "$(dirname "$0")/.."

want_tools=1 want_all=0 want_arm64=0 want_browser=0 want_clients=0 want_cluster=0 want_cuda=() want_peers=0
for argument in "$@"; do
  case "$argument" in
    --quick) want_tools=0 ;;
    --all) want_all=1 ;;
    --arm64) want_arm64=1 ;;
    --browser) want_browser=1 ;;
    --clients) want_clients=1 ;;
    --cluster) want_cluster=1 ;;
    --cuda) want_cuda+=(13) ;;
    --cuda=12) want_cuda+=(12) ;;
    --peers) want_peers=1 ;;
    *) sed -n '3,19s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done

packages=(
  build-essential ca-certificates ccache cmake curl git ninja-build patch pkg-config
  libabsl-dev libbenchmark-dev libboost1.81-dev libc-ares-dev libcli11-dev libcurl4-openssl-dev libgmock-dev
  libgrpc++-dev libgtest-dev libminizip-dev libprotobuf-dev libre2-dev libssl-dev libxxhash-dev
  nlohmann-json3-dev prometheus-cpp-dev protobuf-compiler protobuf-compiler-grpc zlib1g-dev
  python3 python3-venv
)
# A Rust new enough for the crates of services/worker/text/rust: the one at hand, else that of Debian's
# security updates.
rust_is_new() {
  command -v cargo >/dev/null && command -v rustc >/dev/null &&
    rustc --version | awk '{split($2, v, "."); exit !(v[1] > 1 || v[2] >= 87)}'
}
rust_is_new || packages+=(rustc-web cargo-web)
# For scripts/go_toolchain.sh, by which too old a one fetches a newer, and services/cli/examples.
[ "$want_tools" = 0 ] || command -v go >/dev/null || packages+=(golang-go)
# As in the image that helm/continuo fetches models with.
[ "$want_tools" = 0 ] || packages+=(busybox)
if [ "$want_all" = 1 ]; then
  packages+=(clang-19 libclang-rt-19-dev clang-format iproute2 wget)
  command -v npm >/dev/null || packages+=(npm)  # other packages of Node.js bring their own
fi
[ "$want_cluster" = 0 ] || packages+=(
  buildah conntrack containerd containernetworking-plugins debootstrap ethtool iproute2 ipset iptables jq
  kmod openssl runc socat
)
[ "$want_arm64" = 0 ] || packages+=(g++-aarch64-linux-gnu qemu-user)
[ "$want_peers" = 0 ] || packages+=(nghttp2-client nginx-light)
# What is at hand already serves too; services/cli/examples/README.md tells from which version.
if [ "$((want_clients + want_browser))" -gt 0 ]; then
  command -v node >/dev/null || packages+=(nodejs)
  command -v npm >/dev/null || packages+=(npm)
fi
if [ "$want_browser" = 1 ]; then
  command -v chromium >/dev/null || packages+=(chromium fonts-dejavu-core)
fi
if [ "$want_clients" = 1 ]; then
  command -v javac >/dev/null || packages+=(default-jdk-headless)
  command -v mvn >/dev/null || packages+=(maven)
fi

missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
    missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "setup: ${#missing[@]} Debian packages, about a minute: ${missing[*]}"
  as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get -qq update
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
fi

# The tests' Python packages, in a virtual environment of their own.
venv=build/venv
if ! cmp -s tests/requirements.txt "$venv/installed.txt"; then
  echo "setup: the tests' Python packages (tests/requirements.txt), half a minute, into $venv"
  mkdir -p build
  /usr/bin/python3 -m venv --clear "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check -r tests/requirements.txt
  cp tests/requirements.txt "$venv/installed.txt"
fi

[ "$want_tools" = 0 ] || { scripts/helm_tools.sh; scripts/oras.sh; }

if [ "$want_peers" = 1 ] && ! [ -f build/peers/.done ]; then
  echo "setup: smg, which the gateway is measured beside, into build/peers"
  /usr/bin/python3 -m venv --clear build/peers
  build/peers/bin/pip install -q --disable-pip-version-check smg==1.13.0
  touch build/peers/.done
fi

# npm_install FOLDER PACKAGE: what is there stays.
npm_install() {
  [ -d "build/npm/node_modules/$1" ] || npm install --silent --no-audit --no-fund --prefix build/npm "$2" >/dev/null
}
if [ "$((want_tools + want_all))" -gt 0 ] && command -v npm >/dev/null; then
  echo "setup: buf, which checks the protos, into build/npm"
  npm_install @bufbuild/buf @bufbuild/buf@1.50.0
fi
if [ "$want_browser" = 1 ]; then
  echo "setup: playwright-core, which drives Chromium, into build/npm"
  npm_install playwright-core playwright-core@1.65.1
fi
if [ "$want_all" = 1 ]; then
  echo "setup: the OpenAI SDK for Node"
  # The last major version that takes Debian's Node.
  npm_install openai openai@4.104.0
  scripts/client_tools.sh
  scripts/cosign.sh
  scripts/tokenizers.sh
  lm_eval=tests/e2e/evaluation/lm_eval.txt
  if ! cmp -s $lm_eval build/lm-eval/installed.txt; then
    echo "setup: lm-eval ($lm_eval), a few minutes, into build/lm-eval"
    /usr/bin/python3 -m venv --clear build/lm-eval
    build/lm-eval/bin/pip install -q --disable-pip-version-check -r $lm_eval
    cp $lm_eval build/lm-eval/installed.txt
  fi
  scripts/real_model.sh >/dev/null
  scripts/real_model.sh --folder >/dev/null
fi

[ "$want_arm64" = 0 ] || scripts/arm64_root.sh
for major in "${want_cuda[@]}"; do scripts/cuda_toolkit.sh "$venv/bin/pip" "$major"; done
echo "setup: ready after $SECONDS s"
