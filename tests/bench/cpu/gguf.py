#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a Qwen3 model's Hugging Face folder, as continuo-make-model makes them, as a GGUF file, so
that llama.cpp runs on the same weights: gguf.py MODEL_DIR OUT.gguf

The format is version 3 of github.com/ggml-org/ggml/blob/master/docs/gguf.md. Matrices stay bf16 as
they are stored, gains become f32, which llama.cpp wants of them.
"""
import json
import pathlib
import struct
import sys

import numpy

UINT32, FLOAT32, STRING, ARRAY, INT32 = 4, 6, 8, 9, 5
TENSOR_F32, TENSOR_BF16 = 0, 30
FILE_TYPE_BF16 = 32
ALIGNMENT = 32
NORMAL, CONTROL = 1, 3  # kinds of token

LAYER = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down"}
OUTER = {"model.embed_tokens.weight": "token_embd.weight",
         "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}


def name_of(tensor):
    """GGUF's name of a tensor of Hugging Face's."""
    if tensor in OUTER:
        return OUTER[tensor]
    _, _, layer, rest = tensor.split(".", 3)
    return f"blk.{layer}.{LAYER[rest.removesuffix('.weight')]}.weight"


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, data):
    return string(key) + struct.pack("<I", kind) + data


def array(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def metadata(config, tokens, kinds):
    def count(key, value):
        return entry(key, UINT32, struct.pack("<I", value))

    def number(key, value):
        return entry(key, FLOAT32, struct.pack("<f", value))

    return [
        entry("general.architecture", STRING, string("qwen3")),
        entry("general.name", STRING, string("continuo-make-model")),
        count("general.file_type", FILE_TYPE_BF16),
        count("qwen3.block_count", config["num_hidden_layers"]),
        count("qwen3.context_length", config["max_position_embeddings"]),
        count("qwen3.embedding_length", config["hidden_size"]),
        count("qwen3.feed_forward_length", config["intermediate_size"]),
        count("qwen3.attention.head_count", config["num_attention_heads"]),
        count("qwen3.attention.head_count_kv", config["num_key_value_heads"]),
        count("qwen3.attention.key_length", config["head_dim"]),
        count("qwen3.attention.value_length", config["head_dim"]),
        number("qwen3.attention.layer_norm_rms_epsilon", config["rms_norm_eps"]),
        number("qwen3.rope.freq_base", config["rope_theta"]),
        entry("tokenizer.ggml.model", STRING, string("gpt2")),
        entry("tokenizer.ggml.pre", STRING, string("gpt-2")),
        entry("tokenizer.ggml.tokens", ARRAY, array(STRING, [string(t) for t in tokens])),
        entry("tokenizer.ggml.token_type", ARRAY,
              array(INT32, [struct.pack("<i", kind) for kind in kinds])),
        entry("tokenizer.ggml.merges", ARRAY, array(STRING, [])),
        count("tokenizer.ggml.bos_token_id", config["bos_token_id"]),
        count("tokenizer.ggml.eos_token_id", config["eos_token_id"])]


def read_tokens(folder, vocab_size):
    """Text and kind of each id; ids without a text get one that no text has."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokens = [f"<|unused_{i}|>" for i in range(vocab_size)]
    kinds = [CONTROL] * vocab_size
    for text, i in tokenizer["model"]["vocab"].items():
        tokens[i], kinds[i] = text, NORMAL
    for added in tokenizer.get("added_tokens", []):
        tokens[added["id"]], kinds[added["id"]] = added["content"], CONTROL
    return tokens, kinds


def read_tensors(folder):
    """(name, shape, type, bytes) of each tensor; bytes are views of mapped files."""
    for path in sorted(folder.glob("*.safetensors")):
        data = numpy.memmap(path, numpy.uint8, "r")
        (size,) = struct.unpack("<Q", data[:8].tobytes())
        header = json.loads(data[8:8 + size].tobytes())
        header.pop("__metadata__", None)
        for name, info in header.items():
            if info["dtype"] != "BF16":
                raise ValueError(f"{name} is {info['dtype']}, not BF16")
            begin, end = info["data_offsets"]
            values = data[8 + size + begin:8 + size + end]
            if len(info["shape"]) == 1:
                wide = values.view(numpy.uint16).astype(numpy.uint32) << 16
                yield name_of(name), info["shape"], TENSOR_F32, wide.view(numpy.uint8)
            else:
                yield name_of(name), info["shape"], TENSOR_BF16, values


def padding(size):
    return b"\0" * (-size % ALIGNMENT)


def write_gguf(folder, out):
    config = json.loads((folder / "config.json").read_text())
    if config["architectures"] != ["Qwen3ForCausalLM"]:
        raise ValueError(f"{config['architectures']} is not Qwen3ForCausalLM")
    entries = metadata(config, *read_tokens(folder, config["vocab_size"]))
    tensors = list(read_tensors(folder))
    infos, offset = [], 0
    for name, shape, kind, data in tensors:
        dims = b"".join(struct.pack("<Q", n) for n in reversed(shape))
        infos.append(string(name) + struct.pack("<I", len(shape)) + dims +
                     struct.pack("<IQ", kind, offset))
        offset += len(data) + len(padding(len(data)))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    head += b"".join(entries) + b"".join(infos)
    with open(out, "wb") as f:
        f.write(head + padding(len(head)))
        for _, _, _, data in tensors:
            f.write(data.tobytes())
            f.write(padding(len(data)))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    write_gguf(pathlib.Path(sys.argv[1]), sys.argv[2])
