#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/conformance/model/families/*.json: logits of tiny models of every family, computed by transformers; and
mtp/*.json: what modules for multi-token prediction make of the hidden states of some of these.

    PYTHON tests/conformance/model/make_goldens.py [NAME...]

PYTHON has torch and transformers 5.23; no test needs them. A file holds a config.json, the names, shapes and
distributions of the tensors, some sequences and the logits of some of their rows, in float64 but for what
transformers itself computes in float32. Weights are not stored: element i of a tensor follows from its name and i
(`weights` below, WeightOf in family_goldens.h).
"""
import copy
import importlib
import json
import math
import os
import pathlib
import sys
import tempfile

import numpy
import safetensors.torch
import torch
import transformers

FOLDER = pathlib.Path(__file__).resolve().parent / "families"
VOCABULARY = 23
LENGTHS = (19, 7, 12)
MASK = (1 << 64) - 1
MTP_FOLDER = FOLDER.parent / "mtp"
# The families with such a module, and transformers' folder of each.
MTP_CASES = {"qwen3_5": "qwen3_5", "qwen3_5_moe": "qwen3_5_moe", "qwen3_next": "qwen3_next"}


def weights(name, shape, offset, amplitude):
    """The elements of a tensor, float32: offset + amplitude · u, u in [-1, 1) from a hash of name and index."""
    key = 0xCBF29CE484222325
    for byte in name.encode():
        key = ((key ^ byte) * 0x100000001B3) & MASK
    x = numpy.arange(math.prod(shape), dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15) + numpy.uint64(key)
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    x = x ^ (x >> numpy.uint64(31))
    u = (x >> numpy.uint64(40)).astype(numpy.float64) * 2.0**-23 - 1
    return torch.from_numpy((offset + amplitude * u).astype(numpy.float32)).reshape(shape)


def distribution(name, shape, gains_less_one):
    """Offset and amplitude, numbers that binary fractions hold."""
    if name.endswith("_proj_bias"):  # large enough that values are clamped
        return 0, 8.0
    if name.endswith("A_log"):  # some states last long, some do not
        return 0, 2.0
    if len(shape) == 3 and "conv" in name:  # taps
        return 0, 1.0
    if name.endswith("sinks"):
        return 0, 2.0
    if name.endswith(("layer_scalar", "router.scale", "per_expert_scale", "layernorm_1.weight", "layernorm_2.weight")):
        return 1, 0.25
    if len(shape) == 1 or name.endswith(("e_score_correction_bias", "expert_bias")):
        is_gain = name.endswith(("norm.weight", "norm_f.weight")) or ".pre_fc_norm_" in name
        gains_less_one = gains_less_one and not name.endswith("linear_attn.norm.weight")
        return (0 if gains_less_one or not is_gain else 1), 0.25
    if name.endswith(("embed_tokens.weight", "embeddings.weight", "lm_head.weight", "tok_embeddings.weight",
                      "output.weight")):
        return 0, 0.5
    return 0, 2.0 ** round(math.log2(1.7 / math.sqrt(shape[-1])))


def base(*absent, **more):
    """Returns the config.json of a tiny model, without some fields and with more of them."""
    config = {"vocab_size": VOCABULARY, "hidden_size": 24, "intermediate_size": 36, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
            "eos_token_id": 1, "bos_token_id": 2, "pad_token_id": 0, "tie_word_embeddings": False, **more}
    return {field: value for field, value in config.items() if field not in absent}


SLIDING, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"
# Sizes of experts and, of DeepSeek's families, of latent vectors and heads.
MOE = {"moe_intermediate_size": 20, "num_experts_per_tok": 2}
DEEPSEEK = {**MOE, "n_routed_experts": 8, "n_shared_experts": 2, "routed_scaling_factor": 1.5, "kv_lora_rank": 14,
            "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 8, "rope_theta": 50.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
# The steps' lower bound, which transformers takes for prompts alone, does nothing here.
NEMOTRON = {"layer_norm_epsilon": 1e-5, "head_dim": 8, "mamba_num_heads": 8, "mamba_head_dim": 6, "n_groups": 4,
            "ssm_state_size": 10, "conv_kernel": 4, "use_conv_bias": True, "use_bias": False, "mlp_bias": False,
            "mlp_hidden_act": "relu2", "mamba_hidden_act": "silu", "expand": 2, "chunk_size": 16,
            "time_step_min": 1e-12, "time_step_max": 0.1, "time_step_floor": 1e-13, "residual_in_fp32": False,
            "attention_bias": False, "use_mamba_kernels": False, "model_type": "nemotron_h"}
TINY_VISION = {
    "gemma3": {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
               "image_size": 28, "patch_size": 14, "model_type": "siglip_vision_model"},
    "mistral3": {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
                 "image_size": 28, "patch_size": 14, "head_dim": 4, "model_type": "pixtral"},
    "gemma4": {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
               "num_key_value_heads": 2, "head_dim": 4, "patch_size": 4, "position_embedding_size": 16,
               "model_type": "gemma4_vision"},
    "llama4": {"hidden_size": 8, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
               "image_size": 28, "patch_size": 14, "vision_output_dim": 8, "projector_input_dim": 8,
               "projector_output_dim": 8, "pixel_shuffle_ratio": 0.5, "model_type": "llama4_vision_model"},
    "qwen3_5": {"hidden_size": 8, "intermediate_size": 8, "depth": 1, "num_heads": 2, "patch_size": 4,
                "out_hidden_size": 24, "num_position_embeddings": 16, "model_type": "qwen3_5"},
}

QWEN3_5 = dict(num_hidden_layers=4, head_dim=8, full_attention_interval=3, layer_types=[LINEAR, LINEAR, FULL, LINEAR],
               linear_conv_kernel_dim=4, linear_key_head_dim=6, linear_value_head_dim=10, linear_num_key_heads=2,
               linear_num_value_heads=4, attn_output_gate=True, mamba_ssm_dtype="float32", mtp_num_hidden_layers=1,
               rope_parameters={"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5,
                                "mrope_section": [2, 1, 1], "mrope_interleaved": True}, model_type="qwen3_5_text")

GRANITE_H = dict(num_hidden_layers=4, layer_types=["mamba", "mamba", "attention", "mamba"], mamba_n_heads=6,
                 mamba_n_groups=1, mamba_d_state=10, mamba_d_head=8, mamba_d_conv=4, mamba_expand=2,
                 mamba_conv_bias=True, mamba_proj_bias=False, mamba_chunk_size=256, shared_intermediate_size=28,
                 embedding_multiplier=3.0, attention_multiplier=0.25, residual_multiplier=0.22, logits_scaling=2.0,
                 normalization_function="rmsnorm", init_method="mup", attention_bias=False,
                 model_type="granitemoehybrid")

GEMMA4 = dict(head_dim=8, global_head_dim=16, hidden_activation="gelu_pytorch_tanh", sliding_window=5,
              tie_word_embeddings=True, num_hidden_layers=6, layer_types=[SLIDING, SLIDING, FULL] * 2,
              vocab_size_per_layer_input=VOCABULARY, hidden_size_per_layer_input=0, num_kv_shared_layers=0,
              attention_bias=False, use_bidirectional_attention="vision", model_type="gemma4_text",
              rope_parameters={SLIDING: {"rope_type": "default", "rope_theta": 10.0},
                               FULL: {"rope_type": "proportional", "rope_theta": 100.0,
                                      "partial_rotary_factor": 0.25}})

LLAMA4 = dict(num_hidden_layers=4, head_dim=8, intermediate_size=20, intermediate_size_mlp=36, num_local_experts=5,
              num_experts_per_tok=1, interleave_moe_layer_step=2, no_rope_layers=[1, 1, 0, 1], attention_chunk_size=6,
              attn_temperature_tuning=True, attn_scale=0.5, floor_scale=4, use_qk_norm=True, rope_theta=100.0,
              attention_bias=False, router_jitter_noise=0.0, model_type="llama4_text",
              rope_scaling={"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
                            "original_max_position_embeddings": 8})

# Name -> architecture, config.json as such models are published with, and changes of a field of it that must
# move the logits or be refused, which shows that the tests can fail.
GEMMA3 = dict(head_dim=8, hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=12, sliding_window=5,
              rope_theta=1000000.0, rope_local_base_freq=10.0, model_type="gemma3_text", num_hidden_layers=4)
CASES = {
    "gemma": ("GemmaForCausalLM", base(head_dim=8, hidden_act="gelu", tie_word_embeddings=True, model_type="gemma"),
              {"rope_theta": 10.0}),
    "gemma3": ("Gemma3ForCausalLM",
               base(**GEMMA3, tie_word_embeddings=True, sliding_window_pattern=3,
                    rope_scaling={"rope_type": "linear", "factor": 8.0}),
               {"sliding_window": 60, "rope_local_base_freq": 10000.0, "query_pre_attn_scalar": 8,
                "sliding_window_pattern": 2, "rope_scaling": None}),
    "gemma3_images": ("Gemma3ForConditionalGeneration",
                      {"model_type": "gemma3", "text_config": base(**GEMMA3, layer_types=[SLIDING, FULL] * 2,
                                                                   tie_word_embeddings=True),
                       "vision_config": TINY_VISION["gemma3"], "mm_tokens_per_image": 4, "image_token_index": 22,
                       "boi_token_index": 21, "eoi_token_index": 20, "tie_word_embeddings": True}, {}),
    # The small ones: embeddings of each layer, the last layers read the keys and values of others.
    "gemma4": ("Gemma4ForCausalLM",
               base(**{**GEMMA4, "hidden_size_per_layer_input": 6, "num_kv_shared_layers": 3,
                       "use_double_wide_mlp": True, "final_logit_softcapping": 3.0}),
               {"sliding_window": 60, "final_logit_softcapping": None, "rms_norm_eps": 0.5,
                "rope_parameters": {**GEMMA4["rope_parameters"],
                                    FULL: {**GEMMA4["rope_parameters"][FULL], "partial_rotary_factor": 0.5}},
                "use_bidirectional_attention": "all"}),
    # The large ones: fewer keys in layers without windows, which are values, too.
    "gemma4_keys": ("Gemma4ForCausalLM",
                    base(**GEMMA4, attention_k_eq_v=True, num_global_key_value_heads=1),
                    {"rope_parameters": {**GEMMA4["rope_parameters"],
                                         SLIDING: {"rope_type": "default", "rope_theta": 10000.0}}}),
    "gemma4_moe": ("Gemma4ForCausalLM",
                   base(**GEMMA4, attention_k_eq_v=True, num_global_key_value_heads=1, enable_moe_block=True,
                        num_experts=6, top_k_experts=2, moe_intermediate_size=20),
                   {"top_k_experts": 3, "rms_norm_eps": 0.5}),
    # transformers reads placeholders as padding, so they are none of the sequences' ids.
    "gemma4_images": ("Gemma4ForConditionalGeneration",
                      {"model_type": "gemma4", "vision_config": TINY_VISION["gemma4"], "audio_config": None,
                       "text_config": base(**GEMMA4), "image_token_id": 22, "boi_token_id": 21, "eoi_token_id": 20,
                       "video_token_id": 22, "audio_token_id": 22, "boa_token_id": 21, "eoa_token_index": 20,
                       "tie_word_embeddings": True}, {}),
    "granite": ("GraniteForCausalLM",
                base(embedding_multiplier=12.0, attention_multiplier=0.25, residual_multiplier=0.22,
                     logits_scaling=8.0, attention_bias=True, mlp_bias=True, model_type="granite"),
                {"embedding_multiplier": 11.0, "attention_multiplier": 0.125, "residual_multiplier": 0.3,
                 "logits_scaling": 4.0}),
    "smollm3": ("SmolLM3ForCausalLM",
                base(num_hidden_layers=4, no_rope_layer_interval=2, no_rope_layers=[1, 0, 1, 0], rope_theta=50.0,
                     tie_word_embeddings=True, use_sliding_window=False, sliding_window=None,
                     layer_types=[FULL] * 4, max_window_layers=28, model_type="smollm3"),
                {"no_rope_layers": [1, 1, 1, 1], "rope_theta": 10000.0}),
    "smollm3_windows": ("SmolLM3ForCausalLM",
                        base(num_hidden_layers=4, no_rope_layers=[1, 0, 1, 0], rope_theta=50.0,
                             use_sliding_window=True, sliding_window=4, model_type="smollm3"),
                        {"use_sliding_window": False, "sliding_window": 6}),
    "seed_oss": ("SeedOssForCausalLM", base(head_dim=8, attention_bias=True, attention_out_bias=False,
                                            rope_theta=100.0, model_type="seed_oss"), {"rope_theta": 10000.0}),
    "phi4": ("Phi3ForCausalLM", base(partial_rotary_factor=0.75, num_attention_heads=3,
                                     num_key_value_heads=1, sliding_window=6, rope_theta=50.0, model_type="phi3"),
             {"sliding_window": None}),
    "qwen2_yarn": ("Qwen2ForCausalLM", base(rope_scaling=YARN, rope_theta=100.0, model_type="qwen2"),
                   {"rope_scaling": None}),
    "qwen3_yarn": ("Qwen3ForCausalLM",
                   base(rope_scaling={**YARN, "beta_fast": 2.0, "beta_slow": 0.25, "attention_factor": 1.5},
                        head_dim=16, rope_theta=100.0, model_type="qwen3"),
                   {"rope_scaling": YARN}),
    "llama_yarn": ("LlamaForCausalLM",
                   base(rope_scaling={**YARN, "mscale": 1.5, "mscale_all_dim": 0.5, "truncate": False},
                        head_dim=16, rope_theta=100.0, model_type="llama"),
                   {"rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}),
    "qwen3_5": ("Qwen3_5ForCausalLM", base(**QWEN3_5), {
        "attn_output_gate": False, "rms_norm_eps": 0.1,
        "rope_parameters": {**QWEN3_5["rope_parameters"], "partial_rotary_factor": 1.0}}),
    "qwen3_5_images": ("Qwen3_5ForConditionalGeneration",
                       {"model_type": "qwen3_5", "text_config": base(**QWEN3_5), "vision_config": TINY_VISION["qwen3_5"],
                        "image_token_id": 22, "video_token_id": 21, "vision_start_token_id": 20,
                        "vision_end_token_id": 19, "tie_word_embeddings": False}, {}),
    "qwen3_5_moe": ("Qwen3_5MoeForCausalLM",
                    base("intermediate_size", **{**QWEN3_5, **MOE, "model_type": "qwen3_5_moe_text"}, num_experts=6,
                         shared_expert_intermediate_size=28),
                    {"num_experts_per_tok": 3, "norm_topk_prob": False, "mlp_only_layers": [1]}),
    "qwen3_next": ("Qwen3NextForCausalLM",
                   base(**{**QWEN3_5, **MOE, "model_type": "qwen3_next", "rope_parameters": None},
                        num_experts=6, shared_expert_intermediate_size=28, decoder_sparse_step=1, mlp_only_layers=[2],
                        norm_topk_prob=True, rope_theta=100.0, partial_rotary_factor=0.5),
                   {"num_experts_per_tok": 3, "norm_topk_prob": False, "partial_rotary_factor": 1.0}),
    "lfm2_moe": ("Lfm2MoeForCausalLM",
                 base("rms_norm_eps", **MOE, num_hidden_layers=4, norm_eps=1e-5, rope_theta=50.0, num_experts=6,
                      num_dense_layers=1, use_expert_bias=True, norm_topk_prob=True, routed_scaling_factor=1.5,
                      layer_types=["conv", FULL, "conv", FULL], conv_L_cache=3, conv_bias=False, model_type="lfm2_moe"),
                 {"num_experts_per_tok": 3, "norm_topk_prob": False, "routed_scaling_factor": 1.0,
                  "rope_theta": 10000.0}),
    "granite_hybrid": ("GraniteMoeHybridForCausalLM",
                       base(**GRANITE_H, num_local_experts=5, num_experts_per_tok=2, position_embedding_type="nope"),
                       {"num_experts_per_tok": 3, "position_embedding_type": "rope", "residual_multiplier": 0.5,
                        "time_step_limit": [0.5, 0.6], "rms_norm_eps": 0.5, "mamba_proj_bias": True}),
    "granite_hybrid_dense": ("GraniteMoeHybridForCausalLM",
                             base(**{**GRANITE_H, "mamba_conv_bias": False, "mamba_d_head": "auto"},
                                  num_local_experts=0, position_embedding_type="rope", rope_theta=50.0),
                             {"rope_theta": 10000.0}),
    "nemotron_h": ("NemotronHForCausalLM",
                   base("rms_norm_eps", **{**NEMOTRON, "num_hidden_layers": 5}, hybrid_override_pattern="-M*-M"),
                   {"layer_norm_epsilon": 0.5, "time_step_limit": [0.5, 0.6],
                    "use_bias": True, "mlp_hidden_act": "silu"}),
    "nemotron_h_moe": ("NemotronHForCausalLM",
                       base("rms_norm_eps", "num_hidden_layers", **{**NEMOTRON, "use_conv_bias": False},
                            layers_block_type=["mamba", "moe", "mamba", "attention", "moe", "mlp"],
                            n_routed_experts=5, num_experts_per_tok=2, moe_intermediate_size=20,
                            moe_shared_expert_intermediate_size=28, n_shared_experts=1, routed_scaling_factor=2.5,
                            n_group=1, topk_group=1, norm_topk_prob=True),
                       {"num_experts_per_tok": 3, "norm_topk_prob": False, "routed_scaling_factor": 1.0,
                        "n_shared_experts": 2}),
    "nemotron_h_latent": ("NemotronHForCausalLM",
                          base("rms_norm_eps", "num_hidden_layers", **NEMOTRON,
                               layers_block_type=["mamba", "moe", "attention", "moe"], n_routed_experts=6,
                               num_experts_per_tok=3, moe_intermediate_size=20, moe_latent_size=10,
                               moe_shared_expert_intermediate_size=28, n_shared_experts=1,
                               routed_scaling_factor=2.5, n_group=1, topk_group=1, norm_topk_prob=True),
                          {"num_experts_per_tok": 2, "routed_scaling_factor": 1.0, "mlp_bias": True}),
    "mamba2": ("Mamba2ForCausalLM",
               {"vocab_size": VOCABULARY, "hidden_size": 24, "num_hidden_layers": 3, "num_heads": 8, "head_dim": 6,
                "n_groups": 4, "state_size": 10, "conv_kernel": 3, "expand": 2, "chunk_size": 16, "use_bias": False,
                "use_conv_bias": True, "layer_norm_epsilon": 1e-5, "rms_norm": True, "norm_before_gate": True,
                "residual_in_fp32": True, "hidden_act": "silu", "tie_word_embeddings": True, "eos_token_id": 1,
                "bos_token_id": 2, "pad_token_id": 0, "model_type": "mamba2"},
               {"layer_norm_epsilon": 0.5, "time_step_limit": [0.5, 0.6], "use_bias": True, "hidden_act": "gelu"}),
    "llama4": ("Llama4ForCausalLM", base(**LLAMA4),
               {"attention_chunk_size": 60, "attn_temperature_tuning": False, "attn_scale": 0.25, "floor_scale": 8,
                "use_qk_norm": False, "no_rope_layers": [1, 1, 1, 1], "num_experts_per_tok": 2, "rope_scaling": None,
                "rope_theta": 10000.0}),
    "llama4_images": ("Llama4ForConditionalGeneration",
                      {"model_type": "llama4", "vision_config": TINY_VISION["llama4"], "image_token_index": 22,
                       "boi_token_index": 21, "eoi_token_index": 20, "tie_word_embeddings": False,
                       "text_config": base("tie_word_embeddings", **{
                           **LLAMA4, "num_experts_per_tok": 2, "interleave_moe_layer_step": 1, "no_rope_layers": [],
                           "no_rope_layer_interval": 2, "use_qk_norm": False, "attention_bias": True})}, {}),
    "ministral": ("MinistralForCausalLM", base(head_dim=8, sliding_window=5, layer_types=[SLIDING, FULL, SLIDING],
                                               model_type="ministral"), {"sliding_window": 8}),
    "ministral3": ("Ministral3ForCausalLM",
                   base(head_dim=8, model_type="ministral3",
                        rope_parameters={**YARN, "rope_theta": 100.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
                                         "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}),
                   {"rope_parameters": {**YARN, "rope_theta": 100.0, "mscale": 1.0, "mscale_all_dim": 1.0}}),
    "mistral3_images": ("Mistral3ForConditionalGeneration",
                        {"model_type": "mistral3", "text_config": base(head_dim=8, sliding_window=None,
                                                                       rope_theta=100.0, model_type="mistral"),
                         "vision_config": TINY_VISION["mistral3"], "image_token_index": 10,
                         "spatial_merge_size": 2, "tie_word_embeddings": False}, {}),
    "lfm2": ("Lfm2ForCausalLM",
             base("rms_norm_eps", num_hidden_layers=5, norm_eps=1e-5, rope_theta=50.0, model_type="lfm2",
                  layer_types=["conv", FULL, "conv", "conv", FULL], conv_L_cache=3, conv_bias=False,
                  block_multiple_of=8, block_ffn_dim_multiplier=1.5, tie_word_embeddings=True),
             {"rope_theta": 10000.0, "norm_eps": 0.5}),
    "lfm2_bias": ("Lfm2ForCausalLM",
                  base("rms_norm_eps", "intermediate_size", num_hidden_layers=4, norm_eps=1e-5, rope_theta=50.0,
                       model_type="lfm2", full_attn_idxs=[1], conv_L_cache=4, conv_bias=True, block_ff_dim=36,
                       block_auto_adjust_ff_dim=False, tie_word_embeddings=False),
                  {"rope_theta": 10000.0}),
    "olmo2": ("Olmo2ForCausalLM", base(rope_theta=50.0, model_type="olmo2"), {"rope_theta": 10000.0}),
    "olmo3": ("Olmo3ForCausalLM",
              base(num_hidden_layers=4, sliding_window=5, rope_theta=500000.0, model_type="olmo3",
                   rope_scaling={**YARN, "attention_factor": 1.25, "beta_fast": 32.0, "beta_slow": 1.0}),
              {"sliding_window": 9, "layer_types": [SLIDING] * 4, "rope_scaling": None}),
    "glm": ("GlmForCausalLM", base(head_dim=8, attention_bias=True, partial_rotary_factor=0.5, rope_theta=10.0,
                                   model_type="glm"), {"partial_rotary_factor": 0.75}),
    "glm4": ("Glm4ForCausalLM", base(head_dim=8, attention_bias=True, partial_rotary_factor=0.5, rope_theta=10.0,
                                     model_type="glm4"), {"partial_rotary_factor": 1.0, "rope_theta": 50.0}),
    "cohere2": ("Cohere2ForCausalLM",
                base("rms_norm_eps", num_hidden_layers=4, layer_norm_eps=1e-5, logit_scale=0.25, sliding_window=5,
                     sliding_window_pattern=3, rope_theta=50.0, tie_word_embeddings=True, model_type="cohere2"),
                {"sliding_window": 9, "logit_scale": 0.5, "sliding_window_pattern": 2, "use_qk_norm": True}),
    "exaone4": ("Exaone4ForCausalLM",
                base(num_hidden_layers=4, sliding_window=5, sliding_window_pattern="LLG",
                     layer_types=[SLIDING, SLIDING, FULL, FULL], rope_theta=50.0, model_type="exaone4"),
                {"sliding_window": 9, "rope_theta": 5000.0}),
    "exaone4_full": ("Exaone4ForCausalLM",
                     base(sliding_window=None, sliding_window_pattern=None, layer_types=[FULL] * 3, rope_theta=50.0,
                          model_type="exaone4"), {"rope_theta": 5000.0}),
    "ernie4_5": ("Ernie4_5ForCausalLM", base(head_dim=8, use_bias=True, rope_theta=50.0, model_type="ernie4_5"),
                 {"rope_theta": 5000.0}),
    "hunyuan": ("HunYuanDenseV1ForCausalLM",
                base(head_dim=8, rope_theta=10.0, model_type="hunyuan_v1_dense", use_qk_norm=True,
                     rope_scaling={"type": "dynamic", "alpha": 20.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1,
                                   "mscale": 1.0, "mscale_all_dim": 1.0}),
                {"rope_scaling": None, "use_qk_norm": False}),
    "internlm3": ("InternLM3ForCausalLM", base(head_dim=8, qkv_bias=True, bias=True, rope_theta=50.0,
                                               rope_scaling={"rope_type": "dynamic", "factor": 6.0},
                                               model_type="internlm3"), {"rope_theta": 5000.0}),
    "internlm2": ("InternLM2ForCausalLM", base(bias=True, rope_theta=50.0, hidden_act="silu", model_type="internlm2"),
                  {"rope_theta": 5000.0}),
    "minicpm": ("MiniCPMForCausalLM",
                base(scale_emb=12, scale_depth=1.4, dim_model_base=8, rope_theta=50.0, model_type="minicpm"),
                {"scale_emb": 11, "scale_depth": 1.0, "dim_model_base": 16}),
    "olmoe": ("OlmoeForCausalLM",
              base(intermediate_size=20, num_experts=7, num_experts_per_tok=3, norm_topk_prob=False, clip_qkv=None,
                   rope_theta=50.0, model_type="olmoe"),
              {"num_experts_per_tok": 2, "norm_topk_prob": True, "clip_qkv": 0.5}),
    "granitemoe": ("GraniteMoeForCausalLM",
                   base(intermediate_size=20, num_local_experts=6, num_experts_per_tok=2, embedding_multiplier=12.0,
                        attention_multiplier=0.25, residual_multiplier=0.22, logits_scaling=8.0, rope_theta=50.0,
                        tie_word_embeddings=True, model_type="granitemoe"),
                   {"num_experts_per_tok": 3, "residual_multiplier": 0.3}),
    "granitemoeshared": ("GraniteMoeSharedForCausalLM",
                         base(intermediate_size=20, num_local_experts=6, num_experts_per_tok=2,
                              shared_intermediate_size=28, embedding_multiplier=12.0, attention_multiplier=0.25,
                              residual_multiplier=0.22, logits_scaling=8.0, rope_theta=50.0,
                              model_type="granitemoeshared"),
                         {"residual_multiplier": 0.3}),
    "qwen2_moe": ("Qwen2MoeForCausalLM",
                  base(**MOE, num_experts=6, shared_expert_intermediate_size=28, decoder_sparse_step=1,
                       mlp_only_layers=[1], norm_topk_prob=False, use_sliding_window=False, rope_theta=50.0,
                       model_type="qwen2_moe"),
                  {"norm_topk_prob": True, "num_experts_per_tok": 3, "use_sliding_window": True}),
    "glm4_moe": ("Glm4MoeForCausalLM",
                 base(**MOE, head_dim=8, n_routed_experts=8, n_shared_experts=1, n_group=4, topk_group=2,
                      routed_scaling_factor=2.5, norm_topk_prob=True, first_k_dense_replace=1, use_qk_norm=True,
                      attention_bias=True, partial_rotary_factor=0.5, rope_theta=10.0, num_nextn_predict_layers=1,
                      model_type="glm4_moe"),
                 {"n_group": 1, "topk_group": 3, "routed_scaling_factor": 1.0, "norm_topk_prob": False,
                  "partial_rotary_factor": 1.0}),
    "ernie4_5_moe": ("Ernie4_5_MoeForCausalLM",
                     base(moe_intermediate_size=20, moe_num_experts=6, moe_k=2, moe_num_shared_experts=2,
                          num_hidden_layers=4, moe_layer_start_index=1, moe_layer_end_index=3, moe_layer_interval=2,
                          moe_capacity=[6, 6, 6], moe_gate="topk", moe_use_aux_free=True, use_bias=False,
                          rope_theta=50.0, tie_word_embeddings=True, model_type="ernie4_5_moe"),
                     {"moe_k": 3, "moe_gate": "other", "use_bias": True}),
    "gpt_oss": ("GptOssForCausalLM",
                base(intermediate_size=20, head_dim=8, num_hidden_layers=4, num_local_experts=6,
                     num_experts_per_tok=2, experts_per_token=2, attention_bias=True, sliding_window=5,
                     layer_types=[SLIDING, FULL] * 2, swiglu_limit=7.0, initial_context_length=8, rope_theta=150.0,
                     rope_scaling={"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                   "truncate": False, "original_max_position_embeddings": 8},
                     model_type="gpt_oss"),
                {"sliding_window": 9, "num_experts_per_tok": 3, "swiglu_limit": 5.0, "rope_theta": 1500.0}),
    "deepseek_v2_lite": ("DeepseekV2ForCausalLM",
                         base(**DEEPSEEK, num_key_value_heads=4, q_lora_rank=None, first_k_dense_replace=1,
                              topk_method="greedy", n_group=1, topk_group=1, norm_topk_prob=False,
                              scoring_func="softmax", moe_layer_freq=1, model_type="deepseek_v2"),
                         {"routed_scaling_factor": 1.0, "norm_topk_prob": True, "rope_theta": 5000.0}),
    "deepseek_v2": ("DeepseekV2ForCausalLM",
                    base(**{**DEEPSEEK, "rope_scaling": {**YARN, "type": "yarn", "mscale": 0.707,
                                                         "mscale_all_dim": 0.707}},
                         num_key_value_heads=4, q_lora_rank=18, first_k_dense_replace=1,
                         topk_method="group_limited_greedy", n_group=4, topk_group=1, norm_topk_prob=False,
                         model_type="deepseek_v2"),
                    {"topk_group": 3, "topk_method": "greedy", "rope_scaling": None}),
    "deepseek_v3": ("DeepseekV3ForCausalLM",
                    base(**{**DEEPSEEK, "rope_scaling": {**YARN, "type": "yarn", "mscale": 1.0, "mscale_all_dim": 1.0}},
                         num_key_value_heads=4, q_lora_rank=18, first_k_dense_replace=1, topk_method="noaux_tc",
                         scoring_func="sigmoid", n_group=4, topk_group=2, norm_topk_prob=True,
                         num_nextn_predict_layers=1, model_type="deepseek_v3"),
                    {"topk_group": 3, "n_group": 1, "norm_topk_prob": False, "rope_scaling": None,
                     "scoring_func": "softmax"}),
    "glm4_moe_lite": ("Glm4MoeLiteForCausalLM",
                      base(**{**DEEPSEEK, "v_head_dim": 16}, num_key_value_heads=4, q_lora_rank=18, n_group=1,
                           topk_group=1, norm_topk_prob=True, first_k_dense_replace=1, model_type="glm4_moe_lite"),
                      {"routed_scaling_factor": 1.0, "rope_theta": 5000.0}),
    "starcoder2": ("Starcoder2ForCausalLM",
                   base("rms_norm_eps", hidden_act="gelu_pytorch_tanh", norm_epsilon=1e-4, use_bias=True, sliding_window=5,
                        rope_theta=50.0, tie_word_embeddings=True, model_type="starcoder2"),
                   {"sliding_window": 9, "norm_epsilon": 0.5, "hidden_act": "silu"}),
}


def without(config, *fields):
    return {field: value for field, value in config.items() if field not in fields}


def reference(architecture, config):
    """The class and configuration that compute the architecture, where transformers has no class of its own."""
    if architecture == "InternLM2ForCausalLM":
        return "LlamaForCausalLM", {**without(config, "bias"), "attention_bias": True, "model_type": "llama"}
    if architecture == "InternLM3ForCausalLM":
        return "LlamaForCausalLM", {**without(config, "bias", "qkv_bias"), "attention_bias": True, "mlp_bias": True,
                                    "model_type": "llama"}
    if architecture == "MiniCPMForCausalLM":
        head_dim = config["hidden_size"] // config["num_attention_heads"]
        return "GraniteForCausalLM", {
            **without(config, "scale_emb", "scale_depth", "dim_model_base"), "model_type": "granite",
            "embedding_multiplier": config["scale_emb"], "attention_multiplier": head_dim**-0.5,
            "residual_multiplier": config["scale_depth"] / math.sqrt(config["num_hidden_layers"]),
            "logits_scaling": config["hidden_size"] / config["dim_model_base"]}
    return architecture, config


INTERNLM2 = {"self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3",
             "mlp.down_proj": "feed_forward.w2", "input_layernorm": "attention_norm",
             "post_attention_layernorm": "ffn_norm", "model.embed_tokens": "model.tok_embeddings", "lm_head": "output"}


def internlm2_parts(name, config):
    """The stored tensor that a Llama tensor of queries, keys or values is cut of, its rows there, and all rows."""
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    dim, per_group = config["hidden_size"] // heads, heads // groups
    stride = (per_group + 2) * dim
    for part, first, count in (("q_proj", 0, per_group), ("k_proj", per_group, 1), ("v_proj", per_group + 1, 1)):
        if f"self_attn.{part}." in name:
            rows = [g * stride + first * dim + i for g in range(groups) for i in range(count * dim)]
            return name.replace(f"self_attn.{part}", "attention.wqkv"), rows, groups * stride
    return None


def load_saved(model, less_one):
    """The same model with weights of the tensors that transformers saves, whose names and shapes are not its
    parameters' where it joins experts; and those tensors' shapes and distributions."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        file = pathlib.Path(folder) / "model.safetensors"
        stored, state = {}, {}
        with safetensors.safe_open(file, "pt") as tensors:
            for own in tensors.keys():
                shape = list(tensors.get_slice(own).get_shape())
                stored[own] = [shape, *distribution(own, shape, less_one)]
                state[own] = weights(own, *stored[own])
        safetensors.torch.save_file(state, file, {"format": "pt"})
        loaded = type(model).from_pretrained(folder, dtype=torch.float64, attn_implementation="eager",
                                             experts_implementation="eager")
    return loaded.eval(), stored


def make_mtp(name, model):
    """The tensors of a module, and the logits of a first and a second draft behind each row but the last.

    transformers skips such modules; their layer is one of its own, with full attention, and what is around it is
    that of vLLM's qwen3_next_mtp.py: fc of the normalised embedding of the next token and the normalised hidden
    state, the layer, a norm, the model's head. The second draft takes the module's hidden state and the token behind
    the next, as if that had been the first draft.
    """
    modeling = importlib.import_module(f"transformers.models.{MTP_CASES[name]}.modeling_{MTP_CASES[name]}")
    config = copy.deepcopy(model.config)
    config.layer_types = ["full_attention"] * config.num_hidden_layers
    config.mlp_only_layers = []
    config._attn_implementation = config._experts_implementation = "eager"
    of = lambda end: next(getattr(modeling, n) for n in dir(modeling) if n.endswith(end) and "Gated" not in n)
    hidden = config.hidden_size
    module = torch.nn.ModuleDict({
        "pre_fc_norm_embedding": of("RMSNorm")(hidden, eps=config.rms_norm_eps),
        "pre_fc_norm_hidden": of("RMSNorm")(hidden, eps=config.rms_norm_eps),
        "fc": torch.nn.Linear(2 * hidden, hidden, bias=False),
        "layers": torch.nn.ModuleList([of("DecoderLayer")(config, 0)]),
        "norm": of("RMSNorm")(hidden, eps=config.rms_norm_eps)})
    tensors = {}
    for own, parameter in module.named_parameters():
        shape = list(parameter.shape)
        tensors[f"mtp.{own}"] = [shape, *distribution(f"mtp.{own}", shape, True)]
        parameter.data = weights(f"mtp.{own}", *tensors[f"mtp.{own}"]).reshape(shape)
    module = module.double().eval()

    def run(states, tokens):
        """Rows of one sequence from position 0 on; returns the module's hidden states."""
        count = len(tokens)
        embedding = model.model.embed_tokens(torch.tensor([tokens]))
        x = module["fc"](torch.cat([module["pre_fc_norm_embedding"](embedding),
                                    module["pre_fc_norm_hidden"](states)], -1))
        positions = torch.arange(count)[None]
        mask = torch.full((1, 1, count, count), -math.inf, dtype=torch.float64).triu(1)
        x = module["layers"][0](x, position_embeddings=model.model.rotary_emb(x, positions), attention_mask=mask,
                                position_ids=positions)
        return module["norm"](x[0] if isinstance(x, tuple) else x)

    random = numpy.random.default_rng(5)
    first, second = [], []
    rounded = lambda x: [float(f"{v:.7g}") for v in model.lm_head(x).double().tolist()]
    for length in LENGTHS:
        ids = [int(i) for i in random.integers(3, 20, length)]
        with torch.no_grad():
            states = model.model(input_ids=torch.tensor([ids])).last_hidden_state[:, :-1].double()
            made = run(states, ids[1:])[0]
            first.append([rounded(row) for row in made])
            # Row r's second draft: the module reads its own state at position r + 1, and the target's before.
            behind = [run(torch.cat([states[:, :r + 1], made[None, r:r + 1]], 1), ids[1:r + 3])[0, -1]
                      for r in range(length - 2)]
            second.append([rounded(row) for row in behind])
    return {"tensors": tensors, "first": first, "second": second}


def make(name):
    """The golden of a family, and transformers' model."""
    architecture, config, changes = CASES[name]
    config = {"architectures": [architecture], **config}
    reference_name, reference_config = reference(architecture, copy.deepcopy(config))  # transformers changes it
    model_class = getattr(transformers, reference_name)
    settings = model_class.config_class.from_dict(
        {k: v for k, v in reference_config.items() if k != "architectures"})
    settings._attn_implementation = "eager"
    model = model_class(settings).double().eval()
    less_one = any(part in architecture for part in ("Gemma", "Qwen3_5", "Qwen3Next")) and "Gemma4" not in architecture
    stored, state = {}, {}
    parameters = dict(model.named_parameters())  # tied ones once
    for own, parameter in parameters.items():
        shape = list(parameter.shape)
        rows = None
        published = own
        if architecture == "NemotronHForCausalLM" and own.startswith("model."):
            published = "backbone." + own.removeprefix("model.")
        if architecture == "InternLM2ForCausalLM":
            cut = internlm2_parts(own, config)
            if cut is not None:
                published, rows, total = cut
                shape[0] = total
            else:
                for old, new in INTERNLM2.items():
                    published = published.replace(old, new)
        spread = distribution(published, shape, less_one)
        stored[published] = [shape, *spread]
        values = weights(published, shape, *spread)
        state[own] = (values if rows is None else values[rows]).double()
    # Those whose files have other names, or buffers that count.
    if any(".experts." in own for own in parameters) or "Gemma4" in architecture:
        model, stored = load_saved(model.float(), less_one)
    else:
        missing, unexpected = model.load_state_dict(state, strict=False)
        assert not unexpected, unexpected
        for own in missing:  # buffers, and tied weights
            assert own not in parameters, own
        model.tie_weights()
    random = numpy.random.default_rng(5)
    sequences, logits = [], []
    for length in LENGTHS:
        ids = [int(i) for i in random.integers(3, 20, length)]
        with torch.no_grad():
            result = model(input_ids=torch.tensor([ids])).logits[0].double()
        rows = sorted({0, 1, length // 2, length - 2, length - 1})
        sequences.append({"ids": ids, "rows": rows})
        logits.append([[float(f"{x:.7g}") for x in result[row].tolist()] for row in rows])
    saved = None
    if reference_name == architecture:
        # As this version of transformers writes it.
        saved = json.loads(model.config.to_json_string(use_diff=True))
        saved["architectures"] = [architecture]
    return {"config": config, "saved_config": saved, "changes": changes, "tensors": stored, "sequences": sequences,
            "logits": logits}, model


def text(golden):
    """JSON with a line for each entry that people compare."""
    lines = []
    for key, value in golden.items():
        if key in ("tensors", "logits", "sequences", "first", "second"):
            items = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()] if isinstance(
                value, dict) else ["  " + json.dumps(v, separators=(",", ":")) for v in value]
            opened, closed = ("{", "}") if isinstance(value, dict) else ("[", "]")
            lines.append(f" {json.dumps(key)}: {opened}\n" + ",\n".join(items) + f"\n {closed}")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main():
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    MTP_FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or CASES:
        golden, model = make(name)
        files = {FOLDER: golden}
        if name in MTP_CASES:
            files[MTP_FOLDER] = make_mtp(name, model)
        for folder, content in files.items():
            path = folder / f"{name}.json"
            path.write_text(text(content))
            print(f"{folder.name}/{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
