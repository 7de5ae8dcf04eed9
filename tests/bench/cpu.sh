#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Continuo beside llama.cpp and vLLM on the CPU: installs the peers where they are not there yet
# (gigabytes, below build/bench; llama.cpp's folder needs root), then measures. Flags are those of
# cpu/cpu.py, such as --shape=small --streams=1,16 --weights=int8. With --gguf=Q4_K_M (or another type, or a file)
# Continuo and llama.cpp read one GGUF file, without vLLM.
set -euo pipefail
cd "$(dirname "$0")/../.."
case " $* " in
  *' --gguf'*) tests/bench/peers/setup.sh llama.cpp ;;
  *) tests/bench/peers/setup.sh vllm llama.cpp ;;
esac
exec build/venv/bin/python tests/bench/cpu/cpu.py "$@"
