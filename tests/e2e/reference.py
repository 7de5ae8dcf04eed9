# SPDX-License-Identifier: Apache-2.0
"""A Llama-family model and the sampler in float64: slow, plain, and sharing nothing with the C++.

The formulas are those of Hugging Face's LlamaForCausalLM and of the comments in inference.proto;
the generator is the one that services/worker/model/README.md describes.
"""
import json
import math
import pathlib
import struct

import numpy as np


def read_safetensors(path):
    """{name: float64 array} of a safetensors file of F32, F16 or BF16 tensors."""
    raw = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    tensors = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + o for o in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            bits = np.frombuffer(raw[begin:end], "<u2").astype("<u4") << 16
            values = bits.view("<f4")
        else:
            values = np.frombuffer(raw[begin:end], {"F32": "<f4", "F16": "<f2"}[entry["dtype"]])
        tensors[name] = values.astype(np.float64).reshape(entry["shape"])
    return tensors


class Model:
    def __init__(self, directory):
        directory = pathlib.Path(directory)
        self.config = json.loads((directory / "config.json").read_text())
        self.weights = {}
        for file in sorted(directory.glob("*.safetensors")):
            self.weights.update(read_safetensors(file))
        self.cache = {}

    def _norm(self, x, name):
        eps = self.config["rms_norm_eps"]
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * self.weights[name]

    def logits(self, ids):
        """[len(ids), vocabulary] for every position."""
        key = tuple(ids)
        if key not in self.cache:
            self.cache[key] = self._forward(ids)
        return self.cache[key]

    def _forward(self, ids):
        c, w = self.config, self.weights
        heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
        dim = c.get("head_dim") or c["hidden_size"] // heads
        n = len(ids)
        frequencies = float(c["rope_theta"]) ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
        angles = np.arange(n)[:, None] * frequencies
        cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]

        def rope(x):
            a, b = x[..., :dim // 2], x[..., dim // 2:]
            return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

        x = w["model.embed_tokens.weight"][list(ids)]
        mask = np.where(np.tril(np.ones((n, n), bool)), 0.0, -np.inf)
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            h = self._norm(x, p + "input_layernorm.weight")

            def project(name, count, h=h, p=p):
                y = h @ w[p + f"self_attn.{name}_proj.weight"].T
                if p + f"self_attn.{name}_proj.bias" in w:
                    y = y + w[p + f"self_attn.{name}_proj.bias"]
                return y.reshape(n, count, dim)
            q, k, v = project("q", heads), project("k", kv_heads), project("v", kv_heads)
            if p + "self_attn.q_norm.weight" in w:
                q = self._norm(q, p + "self_attn.q_norm.weight")
                k = self._norm(k, p + "self_attn.k_norm.weight")
            q, k = rope(q), rope(k)
            k, v = (np.repeat(t, heads // kv_heads, axis=1) for t in (k, v))
            scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(dim) + mask
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            attended = np.einsum("hqk,khd->qhd", scores, v).reshape(n, heads * dim)
            x = x + attended @ w[p + "self_attn.o_proj.weight"].T
            h = self._norm(x, p + "post_attention_layernorm.weight")
            gate = h @ w[p + "mlp.gate_proj.weight"].T
            up = h @ w[p + "mlp.up_proj.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ w[p + "mlp.down_proj.weight"].T
        head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
        return self._norm(x, "model.norm.weight") @ head.T


def log_softmax(row):
    shifted = row - row.max()
    return shifted - math.log(np.exp(shifted).sum())
