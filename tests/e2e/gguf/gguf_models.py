# SPDX-License-Identifier: Apache-2.0
"""Tiny random models as Hugging Face folders and as GGUF files with the same weights. The files are written
with llama.cpp's own package `gguf`: its names of tensors and keys, its quantisation, its dequantised values.
"""
import json
import pathlib
import struct
import subprocess

import gguf
import numpy as np

import fleet
from gguf_cases import FACTORS, FAMILIES, INTERLEAVED, MTP, SMALL, SPLIT_LATENT, STATE_SPACES, WITH_MODULES

T = gguf.GGMLQuantizationType
# Types of matrices whose rows are multiples of 256 elements. The package quantises to the first; of the
# others it knows what blocks mean, and the blocks here are random.
QUANTISED = [T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0]
RANDOM = {  # where in a block its f16 scales are
    T.Q2_K: (80, 82), T.Q3_K: (108,), T.Q4_K: (0, 2), T.Q5_K: (0, 2), T.Q6_K: (208,), T.IQ4_NL: (0,),
    T.IQ4_XS: (0,), T.MXFP4: ()}
# The size of their scales, for weights of about 0.05.
SCALES = {T.Q2_K: 3e-3, T.Q3_K: 1e-3, T.Q4_K: 2e-4, T.Q5_K: 1e-4, T.Q6_K: 5e-5, T.IQ4_NL: 7e-4, T.IQ4_XS: 5e-5}
TYPES = QUANTISED + list(RANDOM)


def read_safetensors(path):
    raw = pathlib.Path(path).read_bytes()
    size, = struct.unpack("<Q", raw[:8])
    return {name: np.frombuffer(raw[8 + size + e["data_offsets"][0]:8 + size + e["data_offsets"][1]],
                                "<f4").reshape(e["shape"])
            for name, e in json.loads(raw[8:8 + size]).items() if name != "__metadata__"}


def write_safetensors(path, tensors):
    header, end = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [end, end + values.nbytes]}
        end += values.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            out.write(np.ascontiguousarray(values, "<f4").tobytes())


