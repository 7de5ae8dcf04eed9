// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/model/description/config.h"
#include "services/worker/model/description/json_file.h"

namespace continuo::model {

// The rule that says which layers attend to a window only, where layer_types does not.
enum class WindowRule : uint8_t {
  kNone,
  kAll,          // all, where sliding_window is set
  kSwitched,     // all, where use_sliding_window is on
  kByLayer,      // where that is on: those from max_window_layers on
  kPeriodic,     // all but every n-th; n is sliding_window_pattern, or else window_period
  kWithoutRope,  // where use_sliding_window is on: those that are not rotated
  kChunks,       // none; chunks of attention_chunk_size in those that are rotated
};

// The rule that says which layers have no RoPE.
enum class RopeScope : uint8_t {
  kAll,           // all are rotated
  kWindowed,      // where there are windows, only layers that have one are rotated
  kWindowedOnly,  // only layers that have a window are rotated
  kListed,        // no_rope_layers, or every no_rope_layer_interval-th, are not rotated
  kNamed,         // all are where position_embedding_type is rope, else none
  kNone,          // none are
};

// The fields that the multipliers of a family come from.
enum class Multipliers : uint8_t {
  kNone,
  kGemma4,   // the embedding by the root of its size; q·k is not multiplied
  kGemma,    // the embedding by the root of its size, q·k by that of query_pre_attn_scalar
  kGranite,  // embedding_multiplier, attention_multiplier, residual_multiplier, logits_scaling
  kCohere,   // logit_scale
  kMiniCpm,  // scale_emb, scale_depth, dim_model_base
};

// A field that says whether matrices have biases, or its older name; null: `fallback` holds always.
struct BiasField {
  const char* name = nullptr;
  const char* older = nullptr;
  bool fallback = false;
};

// The rule that says which layers have experts.
enum class ExpertLayers : uint8_t {
  kAll,
  kBySteps,     // every decoder_sparse_step-th but those of mlp_only_layers
  kAfterDense,  // those from the number of the dense ones on, or by mlp_layer_types
  kInRange,     // every moe_layer_interval-th from moe_layer_start_index to moe_layer_end_index
  kListed,      // those that PartsRule::kListed names
  kNumbered,    // moe_layers, or every interleave_moe_layer_step-th
};

// The rule that says which parts a layer has.
enum class PartsRule : uint8_t {
  kBoth,
  kListed,  // one, which layers_block_type, layer_types or hybrid_override_pattern names
  kStates,  // a recurrent state alone
};

// The unit in which a field counts shared experts.
enum class SharedUnit : uint8_t { kColumns, kExperts };

// The experts of a family. Numbers hold where their fields are absent.
struct ExpertFacts {
  const char* count_field = nullptr;   // null: the family has no experts
  const char* switch_field = nullptr;  // has to be true for them
  int count = 0;
  const char* per_token_field = "num_experts_per_tok";
  int per_token = 0;
  const char* size_field = "moe_intermediate_size";
  int size = 0;
  ExpertLayers layers = ExpertLayers::kAll;
  bool is_optional = false;                           // without experts all MLPs are dense
  const char* dense_field = "first_k_dense_replace";  // of kAfterDense
  int num_dense = 0;
  ExpertNames names = ExpertNames::kDeepSeek;
  bool biases = false;
  bool beside_dense = false;

  bool by_sigmoid = false;
  bool chooses_by_logits = false, weighs_inputs = false;
  const char* normalise_field = nullptr;
  bool normalise = false;
  const char* correction_field = nullptr;
  bool correction = false;
  bool by_groups = false;  // reads n_group and topk_group; in DeepSeek V2 where topk_method says so
  int num_groups = 1, top_groups = 1;
  bool by_top_two = false;
  bool scaled = false;  // reads routed_scaling_factor
  double factor = 1;

  const char* latent_field = nullptr;  // of ExpertsConfig::latent_size
  const char* shared_field = nullptr;
  SharedUnit shared_unit = SharedUnit::kColumns;
  int shared = 0;
  bool shared_gate = false;
};

// A family: the facts in which architectures differ, with Hugging Face's defaults for absent
// fields. config.h says what they mean to the network.
struct Family {
  std::string_view architecture;
  std::string_view model_type;
  std::string_view title;  // for people: "Llama 2 and 3"
  int context_length;
  // Where the fields are absent; 0: they have to be there.
  int vocab_size = 0, intermediate_size = 0, num_heads = 0, num_kv_heads = 0;
  const char* size_field = "intermediate_size";  // of dense MLPs
  int head_dim = 0;  // where the field is absent; 0: hidden_size / num_attention_heads
  bool tied_embeddings = false;
  WeightNames names = WeightNames::kLlama;

