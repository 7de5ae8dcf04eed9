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

    def next_logits(self, ids):
        return self.logits(ids)[-1]

    def _forward(self, ids):
        w = self.weights
        return self.states(ids) @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T

    def states(self, ids):
        """[len(ids), hidden]: the final hidden state behind every position, normalised."""
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
        return self._norm(x, "model.norm.weight")


def log_softmax_rows(rows):
    shifted = rows - rows.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


# The sampler.

def philox4x32(counter, key):
    """Philox4x32-10 of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011)."""
    word = 0xFFFFFFFF
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & word, (a >> 32) ^ counter[3] ^ key[1],
                   a & word]
        key = [(key[0] + 0x9E3779B9) & word, (key[1] + 0xBB67AE85) & word]
    return counter


def uniform(seed, index, position):
    words = philox4x32([position, index, 0, 0], [seed & 0xFFFFFFFF, seed >> 32])
    return ((words[0] << 32 | words[1]) >> 11) / 2**53


def pick(logits, sampling, prompt, answer, banned, index):
    """The next token by Sampling's comments; the other fields have their proto defaults."""
    logits = logits.copy()
    logits[sorted(banned)] = -np.inf
    for token, bias in sampling.logit_bias.items():
        logits[token] += bias
    repetition = sampling.repetition_penalty if sampling.HasField("repetition_penalty") else 1
    for token in set(prompt) | set(answer):
        logits[token] = logits[token] / repetition if logits[token] > 0 else \
            logits[token] * repetition
    for token in set(answer):
        logits[token] -= sampling.presence_penalty
        logits[token] -= sampling.frequency_penalty * answer.count(token)
    temperature = sampling.temperature if sampling.HasField("temperature") else 1
    if temperature == 0:
        return int(np.argmax(logits))
    weights = np.exp((logits - logits.max()) / temperature)
    weights /= weights.sum()
    # Heaviest first, of equals the lowest id.
    order = sorted(range(len(weights)), key=lambda t: (-weights[t], t))
    order = [t for t in order if weights[t] >= sampling.min_p * weights[order[0]]]
    if sampling.top_k > 0:
        order = order[:sampling.top_k]
    if sampling.HasField("top_p") and sampling.top_p < 1:
        enough, total, kept = sampling.top_p * weights[order].sum(), 0.0, []
        for token in order:
            kept.append(token)
            total += weights[token]
            if total >= enough:
                break
        order = kept
    order.sort()
    target = uniform(sampling.seed, index, len(prompt) + len(answer)) * weights[order].sum()
    total = 0.0
    for token in order:
        total += weights[token]
        if total > target:
            return token
    return order[-1]


def barred(row, sampling, stops, answer, bars):
    """Returns what may not follow the answer; bad words give way where nothing else is left."""
    banned = set(stops)
    if sampling.allowed_token_ids:
        banned |= set(range(len(row))) - set(sampling.allowed_token_ids)
    more = {bar[-1] for bar in bars if (answer + bar[-1:])[-len(bar):] == bar}
    return banned | more if len(banned | more) < len(row) else banned


def generate(model, request, index, eos, bars=()):
    """The ids of one sequence of a request whose prompt is token_ids; no text, no time. `bars` are
    the ids of bad_words."""
    prompt = list(request.token_ids.ids)
    stopping = request.stopping
    stops = set(stopping.token_ids) | (set() if stopping.ignore_eos else {eos})
    room = model.config["max_position_embeddings"] - len(prompt)
    limit = min(stopping.max_tokens, room) if stopping.HasField("max_tokens") else room
    answer = []
    while len(answer) < limit:
        banned = stops if len(answer) < stopping.min_tokens else set()
        row = model.next_logits(prompt + answer)
        banned = barred(row, request.sampling, banned, answer, bars)
        answer.append(pick(row, request.sampling, prompt, answer, banned, index))
        if answer[-1] in stops:
            break
    return answer


def token_bytes(directory):
    """{id: bytes} of a byte-level tokenizer.json: GPT-2's printable stand-ins undone."""
    stand_ins, extra = {}, 0
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255:
            stand_ins[chr(byte)] = byte
        else:
            stand_ins[chr(256 + extra)] = byte
            extra += 1
    tokenizer = json.loads((pathlib.Path(directory) / "tokenizer.json").read_text())
    return {i: bytes(stand_ins[c] for c in token)
            for token, i in tokenizer["model"]["vocab"].items()
            if all(c in stand_ins for c in token)}
