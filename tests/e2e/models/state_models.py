# SPDX-License-Identifier: Apache-2.0
"""Tiny random models with recurrent states, one of each kind, with the demo model's tokenizer."""
import json
import subprocess

import fleet

FAMILIES = {
    "lfm2": {"architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "hidden_size": 96, "block_ff_dim": 192,
             "block_multiple_of": 8, "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2,
             "layer_types": ["conv", "full_attention", "conv", "conv"], "conv_L_cache": 3},
    "qwen3_5": {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_size": 96,
                "intermediate_size": 192, "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2,
                "head_dim": 16, "full_attention_interval": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                "linear_key_head_dim": 16, "linear_value_head_dim": 16},
    "granite": {"architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid", "hidden_size": 96,
                "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2,
                "layer_types": ["mamba", "attention", "mamba", "mamba"], "num_local_experts": 4,
                "num_experts_per_tok": 2, "shared_intermediate_size": 64, "mamba_n_heads": 6, "mamba_d_state": 16},
    "nemotron": {"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hidden_size": 96,
                 "intermediate_size": 192, "hybrid_override_pattern": "M-M*EM", "num_attention_heads": 6,
                 "num_key_value_heads": 2, "head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2,
                 "moe_intermediate_size": 48, "moe_shared_expert_intermediate_size": 64, "mamba_num_heads": 8,
                 "mamba_head_dim": 24, "n_groups": 4, "ssm_state_size": 16},
    "mamba2": {"architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "hidden_size": 96,
               "num_hidden_layers": 3, "num_heads": 8, "head_dim": 24, "n_groups": 4, "state_size": 16},
}
SIZES_OF_TEXT = ("vocab_size", "max_position_embeddings", "eos_token_id", "bos_token_id")


def make(family, folder, *flags, dtype="fp32"):
    """Writes the model below `folder` and returns its own. `flags` are continuo-make-model's."""
    demo = json.loads((fleet.DEMO_MODEL / "config.json").read_text())
    config = folder / "config.json"
    config.write_text(json.dumps({**FAMILIES[family],
                                  **{field: demo[field] for field in SIZES_OF_TEXT if field in demo}}))
    model = folder / family
    subprocess.run([fleet.BIN / "continuo-make-model", f"--config={config}", f"--out={model}", f"--dtype={dtype}",
                    f"--tokenizer={fleet.DEMO_MODEL}", *flags], check=True, capture_output=True)
    return model
