#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Trains the demo model from nothing in three trainings, into first, second and third of build/demo-model,
# averages them into out, and scores out. With --install, puts it into deploy/demo-model/.
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
  cp deploy/demo-model/tokenizer.json "$work/out/"
  "$work/venv/bin/python" "$tool/make_tokenizer.py" --output "$work/out" --keep
else
  "$work/venv/bin/python" "$tool/make_tokenizer.py" --output "$work/out"
fi
for part in first second third; do
  mkdir -p "$work/$part"
  cp "$work/out/tokenizer.json" "$work/$part/"
done
"$work/venv/bin/python" "$tool/corpus.py" --held_out "$work/out/heldout.jsonl" \
  --held_out_tools "$work/out/heldout_tools.jsonl"

train() {
  directory=$1; shift
  nice -n 5 "$work/venv/bin/python" "$tool/train.py" --directory "$directory" "$@" | tee "$directory/train.log"
}
train "$work/first" --training 1 --seed 1
train "$work/second" --training 2 --seed 2 --chunks 5 --rate 0.3 --begin_with "$work/first"
train "$work/third" --training 3 --seed 3 --chunks 1 --rate 0.12 \
  --begin_with "$work/first" "$work/second" --shares 0.2 0.8
train "$work/out" --chunks 0 --begin_with "$work/first" "$work/second" "$work/third" --shares 0.08 0.3 0.62
for activations in bf16 fp32; do
  for questions in heldout heldout_tools; do
    "$work/venv/bin/python" "$tool/evaluate.py" --model "$work/out" --questions "$work/out/$questions.jsonl" \
      --activations "$activations"
  done
done
"$work/venv/bin/python" "$tool/check_split.py" --questions "$work/out/heldout.jsonl" "$work/out/heldout_tools.jsonl"

if [ "${1:-}" = --install ]; then
  for file in config.json generation_config.json heldout.jsonl heldout_tools.jsonl model.safetensors \
              special_tokens_map.json tokenizer.json tokenizer_config.json; do
    install -m 644 "$work/out/$file" "deploy/demo-model/$file"
  done
fi
