#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tiny tokenizers of testdata/, learnt from a few sentences of this file, and what the original programs
make of some texts with them (ids.json). Needs build/tokenizers (scripts/tokenizers.sh):

    build/tokenizers/bin/python tests/worker/text/files/make_vocabularies.py
"""
import base64
import collections
import io
import json
import pathlib
import random
import shutil

import mistral_common.tokens.tokenizers.tekken as tekken
import regex
import sentencepiece
import tiktoken

import texts

HERE = pathlib.Path(__file__).parent
OUT = HERE / "testdata"
PATTERN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
           r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
           r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# A few rules in place of the 200 KiB of NFKC's: ligatures, wide letters and spaces, one accent.
RULES = [("\ufb01", "fi"), ("\ufb02", "fl"), ("\u3000", " "), ("\u00a0", " "), ("\t", " "), ("e\u0301", "\u00e9"),
         ("\u2126", "\u03a9")] + [(chr(0xff21 + i), chr(ord("A") + i)) for i in range(26)]


def learnt_ranks(words, count):
    """{bytes: rank}: all bytes, then the most frequent pairs, as byte-level BPE learns them."""
    ranks = {bytes([b]): b for b in range(256)}
    pieces = [[bytes([b]) for b in word.encode()] for word in words]
    while len(ranks) < 256 + count:
        pairs = collections.Counter(pair for p in pieces for pair in zip(p, p[1:]))
        left, right = min(pairs, key=lambda pair: (-pairs[pair], pair))
        ranks[left + right] = len(ranks)
        for p in pieces:
            i = 0
            while i + 1 < len(p):
                if p[i] == left and p[i + 1] == right:
                    p[i:i + 2] = [left + right]
                i += 1
    return ranks


def folder(name, **files):
    path = OUT / name
    path.mkdir(parents=True)
    for file, content in files.items():
        file = file.replace("__", ".")
        if isinstance(content, bytes):
            (path / file).write_bytes(content)
        else:
            (path / file).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return path


def make_tekken(ranks):
    config = {"pattern": PATTERN, "num_vocab_tokens": len(ranks), "default_vocab_size": len(ranks) + 18,
              "default_num_special_tokens": 22, "version": "v3"}
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
             for token, rank in ranks.items()]
    path = folder("tekken", tekken__json={"config": config, "vocab": vocab})
    original = tekken.Tekkenizer.from_file(path / "tekken.json")
    return lambda text: original.encode(text, bos=False, eos=False)


def make_tiktoken(ranks):
    lines = b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())
    first = len(ranks)
    special = {"<|begin|>": first, "<|end|>": first + 3}
    decoder = {str(i): {"content": token, "special": True} for token, i in special.items()}
    folder("tiktoken", tiny__tiktoken=lines, tokenizer_config__json={
        "pat_str": PATTERN, "added_tokens_decoder": decoder, "bos_token": "<|begin|>", "eos_token": "<|end|>",
        "add_bos_token": True})
    original = tiktoken.Encoding("tiny", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special)
    return lambda text: original.encode(text, disallowed_special=())


def make_sentencepiece(name, size, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts.SENTENCES), model_writer=model, vocab_size=size, hard_vocab_limit=False,
        minloglevel=2, num_threads=1, **options)
    folder(name, tokenizer__model=model.getvalue())
    original = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return original.encode


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    rules = HERE / "rules.tsv"
    rules.write_text("".join(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n"
                             for a, b in RULES))
    ranks = learnt_ranks([w for s in texts.SENTENCES for w in regex.findall(PATTERN, s)], 300)
    originals = {
        "tekken": make_tekken(ranks),
        "tiktoken": make_tiktoken(ranks),
        # As Llama's and Mistral's.
        "spm_bpe": make_sentencepiece("spm_bpe", 700, model_type="bpe", byte_fallback=True, character_coverage=0.99,
                                      normalization_rule_name="identity", remove_extra_whitespaces=False,
                                      user_defined_symbols=["[REFERENCE]", "<tag>"]),
        # As Gemma's: no space in front.
        "spm_no_prefix": make_sentencepiece("spm_no_prefix", 900, model_type="bpe", byte_fallback=True,
                                            normalization_rule_name="identity", remove_extra_whitespaces=False,
                                            add_dummy_prefix=False, split_digits=True),
        # With a map of characters, and characters that are unknown.
        "spm_unigram": make_sentencepiece("spm_unigram", 700, model_type="unigram", character_coverage=0.98,
                                          normalization_rule_tsv=str(rules)),
        "spm_unigram_bytes": make_sentencepiece("spm_unigram_bytes", 900, model_type="unigram", byte_fallback=True,
                                                normalization_rule_name="identity", remove_extra_whitespaces=True),
    }
    rules.unlink()
    draw = random.Random(1)
    for name, encode in originals.items():
        some = texts.FIXED + [texts.random_text(draw) for _ in range(100)]
        if name == "spm_bpe":
            some += ["a [REFERENCE] b", "x<tag>y <tag>", "see[REFERENCE][REFERENCE] now"]
        if name == "spm_unigram_bytes":
            some.remove("<0x41>")  # a known difference (docs/models.md)
        (OUT / name / "ids.json").write_text(
            "[\n" + ",\n".join(json.dumps([text, encode(text)]) for text in some) + "\n]\n")


main()