  NormKind norm = NormKind::kRms;
  const char* eps_field = "rms_norm_eps";
  double eps = 1e-6;
  bool norm_bias = false;
  bool gains_less_one = false;
  bool input_norms = true, output_norms = false, parallel = false;

  WindowRule window_rule = WindowRule::kNone;
  int sliding_window = 0;  // where the field is absent; 0: none
  int window_period = 0;
  bool last_is_full = false;  // the last layer has no window, whatever layer_types says
  RopeScope rope_scope = RopeScope::kAll;
  double rope_theta = 10000;
  // RoPE's base of layers with windows unless rope_local_base_freq names one; 0: that of the other
  // layers. Otherwise rope_scaling does not apply to layers with windows.
  double local_rope_theta = 0;
  bool scales_full_rope_only = false;  // rope_scaling is not for layers with windows
  bool states_scaled_context = false;  // max_position_embeddings counts rope_scaling in
  // The part of heads that is rotated in layers without windows, in proportion (kProportional),
  // where there are no rope_parameters; 0: all.
  double proportional_part = 0;
  bool partial_rotary = false;  // reads partial_rotary_factor
  double rotary_factor = 1;     // where that is absent
  bool interleaved_rope = false;
  QueryKeyNorm qk_norm = QueryKeyNorm::kNone;
  const char* qk_norm_switch = nullptr;  // a field that has to be true for it
  bool qk_norm_on = false;               // where that is absent
  bool qk_gains = true, norms_all_heads = true;
  // Reads attn_temperature_tuning, attn_scale and floor_scale: queries of layers without RoPE grow.
  bool tunes_temperature = false;
  bool sinks = false;
  bool latent = false;  // reads kv_lora_rank, q_lora_rank, qk_rope_head_dim …
  // Reads the fields by which layers differ in Gemma 4 (ParseShapes).
  bool layer_shapes = false;
  BiasField qkv_bias, output_bias;
  bool output_gate = false;
  bool mtp = false;                     // ModelConfig::knows_mtp
  StateKind states = StateKind::kNone;  // of layers that layer_types or older fields name
  PartsRule parts = PartsRule::kBoth;

  const char* activation_field = "hidden_act";
  Activation activation = Activation::kSilu;  // where the field is absent
  bool gated = true;
  BiasField mlp_bias;
  ExpertFacts experts;

  Multipliers multipliers = Multipliers::kNone;
  // Reads attn_logit_softcapping and final_logit_softcapping; these hold where they are absent.
  bool soft_caps = false;
  float attention_softcap = 0, final_softcap = 0;

  // A JSON object of fields that must have these values if they are there, and names of fields,
  // with spaces between them, that change no answer.
  const char* expected = "{}";
  const char* ignored = "";
};

// All families, in the order in which people read them.
std::span<const Family> Families();

// Null where no family has the architecture.
const Family* FindArchitecture(std::string_view architecture);

// Returns the family that "architectures" names, or plainly means (LlamaModel), or else the one of
// "model_type". Unimplemented names the unknown one and lists all known families.
absl::StatusOr<const Family*> FindFamily(JsonObject& json);

// True for the configuration of a model for text and more, whose text_config is a family's.
bool HasTextPart(JsonObject& json);

// True where "architectures" names a class for sequence classification.
bool HasScoreHead(JsonObject& json);

// These fill in parts of a configuration whose sizes are known: `windows`, what differs between
// layers with windows and others, `ropes` and what belongs
// to it, `parts`, `experts`, `states` and the sizes that belong to it, and the multipliers.
// ParseWindows returns which layers are of the kind that has windows, though one may be as long as
// the context and hide nothing; RopeLessLayers takes that. ParseParts is the first, and fills in
// which layers have experts and states where layers have one part. Errors come through
// json.status(), or are returned.
std::vector<bool> RopeLessLayers(const Family& family, JsonObject& json,
                                 const std::vector<bool>& windowed);
std::vector<bool> ParseWindows(const Family& family, JsonObject& json, ModelConfig& config);
void ParseShapes(const Family& family, JsonObject& json, const std::vector<bool>& windowed,
                 ModelConfig& config);
absl::Status ParseRopes(const Family& family, JsonObject& json, const std::vector<bool>& windowed,
                        ModelConfig& config);
void ParseParts(const Family& family, JsonObject& json, ModelConfig& config);
void ParseStates(const Family& family, JsonObject& json, ModelConfig& config);
void ParseExperts(const Family& family, JsonObject& json, ModelConfig& config);
void ParseMultipliers(const Family& family, JsonObject& json, ModelConfig& config);

}  // namespace continuo::model
