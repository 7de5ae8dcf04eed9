#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Continuo beside llama.cpp and vLLM on the CPU: installs the peers where they are not there yet
# (gigabytes, below build/bench; llama.cpp's folder needs root), then measures. Flags are those of
# cpu/cpu.py, such as --shape=small --streams=1,16 --weights=int8.
set -euo pipefail
cd "$(dirname "$0")/../.."
tests/bench/peers/setup.sh vllm llama.cpp
exec build/venv/bin/python tests/bench/cpu/cpu.py "$@"
