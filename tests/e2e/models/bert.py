# SPDX-License-Identifier: Apache-2.0
"""Tiny BERT models of random weights with a WordPiece tokenizer, and their forward pass in float64."""
import json
import math
import pathlib
import subprocess
import sys

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402
from reference import read_safetensors  # noqa: E402

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *LETTERS, *("##" + letter for letter in LETTERS), ".", "oslo", "##ing"]
CLS, SEP = VOCABULARY.index("[CLS]"), VOCABULARY.index("[SEP]")
CONTEXT = 48
CONFIG = {"architectures": ["BertModel"], "model_type": "bert", "vocab_size": len(VOCABULARY), "hidden_size": 32,
          "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 56, "hidden_act": "gelu",
          "max_position_embeddings": CONTEXT, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "pad_token_id": 0}


def make_folder(folder, pooling=None):
    """A model of random weights as sentence-transformers would save it: one of vectors with this pooling, or else one of
    scores."""
    folder.mkdir()
    config = CONFIG if pooling else {**CONFIG, "architectures": ["BertForSequenceClassification"],
                                     "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    (folder / "bert.json").write_text(json.dumps(config))
    subprocess.run([fleet.BIN / "continuo-make-model", f"--config={folder / 'bert.json'}", f"--out={folder}", "--dtype=fp32"],
                   check=True, timeout=60)
    special = [{"id": VOCABULARY.index(name), "content": name, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]")]
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                       "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", SEP], "cls": ["[CLS]", CLS]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": {name: i for i, name in enumerate(VOCABULARY)}}}
    listed = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")][:3 if pooling else 1]
    files = {
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "cls_token": "[CLS]",
                                  "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]"},
        "modules.json": [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                         for i, (path, kind) in enumerate(listed)],
        "sentence_bert_config.json": {"max_seq_length": CONTEXT, "do_lower_case": True},
    }
    if pooling:
        (folder / "1_Pooling").mkdir()
        files["1_Pooling/config.json"] = {"word_embedding_dimension": CONFIG["hidden_size"],
                                          f"pooling_mode_{pooling}": True}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))


class Bert:
    """BERT by the formulas of transformers' BertModel."""

    def __init__(self, folder):
        self.weights = read_safetensors(folder / "model.safetensors")
        prefix = next(name for name in self.weights if name.endswith("embeddings.word_embeddings.weight"))
        self.prefix = prefix.removesuffix("embeddings.word_embeddings.weight")

    def of(self, name):
        return self.weights[self.prefix + name]

    def linear(self, x, name):
        return x @ self.of(name + ".weight").T + self.of(name + ".bias")

    def norm(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / numpy.sqrt((x * x).mean(-1, keepdims=True) + CONFIG["layer_norm_eps"])
        return x * self.of(name + ".weight") + self.of(name + ".bias")

    def states(self, ids, types=None):
        """The final states; `types` says which part of a pair each token counts to."""
        tables = "embeddings.{}_embeddings.weight"
        x = self.of(tables.format("word"))[ids] + self.of(tables.format("position"))[:len(ids)]
        x = self.norm(x + self.of(tables.format("token_type"))[types or [0] * len(ids)], "embeddings.LayerNorm")
        heads = CONFIG["num_attention_heads"]
        erf = numpy.vectorize(math.erf)
        for i in range(CONFIG["num_hidden_layers"]):
            layer = f"encoder.layer.{i}."
            q, k, v = (self.linear(x, f"{layer}attention.self.{part}").reshape(len(ids), heads, -1).swapaxes(0, 1)
                       for part in ("query", "key", "value"))
            scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1])
            weights = numpy.exp(scores - scores.max(-1, keepdims=True))
            mixed = (weights / weights.sum(-1, keepdims=True)) @ v
            mixed = mixed.swapaxes(0, 1).reshape(len(ids), -1)
            x = self.norm(x + self.linear(mixed, layer + "attention.output.dense"), layer + "attention.output.LayerNorm")
            inner = self.linear(x, layer + "intermediate.dense")
            inner = inner * (1 + erf(inner / math.sqrt(2))) / 2
            x = self.norm(x + self.linear(inner, layer + "output.dense"), layer + "output.LayerNorm")
        return x

    def logit(self, ids, types):
        """What the score of a pair is the sigmoid of (BertForSequenceClassification)."""
        pooled = numpy.tanh(self.linear(self.states(ids, types)[0], "pooler.dense"))
        return (self.weights["classifier.weight"] @ pooled + self.weights["classifier.bias"])[0]
