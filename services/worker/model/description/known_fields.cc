// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/description/known_fields.h"

#include <fnmatch.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

namespace continuo::model {
namespace {

// Fields that change no answer of a causal decoder: names, sizes that others follow from, settings
// of training, of other tasks and of transformers itself, and defaults of sampling that are read
// from generation_config.json alone.
constexpr std::string_view kHarmless[] = {"architectures",
                                          "model_type",
                                          "auto_map",
                                          "transformers_version",
                                          "transformers.js_config",
                                          "torch_dtype",
                                          "dtype",
                                          "name",
                                          "name_or_path",
                                          "tokenizer_class",
                                          "is_decoder",
                                          "is_encoder_decoder",
                                          "use_cache",
                                          "cache_implementation",
                                          "attn_implementation",
                                          "initializer_range",
                                          "initializer_factor",
                                          "pretraining_tp",
                                          "output_attentions",
                                          "output_hidden_states",
                                          "return_dict",
                                          "use_return_dict",
                                          "torchscript",
                                          "use_bfloat16",
                                          "use_flash_attn",
                                          "use_flash_attention",
                                          "use_flash_attention_2",
                                          "fused_attn",
                                          "id2label",
                                          "label2id",
                                          "num_labels",
                                          "problem_type",
                                          "prefix",
                                          "finetuning_task",
                                          "task_specific_params",
                                          "keys_to_ignore_at_inference",
                                          "text_config",
                                          "max_length",
                                          "min_length",
                                          "do_sample",
                                          "early_stopping",
                                          "num_beams",
                                          "num_beam_groups",
                                          "diversity_penalty",
                                          "temperature",
                                          "top_k",
                                          "top_p",
                                          "typical_p",
                                          "repetition_penalty",
                                          "length_penalty",
                                          "no_repeat_ngram_size",
                                          "encoder_no_repeat_ngram_size",
                                          "bad_words_ids",
                                          "num_return_sequences",
                                          "output_scores",
                                          "chunk_size_feed_forward",
                                          "exponential_decay_length_penalty",
                                          "rope_theta",
                                          "head_dim",
                                          "sliding_window",
                                          "max_window_layers",
                                          "original_max_position_embeddings",
                                          "tie_encoder_decoder",
                                          "embd_layer",
                                          "img_processor",
                                          "router_aux_loss_coef",
                                          "output_router_logits",
                                          "router_jitter_noise",
                                          "aux_loss_alpha",
                                          "seq_aux",
                                          "num_nextn_predict_layers",
                                          "unsloth_fixed",
                                          "unsloth_version",
                                          "training_dtype",
                                          "gradient_checkpointing",
                                          "tp_size",
                                          "ep_size",
                                          "max_sequence_length",
                                          "seq_length",
                                          "n_ctx",
                                          "scale_attn_weights",
                                          "resid_pdrop",
                                          "moe_router_dtype"};

// Beginnings and endings of such fields.
constexpr std::string_view kHarmlessEnds[] = {"_token_id", "_token_ids", "_token_index",
                                              "_dropout",  "_pdrop",     "_dropout_prob"};

bool IsHarmless(std::string_view field) {
  if (field.starts_with("_")) return true;  // transformers' own
  return std::ranges::find(kHarmless, field) != std::end(kHarmless) ||
         std::ranges::any_of(kHarmlessEnds,
                             [&](std::string_view end) { return field.ends_with(end); });
}

bool IsOff(const nlohmann::json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_null() || ((value.is_array() || value.is_object()) && value.empty());
}

bool HasWord(std::string_view words, std::string_view word) {
  for (const auto& one : absl::StrSplit(absl::string_view(words.data(), words.size()), ' ')) {
    if (std::string_view(one.data(), one.size()) == word) return true;
  }
  return false;
}

}  // namespace

bool MatchesAny(std::string_view patterns, std::string_view name) {
  const std::string whole(name);
  const std::vector<std::string> all =
      absl::StrSplit(absl::string_view(patterns.data(), patterns.size()), ',', absl::SkipEmpty());
  return std::ranges::any_of(all, [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), whole.c_str(), 0) == 0;
  });
}

absl::Status CheckUnread(const JsonObject& json, std::string_view ignored,
                         std::string_view allow_unread) {
  for (const std::string& field : json.Unread()) {
    if (IsHarmless(field) || HasWord(ignored, field) || IsOff(json.Raw(field))) continue;
    if (MatchesAny(allow_unread, field)) continue;
    return absl::UnimplementedError(absl::StrCat(
        json.name(), ": field ", ShowJson(field), " is ", ShowJson(json.Raw(field)),
        ", which is not known, and it may change the answer; --allow_unread takes it"));
  }
  return absl::OkStatus();
}

absl::Status CheckExpected(JsonObject& json, std::string_view expected) {
  const nlohmann::json fields = nlohmann::json::parse(expected);
  for (const auto& [field, value] : fields.items()) {
    const nlohmann::json& found = json.Raw(field);
    if (found.is_null() || found == value) continue;
    return absl::UnimplementedError(absl::StrCat(json.name(), ": ", field, " is ", ShowJson(found),
                                                 "; only ", value.dump(), " is supported"));
  }
  return absl::OkStatus();
}

}  // namespace continuo::model