def interleaved(rows, num_heads):
    """Rows of queries or keys as GGUF's "llama" has them: the pairs that are rotated side by side."""
    return rows.reshape(num_heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def halves(rows, num_heads):
    """The opposite."""
    return rows.reshape(num_heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def tiled(values, config, name, back=False):
    """Heads of values in llama.cpp's order: the first of each group, then the second of each, …; or the opposite."""
    groups, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    begin = 2 * groups * config["linear_key_head_dim"] if name.endswith(("in_proj_qkv.weight", "conv1d.weight")) else 0
    axis = 1 if name.endswith("out_proj.weight") else 0
    order = np.arange(values.shape[axis])
    size = (len(order) - begin) // heads
    turns = order[begin:].reshape(groups, heads // groups, size).swapaxes(0, 1).ravel()
    order[begin:] = turns
    return np.take(values, np.argsort(order) if back else order, axis)


def stored(values, kind, draw):
    """A matrix in a type of GGUF: its bytes, and the values that they mean."""
    if kind in QUANTISED:
        data = gguf.quants.quantize(values, kind)
    else:
        block, size = gguf.GGML_QUANT_SIZES[kind]
        data = draw.integers(0, 256, (*values.shape[:-1], values.shape[-1] // block, size), np.uint8)
        for at in RANDOM[kind]:
            scale = (SCALES[kind] * draw.uniform(0.5, 1.5, data.shape[:-1])).astype("<f2")
            data[..., at:at + 2] = scale[..., None].view(np.uint8)
        if kind == T.MXFP4:
            data[..., 0] = draw.integers(120, 124, data.shape[:-1], np.uint8)
        data = data.reshape(*values.shape[:-1], -1)
    return data, gguf.quants.dequantize(data, kind).astype("<f4").reshape(values.shape)


class Writer:
    """Writes one model as `name`.gguf, and its folder with the values that the file's blocks mean."""

    def __init__(self, folder, case, first_type, with_module=False):
        self.arch, fields = (WITH_MODULES if with_module else FAMILIES)[case]
        self.config = SMALL | fields
        self.splits_latent = case in SPLIT_LATENT
        self.model, self.path = folder / case, folder / f"{case}.gguf"
        config = folder / f"{case}.json"
        config.write_text(json.dumps({field: value for field, value in self.config.items()
                                      if field == "sliding_window" or value is not None}))
        subprocess.run([fleet.BIN / "continuo-make-model", f"--config={config}", f"--out={self.model}", "--dtype=fp32",
                        f"--tokenizer={fleet.DEMO_MODEL}", *["--mtp"] * with_module], check=True, capture_output=True)
        self.types = TYPES
        if with_module:
            self.types = (T.F32,)  # some types have values of their own
            self.let_module_agree()
        self.draw = np.random.default_rng(first_type)
        self.next_type = first_type
        self.out = gguf.GGUFWriter(self.path, self.arch)

    def let_module_agree(self):
        """Layers add little, and the module passes the next token's embedding on to the last norm."""
        tensors = {name: values.copy() for name, values in read_safetensors(self.model / "model.safetensors").items()}
        for name, values in tensors.items():
            if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                values *= np.float32(2**-16)
        join = tensors["mtp.fc.weight"]
        join[:] = np.eye(*join.shape, dtype="<f4")
        tensors["mtp.pre_fc_norm_embedding.weight"][:] = 0
        tensors["mtp.norm.weight"] = tensors["model.norm.weight"]
        write_safetensors(self.model / "model.safetensors", tensors)

    def write(self):
        self.add_metadata()
        self.add_tokenizer()
        self.add_weights()
        self.out.write_header_to_file()
        self.out.write_kv_data_to_file()
        self.out.write_tensors_to_file()
        self.out.close()
        return self.model, self.path

    def add_metadata(self):
        out, config = self.out, self.config
        out.add_context_length(config["max_position_embeddings"])
        out.add_embedding_length(config["hidden_size"])
        out.add_block_count(config["num_hidden_layers"] + config.get("num_nextn_predict_layers", 0))
        kv_heads = 1 if self.splits_latent else config["num_key_value_heads"]
        inner = config.get("intermediate_size_mlp", config["intermediate_size"])
        if self.arch in STATE_SPACES:
            kv_heads, inner = self.add_state_space(out, config)
        if self.arch == "gemma4":
            kv_heads, inner = self.add_layer_shapes(out, config)
        out.add_feed_forward_length(inner)
        out.add_head_count(config["num_attention_heads"] or 0)
        if "conv_L_cache" in config:
            kv_heads = [kv_heads if kind == "full_attention" else 0 for kind in config["layer_types"]]
            out.add_shortconv_l_cache(config["conv_L_cache"])
        if kv_heads is not None:
            out.add_head_count_kv(kv_heads)
        if "norm_eps" in config or "layer_norm_epsilon" in config:
            out.add_layer_norm_rms_eps(config.get("norm_eps", config.get("layer_norm_epsilon")))
            if self.arch.startswith("nemotron_h"):
                out.add_layer_norm_eps(config["layer_norm_epsilon"])
        elif config["rms_norm_eps"] is None:
            out.add_layer_norm_eps(1e-5)
        else:
            out.add_layer_norm_rms_eps(config["rms_norm_eps"])
        scaling = config.get("rope_parameters", config.get("rope_scaling", {}))
        scaling = scaling.get("full_attention", scaling)
        out.add_rope_freq_base(config.get("rope_theta", scaling.get("rope_theta", 10000.0)))
        if self.arch == "mamba2":
            return
        head_dim = config["hidden_size"] // config["num_attention_heads"]
        is_half = self.arch.startswith(("glm4", "qwen35", "qwen3next"))
        rotated = config.get("qk_rope_head_dim", head_dim // 2 if is_half else head_dim)
        out.add_rope_dimension_count(config.get("global_head_dim", rotated))
        self.add_newer(out, config, scaling)
        if "head_dim" in config:
            out.add_key_length(config.get("global_head_dim", head_dim))
            out.add_value_length(config.get("global_head_dim", head_dim))
        experts = next((config[field] for field in ("num_local_experts", "num_experts", "n_routed_experts")
                        if field in config), None)
        if experts:
            out.add_expert_count(experts)
            out.add_expert_used_count(config.get("num_experts_per_tok") or config["top_k_experts"])
        if "moe_intermediate_size" in config:
            out.add_expert_feed_forward_length(config["moe_intermediate_size"])
        self.add_experts_keys(out, config)
        if config.get("sliding_window"):
            out.add_sliding_window(config["sliding_window"])
        if "attn_logit_softcapping" in config:
            out.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        if "final_logit_softcapping" in config:
            out.add_final_logit_softcapping(config["final_logit_softcapping"])
        if self.arch == "phi3":
            out.add_rope_scaling_orig_ctx_len(config["original_max_position_embeddings"])
            out.add_rope_scaling_attn_factors(config["rope_scaling"]["attention_factor"])
        factors = np.array(FACTORS, "<f4")
        if "short_factor" in scaling:
            for name in (("rope_factors_long", "rope_factors_short") if self.arch == "phi3" else ("rope_freqs",)):
                out.add_tensor(f"{name}.weight", factors)

    def add_state_space(self, out, config):
        """Mamba-2's keys. Returns the KV heads and inner columns of each layer, as llama.cpp's converters do."""
        width, state, groups, heads, head_dim = (config[field] for field in STATE_SPACES[self.arch])
        out.add_ssm_conv_kernel(width)
        out.add_ssm_state_size(state)
        out.add_ssm_group_count(groups)
        out.add_ssm_time_step_rank(heads)
        out.add_ssm_inner_size(heads * head_dim)
        if self.arch == "mamba2":
            return None, 0
        if self.arch == "granitehybrid":
            out.add_rope_scaling_finetuned(config["position_embedding_type"] == "rope")
            out.add_expert_shared_feed_forward_length(config["shared_intermediate_size"])
            is_attention = [kind == "attention" for kind in config["layer_types"]]
            return [config["num_key_value_heads"] * flag for flag in is_attention], config["intermediate_size"]
        pattern = config["hybrid_override_pattern"]
        inner, letter = config["intermediate_size"], "-"
        if "n_routed_experts" in config:
            inner, letter = config["moe_intermediate_size"], "E"
            out.add_expert_shared_feed_forward_length(config["moe_shared_expert_intermediate_size"])
            out.add_expert_shared_count(1)
            out.add_expert_weights_norm(True)
            out.add_expert_weights_scale(config["routed_scaling_factor"])
            out.add_expert_group_count(1)
        if "moe_latent_size" in config:
            out.add_moe_latent_size(config["moe_latent_size"])
        return ([config["num_key_value_heads"] * (part == "*") for part in pattern],
                [inner * (part == letter) for part in pattern])

    def add_layer_shapes(self, out, config):
        """Gemma 4's keys. Returns the KV heads and inner columns of each layer."""
        layers, kinds = config["num_hidden_layers"], config["layer_types"]
        shared, full = config.get("num_kv_shared_layers", 0), config["rope_parameters"]["full_attention"]
        out.add_shared_kv_layers(shared)
        out.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
        out.add_key_length_swa(config["head_dim"])
        out.add_value_length_swa(config["head_dim"])
        out.add_rope_dimension_count_swa(config["head_dim"])
        out.add_rope_freq_base_swa(config["rope_parameters"]["sliding_attention"]["rope_theta"])
        pairs = config["global_head_dim"] // 2
        rotated = int(pairs * full["partial_rotary_factor"])
        out.add_tensor("rope_freqs.weight", np.array([1.0] * rotated + [1e30] * (pairs - rotated), "<f4"))
        kv_heads, others = config["num_key_value_heads"], config.get("num_global_key_value_heads")
        if others is not None:
            kv_heads = [kv_heads if kind == "sliding_attention" else others for kind in kinds]
        inner = config["intermediate_size"]
        if config.get("use_double_wide_mlp"):
            inner = [inner * (1 if layer < layers - shared else 2) for layer in range(layers)]
        return kv_heads, inner

    def add_experts_keys(self, out, config):
        """Keys of routers, shared experts and latent vectors."""
        if self.arch in ("gpt-oss", "llama4"):
            out.add_expert_feed_forward_length(config["intermediate_size"])
        if "interleave_moe_layer_step" in config:
            out.add_interleave_moe_layer_step(config["interleave_moe_layer_step"])
        if self.arch == "granitemoe" and "shared_intermediate_size" in config:
            out.add_expert_shared_feed_forward_length(config["shared_intermediate_size"])
        if "shared_expert_intermediate_size" in config:
            out.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
        if "n_shared_experts" in config:
            out.add_expert_shared_count(config["n_shared_experts"])
            out.add_leading_dense_block_count(config["first_k_dense_replace"])
            out.add_expert_weights_scale(config["routed_scaling_factor"])
            out.add_expert_weights_norm(config.get("norm_topk_prob", False))
            is_softmax = config["architectures"] == ["DeepseekV2ForCausalLM"]
            out.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX if is_softmax
                                       else gguf.ExpertGatingFuncType.SIGMOID)
        if config.get("n_group", 1) > 1:
            out.add_expert_group_count(config["n_group"])
            out.add_expert_group_used_count(config["topk_group"])
        if "num_nextn_predict_layers" in config:
            out.add_nextn_predict_layers(config["num_nextn_predict_layers"])
            if self.arch == "glm4moe":  # a module that is skipped
                layer, size = config["num_hidden_layers"], config["hidden_size"]
                out.add_tensor(f"blk.{layer}.nextn.eh_proj.weight", np.zeros((size, 2 * size), "<f4"))
                out.add_tensor(f"blk.{layer}.attn_norm.weight", np.zeros(size, "<f4"))
        if "kv_lora_rank" in config:
            if "q_lora_rank" in config:
                out.add_q_lora_rank(config["q_lora_rank"])
            rank, keys = config["kv_lora_rank"], config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
            out.add_kv_lora_rank(rank)
            out.add_key_length(rank + config["qk_rope_head_dim"] if self.splits_latent else keys)
            out.add_value_length(rank if self.splits_latent else config["v_head_dim"])
            if self.splits_latent:
                out.add_key_length_mla(keys)
                out.add_value_length_mla(config["v_head_dim"])

    def add_newer(self, out, config, scaling):
        """Keys of families that are described by their mechanisms, as llama.cpp's converters write them."""
        if scaling.get("rope_type") in ("linear", "yarn"):
            out.add_rope_scaling_type(gguf.RopeScalingType(scaling["rope_type"]))
            out.add_rope_scaling_factor(scaling["factor"])
        if scaling.get("rope_type") == "yarn":
            out.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
            if "attention_factor" in scaling:
                out.add_rope_scaling_attn_factors(scaling["attention_factor"])
            if "mscale_all_dim" in scaling:
                tenth = 0.1 if self.arch == "deepseek2" else 1
                out.add_rope_scaling_yarn_log_mul(tenth * scaling["mscale_all_dim"])
            if "llama_4_scaling_beta" in scaling:
                out.add_attn_temperature_scale(scaling["llama_4_scaling_beta"])
        if "rope_local_base_freq" in config:
            out.add_rope_freq_base_swa(config["rope_local_base_freq"])
        if "sliding_window_pattern" in config:
            out.add_sliding_window_pattern(config["sliding_window_pattern"])
        if "linear_num_key_heads" in config:
            interval, layers = config["full_attention_interval"], config["num_hidden_layers"]
            out.add_uint32(f"{self.arch}.full_attention_interval", interval)
            # Today's converters write this, too.
            out.add_array(f"{self.arch}.attention.recurrent_layers", [(i + 1) % interval != 0 for i in range(layers)])
            if self.arch != "qwen3next":
                out.add_rope_dimension_sections([4, 2, 2, 0])
            out.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
            out.add_ssm_state_size(config["linear_key_head_dim"])
            out.add_ssm_group_count(config["linear_num_key_heads"])
            out.add_ssm_time_step_rank(config["linear_num_value_heads"])
            out.add_ssm_inner_size(config["linear_num_value_heads"] * config["linear_value_head_dim"])
        if "num_dense_layers" in config:
            out.add_leading_dense_block_count(config["num_dense_layers"])
            out.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        if "sliding_window" in config and "layer_types" in config:
            out.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])
        if "attention_multiplier" in config:
            out.add_attention_scale(config["attention_multiplier"])
            out.add_embedding_scale(config["embedding_multiplier"])
            out.add_residual_scale(config["residual_multiplier"])
            out.add_logit_scale(config["logits_scaling"])
        if "scale_emb" in config:
            out.add_embedding_scale(config["scale_emb"])
            out.add_residual_scale(config["scale_depth"] / config["num_hidden_layers"] ** 0.5)
            out.add_logit_scale(config["hidden_size"] / config["dim_model_base"])
        if "logit_scale" in config:
            out.add_logit_scale(config["logit_scale"])

    def add_tokenizer(self):
        tokenizer = json.loads((self.model / "tokenizer.json").read_text())
        config = json.loads((self.model / "tokenizer_config.json").read_text())
        ids = tokenizer["model"]["vocab"] | {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
        tokens = sorted(ids, key=ids.get)
        special = {t["content"] for t in tokenizer["added_tokens"]}
        out = self.out
        out.add_tokenizer_model("gpt2")
        out.add_tokenizer_pre("gpt-2")
        out.add_token_list(tokens)
        out.add_token_types([gguf.TokenType.CONTROL if t in special else gguf.TokenType.NORMAL for t in tokens])
        out.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
        out.add_bos_token_id(ids[config["bos_token"]])
        out.add_eos_token_id(ids[config["eos_token"]])
        out.add_pad_token_id(ids[config["pad_token"]])
        out.add_add_bos_token(True)
        defaults = json.loads((self.model / "generation_config.json").read_text())
        out.add_sampling_temp(defaults["temperature"])
        out.add_sampling_top_p(defaults["top_p"])
        out.add_chat_template(config["chat_template"])

    def add_weights(self):
        layers = self.config["num_hidden_layers"]
        arch = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == self.arch)
        names = gguf.get_tensor_name_map(arch, layers + 1)
        heads = {"attn_q": self.config["num_attention_heads"], "attn_k": self.config["num_key_value_heads"]}
        meant, experts = {}, {}
        for name, values in read_safetensors(self.model / "model.safetensors").items():
            if ".experts." in name:
                experts[name] = values
                continue
            known = name.replace("block_sparse_moe.gate", "mlp.gate").replace("_correction_bias", "_correction.bias")
            known = known.replace("expert_bias", "expert_bias.bias").replace("dt_bias", "dt_proj.bias")
            if "Mamba2" in self.config["architectures"][0] or "NemotronH" in self.config["architectures"][0]:
                known = known.replace("model.", "backbone.", 1)
            if name.endswith("in_proj_qkvz.weight"):
                meant[name] = self.add_queries_to_z(name, values)
                continue
            if name.endswith("input_linear.weight"):
                meant[name] = self.add_gate_and_up(name, values)
                continue
            if name.endswith("kv_b_proj.weight") and self.splits_latent:
                meant[name] = self.add_latent(name, values)
                continue
            if name.endswith("output_linear.weight") and not self.config["num_local_experts"]:
                known = known.replace("shared_mlp.output_linear", "mlp.down_proj")
            known = known.replace("mtp.layers.0.", f"model.layers.{layers}.")
            known = known.replace("layer_scalar", "layer_scalar.weight")
            new = names.get_name(known, try_suffixes=(".weight", ".bias"))
            if name.endswith("router.scale"):
                new = f"blk.{name.split('.')[2]}.ffn_gate_inp.scale"
            if name.endswith("router.per_expert_scale"):
                new = f"blk.{name.split('.')[2]}.ffn_down_exps.scale"
            if name.removesuffix(".weight") in MTP:
                new = f"blk.{layers}.nextn.{MTP[name.removesuffix('.weight')]}.weight"
            if name.endswith("sinks"):
                new += ".weight"
            part = new.split(".")[-2]
            is_delta = "linear_attn" in name and not name.endswith("norm.weight") and self.arch != "qwen3next"
            if is_delta:
                values = tiled(values, self.config, name)
            permuted = heads.get(part) if self.arch in INTERLEAVED else None
            if permuted:
                values = interleaved(values, permuted)
            if new == "blk.0.ffn_gate_inp_shexp.weight":
                # Writers differ about a matrix of one row.
                self.out.add_tensor(new, values[0])
            elif values.ndim == 3:
                self.out.add_tensor(new, values[:, 0])
            elif name.endswith("A_log"):
                rate = -np.exp(values.astype(np.float64)).astype(np.float32)
                self.out.add_tensor(new, rate[:, None] if self.arch in STATE_SPACES else rate)
            elif name.endswith(".D"):
                self.out.add_tensor(new, values[:, None])
            elif name.endswith(("mamba.norm.weight", "mixer.norm.weight")):
                self.out.add_tensor(new, values.reshape(self.config[STATE_SPACES[self.arch][2]], -1))
            elif values.ndim == 1:
                one = np.float32(self.arch.startswith(("gemma", "qwen35", "qwen3next")) and "norm" in name
                                 and "linear_attn" not in name and self.arch != "gemma4")
                self.out.add_tensor(new, values + one)
            else:
                values = self.add_matrix(new, values)
            if is_delta:
                values = tiled(values, self.config, name, back=True)
            meant[name] = halves(values, permuted) if permuted else values
        self.add_experts(experts, meant)
        write_safetensors(self.model / "model.safetensors", meant)

    def add_queries_to_z(self, name, values):
        """Qwen3-Next's joined product, whose rows are together by groups: z is a tensor of its own, and queries, keys
        and values are one, all groups' queries first."""
        groups, heads = self.config["linear_num_key_heads"], self.config["linear_num_value_heads"]
        keys, of_values = self.config["linear_key_head_dim"], self.config["linear_value_head_dim"] * heads // groups
        parts = np.split(values.reshape(groups, -1, values.shape[1]), [keys, 2 * keys, 2 * keys + of_values], axis=1)
        layer = name.split(".")[2]
        flat = [part.reshape(-1, values.shape[1]) for part in parts]
        joined = self.add_matrix(f"blk.{layer}.attn_qkv.weight", np.concatenate(flat[:3]))
        z = self.add_matrix(f"blk.{layer}.attn_gate.weight", flat[3])
        meant = [*np.split(joined, [groups * keys, 2 * groups * keys]), z]
        return np.concatenate([part.reshape(groups, -1, values.shape[1]) for part in meant], axis=1).reshape(
            values.shape)

    def add_latent(self, name, values):
        """The matrices that make keys and values of a latent vector: one a head, of keys turned."""
        heads, of_keys = self.config["num_attention_heads"], self.config["qk_nope_head_dim"]
        layer = name.split(".")[2]
        keys, of_values = np.split(values.reshape(heads, -1, values.shape[1]), [of_keys], axis=1)
        keys = self.add_matrix(f"blk.{layer}.attn_k_b.weight", np.ascontiguousarray(keys.swapaxes(1, 2)))
        of_values = self.add_matrix(f"blk.{layer}.attn_v_b.weight", np.ascontiguousarray(of_values))
        return np.concatenate([keys.swapaxes(1, 2), of_values], axis=1).reshape(values.shape)

    def add_gate_and_up(self, name, values):
        """Granite's shared MLP: gate and up are tensors of their own, those of the one MLP where there are no experts."""
        end = "_shexp" if self.config["num_local_experts"] else ""
        parts = zip(("gate", "up"), np.split(values, 2))
        return np.concatenate([self.add_matrix(f"blk.{name.split('.')[2]}.ffn_{part}{end}.weight", rows)
                               for part, rows in parts])

    def add_matrix(self, name, values):
        # Routers are never quantised.
        kind = T.F32
        if "ffn_gate_inp" not in name:
            kind = self.types[self.next_type % len(self.types)]
            self.next_type += 1
            if values.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] != 0:
                kind = T.Q8_0  # as converters do where rows are no whole blocks
        data, values = stored(values, kind, self.draw)
        self.out.add_tensor(name, data, raw_dtype=kind)
        return values

    def add_experts(self, experts, meant):
        """All experts' matrices of a kind are one tensor, and so are their biases."""
        joined = {}
        for name in experts:
            words = name.split(".")
            layer, (expert, matrix, kind) = words[2], words[words.index("experts") + 1:]
            if name.startswith("mtp."):
                layer = self.config["num_hidden_layers"]
            part = {"w1": "gate", "w3": "up", "w2": "down"}.get(matrix, matrix.removesuffix("_proj"))
            joined.setdefault(f"blk.{layer}.ffn_{part}_exps.{kind}", {})[int(expert)] = name
        for new, members in joined.items():
            values = np.stack([experts[members[i]] for i in range(len(members))])
            if self.arch == "gemma4" and "_gate_" in new:  # gate's rows are followed by up's
                ups = joined[new.replace("_gate_", "_up_")]
                values = np.concatenate([values, np.stack([experts[ups[i]] for i in range(len(ups))])], axis=1)
                values = self.add_matrix(new.replace("_gate_", "_gate_up_"), values)
                for i, name in members.items():
                    meant[name], meant[ups[i]] = np.split(values[i], 2)
            if self.arch == "gemma4" and "_down_" not in new:
                continue
            if new.endswith(".weight"):
                values = self.add_matrix(new, values)
            else:
                self.out.add_tensor(new, values)
            for i, name in members.items():
                meant[name] = values[i]


def write_model(folder, case, first_type=0, with_module=False):
    """Returns the folder and the GGUF file; matrices take the types of TYPES in turn, from first_type on. with_module:
    a module for multi-token prediction, too, which mostly agrees with the model, and matrices in fp32."""
    return Writer(pathlib.Path(folder), case, first_type, with_module).write()
