# SPDX-License-Identifier: Apache-2.0
"""Random LoRA adapters of a model in PEFT's files, for tests and benches."""
import json
import pathlib
import struct

import numpy

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def write(model, folder, rank=8, alpha=16, seed=1, size=0.5, bf16=False):
    """Writes an adapter of all linear layers of a Llama-like folder. `size` is the effect, as a part of the weights'."""
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    dim = config.get("head_dim") or hidden // heads
    q, kv = heads * dim, config["num_key_value_heads"] * dim
    shapes = {"self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden),
              "self_attn.o_proj": (hidden, q), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
              "mlp.down_proj": (hidden, inner)}
    random = numpy.random.default_rng(seed)
    header, parts, offset = {}, [], 0
    for layer in range(config["num_hidden_layers"]):
        for module, (rows, columns) in shapes.items():
            for part, shape, scale in (("A", (rank, columns), columns ** -0.5), ("B", (rows, rank), size / alpha)):
                values = (random.standard_normal(shape, dtype=numpy.float32) * numpy.float32(scale)).astype("<f4")
                # bf16 is the upper half of a float.
                raw = (values.view("<u4") >> 16).astype("<u2").tobytes() if bf16 else values.tobytes()
                header[f"base_model.model.model.layers.{layer}.{module}.lora_{part}.weight"] = {
                    "dtype": "BF16" if bf16 else "F32", "shape": list(shape),
                    "data_offsets": [offset, offset + len(raw)]}
                parts.append(raw)
                offset += len(raw)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    text = json.dumps(header).encode()
    with open(folder / "adapter_model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for raw in parts:
            file.write(raw)
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": alpha, "lora_dropout": 0.05,
        "bias": "none", "target_modules": list(TARGETS), "modules_to_save": None, "inference_mode": True}))
    return folder
