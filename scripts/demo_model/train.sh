#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Trains the demo model from nothing into build/demo-model/out and scores it.
# With --install, puts it into deploy/demo-model/.
set -eu
cd "$(dirname "$0")/../.."
work=build/demo-model
tool=scripts/demo_model
mkdir -p "$work/out"
if [ ! -x "$work/venv/bin/python" ]; then
  python3 -m venv "$work/venv"
fi
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$tool/requirements.txt"

# The committed tokenizer stays, because the weights' initial values follow its tokens.
if [ -f deploy/demo-model/tokenizer.json ]; then
  cp deploy/demo-model/tokenizer.json deploy/demo-model/tokenizer_config.json \
    deploy/demo-model/special_tokens_map.json "$work/out/"
else
  "$work/venv/bin/python" "$tool/make_tokenizer.py" --output "$work/out"
fi
"$work/venv/bin/python" "$tool/corpus.py" --held_out "$work/out/heldout.jsonl"
nice -n 5 "$work/venv/bin/python" "$tool/train.py" --directory "$work/out" --seed 1 | tee "$work/train.log"
for activations in bf16 fp32; do
  "$work/venv/bin/python" "$tool/evaluate.py" --model "$work/out" --questions "$work/out/heldout.jsonl" \
    --activations "$activations"
done
"$work/venv/bin/python" "$tool/check_split.py" --questions "$work/out/heldout.jsonl"

if [ "${1:-}" = --install ]; then
  for file in config.json generation_config.json heldout.jsonl model.safetensors special_tokens_map.json \
              tokenizer.json tokenizer_config.json; do
    install -m 644 "$work/out/$file" "deploy/demo-model/$file"
  done
fi
