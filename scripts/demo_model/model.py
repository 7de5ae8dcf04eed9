# SPDX-License-Identifier: Apache-2.0
"""The Llama architecture in JAX: parameters by their Hugging Face names, and the forward pass for training."""

import jax
import jax.numpy as jnp
import numpy as np

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 2048,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "mlp_bias": False,
    "initializer_range": 0.02,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}


EMBEDDING_SCALE = 0.05
RECENT = 6  # how many tokens back the heads of the first layer look


def _orthonormal(rng, rows, columns):
    """A matrix whose rows, or columns where they are fewer, are orthonormal."""
    q, _ = np.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
    return q if rows > columns else q.T


def initial_parameters(config: dict, seed: int, tokens: list[str]) -> dict:
    """Random, but near what recall from the prompt needs, which saves most of the training.

    * Tokens that differ in a leading space or in case begin with nearly the same embedding.
    * All but the last two heads of the first layer look 1, 2, … RECENT tokens back (a constant in the
      embedding's first dimension, turned by RoPE, makes their queries and keys) and add what they find
      to one subspace: each token then carries its recent past.
    * The second and third layer look for tokens whose recent past is that of the present token and copy
      them. Only the slow half of the RoPE frequencies takes part.

    Matrices have Hugging Face's shape [outputs, inputs].
    """
    rng = np.random.default_rng(seed)
    d, f, hd = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    group, half = heads // kv_heads, hd // 2

    def matrix(rows, columns, scale=1.0):
        return rng.standard_normal((rows, columns)) * scale / np.sqrt(columns)

    shared = {}
    for token in tokens:
        shared.setdefault(token.removeprefix("Ġ").lower(), rng.standard_normal(d))
    embedding = np.stack([shared[token.removeprefix("Ġ").lower()] for token in tokens])
    embedding = EMBEDDING_SCALE * (0.9 * embedding + 0.45 * rng.standard_normal(embedding.shape))
    embedding[:, 0] = 2 * EMBEDDING_SCALE
    p = {"model.embed_tokens.weight": embedding, "model.norm.weight": np.ones(d)}

    read_token, write_past = _orthonormal(rng, hd, d), _orthonormal(rng, d, hd)
    read_token[:, 0] = 0
    for i in range(config["num_hidden_layers"]):
        q, k, v = matrix(heads * hd, d), matrix(kv_heads * hd, d), matrix(kv_heads * hd, d)
        o = np.zeros((d, heads * hd))
        if i == 0:
            fast = np.arange(half) < 6
            frequency = config["rope_theta"] ** (-np.arange(half) / half)
            for head in range(RECENT):
                rows = slice(head * hd, (head + 1) * hd)
                turn = -(head + 1) * frequency
                q[rows] *= 0.1
                q[rows, 0] = 3.2 * np.concatenate([fast * np.cos(turn), fast * np.sin(turn)])
                o[:, rows] = 0.1 * write_past
            for kv_head in range(RECENT // group):
                rows = slice(kv_head * hd, (kv_head + 1) * hd)
                k[rows] *= 0.1
                k[rows, 0] = 3.2 * np.concatenate([fast, 0 * fast])
                v[rows] = read_token
        elif i <= 2:
            copy = _orthonormal(rng, kv_heads * hd, d)
            slow = np.concatenate([np.arange(half) >= half // 2] * 2)
            for kv_head in range(kv_heads):
                rows = slice(kv_head * hd, (kv_head + 1) * hd)
                mix = _orthonormal(rng, half, hd)
                k[rows][slow] = 1.3 * mix @ write_past.T
                k[rows][~slow] *= 0.3
                v[rows] = copy[rows]
                for head in range(kv_head * group, (kv_head + 1) * group):
                    rows_q = slice(head * hd, (head + 1) * hd)
                    q[rows_q][slow] = 1.3 * mix @ (write_past.T + 2 * read_token)
                    q[rows_q][~slow] *= 0.3
                    o[:, rows_q] = 0.1 * copy[rows].T
        at = f"model.layers.{i}."
        p |= {at + "input_layernorm.weight": np.ones(d), at + "post_attention_layernorm.weight": np.ones(d),
              at + "self_attn.q_proj.weight": q, at + "self_attn.k_proj.weight": k,
              at + "self_attn.v_proj.weight": v, at + "self_attn.o_proj.weight": o,
              at + "mlp.gate_proj.weight": matrix(f, d), at + "mlp.up_proj.weight": matrix(f, d),
              at + "mlp.down_proj.weight": np.zeros((d, f))}
    return {name: jnp.asarray(value, jnp.float32) for name, value in p.items()}


def _rms_norm(x, gain, eps):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps) * gain


def _rotate(x, cos, sin):
    """x [rows, tokens, heads, head_dim]; the halves of a head are the pairs that turn."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def logits(config: dict, p: dict, ids, positions, where=None):
    """ids, positions [rows, tokens] → logits [rows, tokens, vocabulary]; causal, padding at the end of a row.

    With `where`, indices into rows × tokens flattened, only theirs: [len(where), vocabulary].
    """
    rows, tokens = ids.shape
    heads, kv_heads, hd = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    eps = config["rms_norm_eps"]
    frequency = config["rope_theta"] ** (-jnp.arange(0, hd, 2, dtype=jnp.float32) / hd)
    angle = positions[..., None].astype(jnp.float32) * frequency
    cos, sin = jnp.cos(angle)[:, :, None, :], jnp.sin(angle)[:, :, None, :]
    causal = jnp.tril(jnp.ones((tokens, tokens), bool))
    embedding = p["model.embed_tokens.weight"]
    x = embedding[ids]
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        h = _rms_norm(x, p[at + "input_layernorm.weight"], eps)
        q = (h @ p[at + "self_attn.q_proj.weight"].T).reshape(rows, tokens, heads, hd)
        k = (h @ p[at + "self_attn.k_proj.weight"].T).reshape(rows, tokens, kv_heads, hd)
        v = (h @ p[at + "self_attn.v_proj.weight"].T).reshape(rows, tokens, kv_heads, hd)
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
        q = q.reshape(rows, tokens, kv_heads, heads // kv_heads, hd)
        scores = jnp.einsum("btkgd,bskd->bkgts", q, k) * hd**-0.5
        weights = jax.nn.softmax(jnp.where(causal, scores, -1e30), axis=-1)
        mixed = jnp.einsum("bkgts,bskd->btkgd", weights, v).reshape(rows, tokens, heads * hd)
        x = x + mixed @ p[at + "self_attn.o_proj.weight"].T
        h = _rms_norm(x, p[at + "post_attention_layernorm.weight"], eps)
        gate = jax.nn.silu(h @ p[at + "mlp.gate_proj.weight"].T) * (h @ p[at + "mlp.up_proj.weight"].T)
        x = x + gate @ p[at + "mlp.down_proj.weight"].T
    if where is not None:
        x = x.reshape(rows * tokens, -1)[where]
    return _rms_norm(x, p["model.norm.weight"], eps) @ embedding.T
