# SPDX-License-Identifier: Apache-2.0
"""The models of the tests of GGUF files: fields of their config.json and architectures of their files."""

SMALL = {"vocab_size": 2048, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
         "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
         "eos_token_id": 1}
FACTORS = [1.0 + i / 4 for i in range(16)]  # of RoPE's frequencies, exact in f32
LONG = {"rope_type": "longrope", "short_factor": FACTORS, "long_factor": FACTORS, "attention_factor": 1.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
# Name of the case: architecture of GGUF, fields of config.json.
FAMILIES = {
    "llama": ("llama", {"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": True}),
    "llama_biases": ("llama", {"architectures": ["LlamaForCausalLM"], "attention_bias": True, "mlp_bias": True}),
    "llama_rope": ("llama", {"architectures": ["LlamaForCausalLM"], "rope_scaling": LONG}),
    "mixtral": ("llama", {"architectures": ["MixtralForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2,
                          "rope_theta": 1e6, "sliding_window": None}),
    "qwen2": ("qwen2", {"architectures": ["Qwen2ForCausalLM"], "rope_theta": 1e6}),
    "qwen3": ("qwen3", {"architectures": ["Qwen3ForCausalLM"], "head_dim": 32, "rope_theta": 1e6}),
    "qwen3moe": ("qwen3moe", {"architectures": ["Qwen3MoeForCausalLM"], "head_dim": 32, "num_experts": 4,
                              "num_experts_per_tok": 2, "moe_intermediate_size": 256, "norm_topk_prob": True}),
    "gemma2": ("gemma2", {"architectures": ["Gemma2ForCausalLM"], "head_dim": 32, "query_pre_attn_scalar": 32,
                          "sliding_window": 16, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}),
    "phi3": ("phi3", {"architectures": ["Phi3ForCausalLM"], "sliding_window": 24,
                      "rope_scaling": LONG | {"attention_factor": 1.25},
                      "original_max_position_embeddings": 128}),
    "gemma": ("gemma", {"architectures": ["GemmaForCausalLM"], "head_dim": 32}),
    "gemma3": ("gemma3", {"architectures": ["Gemma3ForCausalLM"], "head_dim": 32, "query_pre_attn_scalar": 32,
                          "sliding_window": 16, "sliding_window_pattern": 2, "rope_theta": 1e6,
                          "rope_local_base_freq": 10000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    "granite": ("granite", {"architectures": ["GraniteForCausalLM"], "attention_multiplier": 0.25,
                            "embedding_multiplier": 12.0, "residual_multiplier": 0.25, "logits_scaling": 8.0}),
    "smollm3": ("smollm3", {"architectures": ["SmolLM3ForCausalLM"], "num_hidden_layers": 4,
                            "tie_word_embeddings": True, "rope_theta": 5e6}),
    "mistral3": ("mistral3", {"architectures": ["Ministral3ForCausalLM"], "head_dim": 32,
                              "rope_parameters": YARN | {"rope_theta": 1e6, "mscale": 1.0, "mscale_all_dim": 1.0,
                                                         "llama_4_scaling_beta": 0.125}}),
    "seed_oss": ("seed_oss", {"architectures": ["SeedOssForCausalLM"], "head_dim": 32, "attention_bias": True}),
    "olmo2": ("olmo2", {"architectures": ["Olmo2ForCausalLM"], "rope_theta": 5e5}),
    "olmo3": ("olmo2", {"architectures": ["Olmo3ForCausalLM"], "rope_theta": 5e5, "sliding_window": 16,
                        "layer_types": ["sliding_attention", "full_attention"],
                        "rope_scaling": YARN | {"attention_factor": 1.25}}),
    "glm4": ("glm4", {"architectures": ["Glm4ForCausalLM"], "head_dim": 32, "attention_bias": True}),
    "cohere2": ("cohere2", {"architectures": ["Cohere2ForCausalLM"], "rms_norm_eps": None, "layer_norm_eps": 1e-5,
                            "logit_scale": 0.25, "sliding_window": 16, "num_hidden_layers": 4,
                            "tie_word_embeddings": True}),
    "exaone4": ("exaone4", {"architectures": ["Exaone4ForCausalLM"], "rope_theta": 1e6, "sliding_window": 16,
                            "layer_types": ["sliding_attention", "full_attention"]}),
    "ernie4_5": ("ernie4_5", {"architectures": ["Ernie4_5ForCausalLM"], "head_dim": 32, "rope_theta": 5e5,
                              "tie_word_embeddings": True}),
    "hunyuan": ("hunyuan-dense", {"architectures": ["HunYuanDenseV1ForCausalLM"], "head_dim": 32}),
    "minicpm": ("minicpm", {"architectures": ["MiniCPMForCausalLM"], "scale_emb": 12.0, "dim_model_base": 64,
                            "scale_depth": 1.5, "num_hidden_layers": 4}),
    "starcoder2": ("starcoder2", {"architectures": ["Starcoder2ForCausalLM"], "rms_norm_eps": None,
                                  "norm_epsilon": 1e-5, "use_bias": True, "sliding_window": None,
                                  "tie_word_embeddings": True}),
}
GEMMA4 = {"architectures": ["Gemma4ForCausalLM"], "head_dim": 32, "global_head_dim": 64, "num_hidden_layers": 4,
          "layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 16,
          "final_logit_softcapping": 30.0,
          "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                              "full_attention": {"rope_type": "proportional", "rope_theta": 1e6,
                                                 "partial_rotary_factor": 0.25}}}
FAMILIES |= {
    "gemma4": ("gemma4", GEMMA4 | {"hidden_size_per_layer_input": 256, "num_kv_shared_layers": 2,
                                   "use_double_wide_mlp": True}),
    "gemma4_moe": ("gemma4", GEMMA4 | {"hidden_size_per_layer_input": 0, "attention_k_eq_v": True,
                                       "num_global_key_value_heads": 2, "enable_moe_block": True, "num_experts": 4,
                                       "top_k_experts": 2, "moe_intermediate_size": 256}),
}
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 256}
DEEPSEEK = MOE | {"n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 1, "kv_lora_rank": 256,
                  "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "num_key_value_heads": 8}
FAMILIES |= {
    "qwen2moe": ("qwen2moe", MOE | {"architectures": ["Qwen2MoeForCausalLM"], "num_experts": 4,
                                    "shared_expert_intermediate_size": 512}),
    "olmoe": ("olmoe", {"architectures": ["OlmoeForCausalLM"], "num_experts": 4, "num_experts_per_tok": 2}),
    "granitemoe": ("granitemoe", {"architectures": ["GraniteMoeForCausalLM"], "num_local_experts": 4,
                                  "num_experts_per_tok": 2, "attention_multiplier": 0.25, "embedding_multiplier": 12.0,
                                  "residual_multiplier": 0.25, "logits_scaling": 8.0}),
    "granitemoeshared": ("granitemoe", {"architectures": ["GraniteMoeSharedForCausalLM"], "num_local_experts": 4,
                                        "num_experts_per_tok": 2, "shared_intermediate_size": 256,
                                        "attention_multiplier": 0.25, "embedding_multiplier": 12.0,
                                        "residual_multiplier": 0.25, "logits_scaling": 8.0}),
    "glm4moe": ("glm4moe", MOE | {"architectures": ["Glm4MoeForCausalLM"], "head_dim": 32, "attention_bias": True,
                                  "n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 1,
                                  "partial_rotary_factor": 0.5, "use_qk_norm": True, "norm_topk_prob": True,
                                  "routed_scaling_factor": 2.5, "num_nextn_predict_layers": 1}),
    "gpt_oss": ("gpt-oss", {"architectures": ["GptOssForCausalLM"], "head_dim": 32, "num_local_experts": 4,
                            "num_experts_per_tok": 2, "sliding_window": 16, "rope_theta": 150000.0,
                            "rope_scaling": YARN | {"truncate": False}}),
    # Chunks and growth begin beyond the requests: files do not say where.
    "llama4": ("llama4", {"architectures": ["Llama4ForCausalLM"], "head_dim": 32, "num_hidden_layers": 4,
                          "intermediate_size": 256, "intermediate_size_mlp": 512, "num_local_experts": 4,
                          "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "rope_theta": 5e5,
                          "rope_scaling": LONG}),
    "deepseek_v2": ("deepseek2", DEEPSEEK | {"architectures": ["DeepseekV2ForCausalLM"], "topk_method": "greedy",
                                             "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0,
                                             "rope_scaling": YARN | {"mscale": 0.707, "mscale_all_dim": 0.707}}),
    "deepseek_v3": ("deepseek2", DEEPSEEK | {"architectures": ["DeepseekV3ForCausalLM"], "q_lora_rank": 256,
                                             "n_group": 4, "topk_group": 2, "norm_topk_prob": True,
                                             "routed_scaling_factor": 2.5}),
}
# As today's converters write them: keys and values of the latent vector apart, and metadata of the head that they share.
SPLIT_LATENT = {f"{name}_split": name for name in ("deepseek_v2", "deepseek_v3")}
FAMILIES |= {split: FAMILIES[name] for split, name in SPLIT_LATENT.items()}
LFM2 = {"rms_norm_eps": None, "norm_eps": 1e-5, "num_hidden_layers": 4, "rope_theta": 1e6, "conv_L_cache": 3,
        "layer_types": ["conv", "full_attention", "conv", "full_attention"], "tie_word_embeddings": True}
FAMILIES |= {
    "lfm2": ("lfm2", LFM2 | {"architectures": ["Lfm2ForCausalLM"], "block_auto_adjust_ff_dim": False}),
    "lfm2moe": ("lfm2moe", LFM2 | MOE | {"architectures": ["Lfm2MoeForCausalLM"], "num_experts": 4,
                                         "num_dense_layers": 1}),
}
QWEN35 = {"head_dim": 32, "full_attention_interval": 2, "num_hidden_layers": 4, "linear_num_key_heads": 4,
          "linear_num_value_heads": 8, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
          "linear_conv_kernel_dim": 4, "partial_rotary_factor": 0.5, "rope_theta": 1e7}
FAMILIES |= {
    "qwen3_5": ("qwen35", QWEN35 | {"architectures": ["Qwen3_5ForCausalLM"], "tie_word_embeddings": True}),
    "qwen3_next": ("qwen3next", QWEN35 | MOE | {"architectures": ["Qwen3NextForCausalLM"], "num_experts": 4,
                                                "shared_expert_intermediate_size": 256}),
    "qwen3_5_moe": ("qwen35moe", QWEN35 | MOE | {"architectures": ["Qwen3_5MoeForCausalLM"], "num_experts": 4,
                                                 "shared_expert_intermediate_size": 256}),
}
GRANITE_H = {"architectures": ["GraniteMoeHybridForCausalLM"], "num_hidden_layers": 3, "attention_multiplier": 0.25,
             "embedding_multiplier": 12.0, "residual_multiplier": 0.25, "logits_scaling": 8.0, "mamba_n_heads": 8,
             "mamba_d_head": 64, "mamba_n_groups": 2, "mamba_d_state": 32, "mamba_d_conv": 4, "mamba_expand": 2,
             "layer_types": ["mamba", "attention", "mamba"], "shared_intermediate_size": 256}
NEMOTRON_H = {"architectures": ["NemotronHForCausalLM"], "num_hidden_layers": 5, "rms_norm_eps": None,
              "layer_norm_epsilon": 1e-5, "head_dim": 32, "mamba_num_heads": 8, "mamba_head_dim": 32, "n_groups": 2,
              "ssm_state_size": 32, "conv_kernel": 4, "mlp_hidden_act": "relu2"}
# Keys of Mamba-2's sizes: how many rows a convolution sees, elements of a state, groups, heads, elements of a head.
STATE_SPACES = {"granitehybrid": ("mamba_d_conv", "mamba_d_state", "mamba_n_groups", "mamba_n_heads", "mamba_d_head"),
                "nemotron_h": ("conv_kernel", "ssm_state_size", "n_groups", "mamba_num_heads", "mamba_head_dim"),
                "mamba2": ("conv_kernel", "state_size", "n_groups", "num_heads", "head_dim")}
STATE_SPACES["nemotron_h_moe"] = STATE_SPACES["nemotron_h"]
FAMILIES |= {
    "granite_hybrid": ("granitehybrid", GRANITE_H | {"num_local_experts": 4, "num_experts_per_tok": 2,
                                                     "position_embedding_type": "rope"}),
    "granite_hybrid_dense": ("granitehybrid", GRANITE_H | {"num_local_experts": 0, "intermediate_size": 256,
                                                           "position_embedding_type": "nope"}),
    "nemotron_h": ("nemotron_h", NEMOTRON_H | {"hybrid_override_pattern": "M-*-M"}),
    "nemotron_h_moe": ("nemotron_h_moe", NEMOTRON_H | {
        "hybrid_override_pattern": "ME*ME", "n_routed_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 256, "moe_shared_expert_intermediate_size": 512, "routed_scaling_factor": 2.5}),
    "nemotron_h_latent": ("nemotron_h_moe", NEMOTRON_H | {
        "hybrid_override_pattern": "ME*ME", "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_latent_size": 256,
        "moe_intermediate_size": 256, "moe_shared_expert_intermediate_size": 512, "routed_scaling_factor": 2.5}),
    "mamba2": ("mamba2", {"architectures": ["Mamba2ForCausalLM"], "num_attention_heads": None,
                          "num_key_value_heads": None, "rms_norm_eps": None, "layer_norm_epsilon": 1e-5,
                          "num_heads": 8, "head_dim": 64, "n_groups": 2, "state_size": 32, "conv_kernel": 4,
                          "expand": 2, "tie_word_embeddings": True}),
}
# A module for multi-token prediction, by its names in both kinds of files.
MTP = {"mtp.fc": "eh_proj", "mtp.pre_fc_norm_embedding": "enorm", "mtp.pre_fc_norm_hidden": "hnorm",
       "mtp.norm": "shared_head_norm"}
WITH_MODULES = {name: (FAMILIES[name][0], FAMILIES[name][1] | {"num_nextn_predict_layers": 1})
                for name in ("qwen3_5", "qwen3_next", "qwen3_5_moe")}
# Those whose queries and keys have rotated pairs side by side in GGUF files alone.
INTERLEAVED = ("llama", "granite", "granitemoe", "granitehybrid", "smollm3", "mistral3", "minicpm")
