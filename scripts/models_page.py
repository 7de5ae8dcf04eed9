#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/models.md from `continuo-worker --describe=registry` of the programs in $CONTINUO_BIN
(default build/release/bin), and from the tests that name a family or a type.

    scripts/models_page.py            writes them
    scripts/models_page.py --check    exit code 1 where they would change
"""
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/models.md"
BIN = pathlib.Path(os.environ.get("CONTINUO_BIN", ROOT / "build/release/bin"))

# Each test that names families: the table's words for what they are compared with, and its sources.
FAMILY_TESTS = [
    ("transformers in float64", ["tests/conformance/model"]),
    ("pinned bits", ["tests/worker/model/exact_bits_test.cc"]),
    ("CUDA on the host", ["tests/kernels/cuda/cases/model_cases.h"]),
    ("GGUF against safetensors", ["tests/e2e/gguf"]),
]
TYPE_TESTS = [
    ("gguf-py to the bit", ["tests/e2e/gguf"]),
    ("worked values", ["tests/worker/model/checkpoint", "tests/worker/gguf"]),
]


def text_of(places):
    texts = []
    for place in places:
        path = ROOT / place
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        texts += [f.read_text(encoding="utf-8", errors="replace") for f in files
                  if f.suffix in (".cc", ".h", ".py")]
    return "\n".join(texts)


def named_by(names, tests):
    """The tests in whose sources one of the names stands as a word, also as tiny_NAME."""
    pattern = re.compile(r"(?:\b|tiny_)(?:" + "|".join(map(re.escape, names)) + r")(?![A-Za-z0-9_])")
    return ", ".join(what for what, places in tests if pattern.search(text_of(places))) or "nothing yet"


def rows(head, lines):
    return "\n".join([f"| {' | '.join(head)} |", "| " + "--- | " * len(head),
                      *(f"| {' | '.join(line)} |" for line in lines)]).replace("| \n", "|\n")


def families(registry):
    for family in registry["families"]:
        mechanisms = family["mechanisms"]
        yield (f"`{family['architecture']}`", f"`{family['model_type']}`",
               ", ".join(f"`{name}`" for name in family["gguf"]) or "–",
               ", ".join(mechanisms) if mechanisms else "as its fields say",
               named_by([family["architecture"], family["model_type"]], FAMILY_TESTS))


def kept(integers):
    """How --weights=stored keeps a type."""
    if integers is None:
        return "–"
    return f"int{integers['bits']} by {integers['group']}{', minima' if integers['has_minimum'] else ''}"


def stored_types(registry):
    for stored in registry["stored_types"]:
        yield (f"`{stored['name']}`", f"{stored['bits']:.4g}", str(stored["block"]), kept(stored.get("integers")),
               named_by([stored["name"], f"Type.{stored['name']}"], TYPE_TESTS))


def tables():
    told = subprocess.run([BIN / "continuo-worker", "--describe=registry"], check=True, capture_output=True, text=True)
    registry = json.loads(told.stdout)
    yield "families", rows(
        ("architecture", "`model_type`", "in GGUF files", "mechanisms of its default configuration", "compared with"),
        families(registry))
    yield "encoders", rows(("encoder", "architectures", "`model_type`"), [
        *((family["title"], f"`{family['stem']}Model` and its classes with heads", f"`{family['model_type']}`")
          for family in registry["encoders"]),
        ("EmbeddingGemma", "`Gemma3TextModel` with `use_bidirectional_attention`", "`gemma3_text`")])
    yield "stored", rows(("type", "bits a weight", "weights of a block", "`--weights=stored`", "compared with"), stored_types(registry))
    yield "computed", rows(("flag", "values"), [
        ("`--weights`", ", ".join(f"`{v}`" for v in registry["weights"])),
        ("`--kv_dtype`", ", ".join(f"`{v}`" for v in registry["kv"]))])
    yield "tokenizers", rows(("file", "what it is"),
                             [(f"`{f['file']}`", f["what"]) for f in registry["tokenizer_files"]])
    yield "pre_tokenizers", ", ".join(f"`{name}`" for name in registry["gguf_pre_tokenizers"]) + "."


def main():
    old = text = PAGE.read_text(encoding="utf-8")
    for name, table in tables():
        begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
        before, rest = text.split(begin)
        text = before + begin + table + "\n" + end + rest.split(end)[1]
    if text == old:
        return
    if "--check" in sys.argv:
        sys.exit("docs/models.md: its tables are out of date; run scripts/models_page.py")
    PAGE.write_text(text, encoding="utf-8")


main()
