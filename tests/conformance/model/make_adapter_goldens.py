#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/conformance/model/adapters/*.json: logits of tiny models with LoRA adapters, computed by PEFT.

    PYTHON tests/conformance/model/make_adapter_goldens.py [NAME...]

PYTHON has torch, transformers 5.23 and peft 0.21; no test needs them. A file names the golden of families/ whose model
and sequences it has, and holds the adapter_config.json as PEFT writes it, the names, shapes and distributions of the
adapter's tensors (weights follow from their names, as in families/), and the logits of the same rows, in float64.
"""
import json
import os
import pathlib
import sys
import tempfile

import peft
import safetensors.torch
import torch

import make_goldens

FOLDER = pathlib.Path(__file__).resolve().parent / "adapters"
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]

# The golden of the model, and the adapter.
CASES = {
    "all_linear": ("llama_yarn", dict(r=8, lora_alpha=16, target_modules="all-linear")),
    "joined": ("phi4", dict(r=6, lora_alpha=9, use_rslora=True, rank_pattern={"qkv_proj": 3},
                            target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"])),
    "interleaved": ("glm4", dict(r=4, lora_alpha=4, target_modules=ATTENTION + ["gate_up_proj", "down_proj"],
                                 alpha_pattern={r"layers\.1\..*": 10, r"layers\.0\.self_attn\.q_proj": 2})),
    "output_gate": ("qwen3_5", dict(r=5, lora_alpha=10, target_modules=ATTENTION + MLP)),
    "other_heads": ("gemma4", dict(r=3, lora_alpha=6, target_modules=["q_proj", "o_proj"] + MLP)),
    "plain_mlp": ("starcoder2", dict(r=7, lora_alpha=7, target_modules=r".*\.(c_fc|c_proj|q_proj|o_proj)")),
    "parallel": ("cohere2", dict(r=2, lora_alpha=3, target_modules=ATTENTION + MLP, layers_to_transform=[0, 2])),
    "wide_norms": ("olmo2", dict(r=16, lora_alpha=8, target_modules=ATTENTION + MLP)),
    "beside_experts": ("gpt_oss", dict(r=4, lora_alpha=8, target_modules=ATTENTION)),
}


def make(name):
    family, options = CASES[name]
    golden, model = make_goldens.make(family)
    model = model.double()
    with tempfile.TemporaryDirectory() as folder:
        adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **options))
        adapted.save_pretrained(folder)
        file = pathlib.Path(folder) / "adapter_model.safetensors"
        stored = {}
        with safetensors.safe_open(file, "pt") as tensors:
            for own in sorted(tensors.keys()):
                shape = list(tensors.get_slice(own).get_shape())
                stored[own] = [shape, 0, 0.5 if ".lora_A." in own else 0.125]
        safetensors.torch.save_file({own: make_goldens.weights(own, *spread) for own, spread in stored.items()}, file)
        config = json.loads((pathlib.Path(folder) / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = None
        # Sets have no order.
        if isinstance(config["target_modules"], list):
            config["target_modules"].sort()
        _, model = make_goldens.make(family)
        adapted = peft.PeftModel.from_pretrained(model.double(), folder).double().eval()
    logits, changed = [], 0
    for sequence, before in zip(golden["sequences"], golden["logits"]):
        with torch.no_grad():
            result = adapted(input_ids=torch.tensor([sequence["ids"]])).logits[0].double()
        logits.append([[float(f"{x:.7g}") for x in result[row].tolist()] for row in sequence["rows"]])
        changed = max(changed, max(abs(a - b) for now, then in zip(logits[-1], before) for a, b in zip(now, then)))
    assert changed > 0.1, changed
    return {"model": family, "adapter_config": config, "tensors": stored, "logits": logits}


def main():
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or CASES:
        path = FOLDER / f"{name}.json"
        path.write_text(make_goldens.text(make(name)))
        print(f"{FOLDER.name}/{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
