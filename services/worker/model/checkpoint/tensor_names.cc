// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/tensor_names.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/base/check.h"

namespace continuo::model {
namespace {

// The embedding's name in most models, in those whose layers have a `mixer`, and in encoders.
constexpr std::string_view kEmbeddings[] = {"embed_tokens.weight", "embeddings.weight",
                                            "embeddings.word_embeddings.weight",
                                            "embeddings.tok_embeddings.weight"};

constexpr NamePrefix kPrefixes[] = {
    {"model.", ""},
    {"", ""},                                         // LlamaModel and the like
    {"backbone.", ""},                                // Nemotron-H
    {"bert.", ""},                                    // a class with a head of BERT
    {"roberta.", ""},                                 // the same of RoBERTa and XLM-RoBERTa
    {"model.model.", "model."},                       // a module that holds the model
    {"model.language_model.", ""},                    // the text part of a model for images
    {"language_model.model.", "language_model."},     // the same, in older files
    {"module.model.", "module."},                     // DistributedDataParallel
    {"_orig_mod.model.", "_orig_mod."},               // torch.compile
    {"base_model.model.model.", "base_model.model."}  // PEFT, its adapter merged
};

// Endings of names. They are buffers of rotary embeddings, which RopeConfig computes.
constexpr std::string_view kHarmless[] = {"rotary_emb.inv_freq",     "rotary_emb.original_inv_freq",
                                          "rotary_emb.cos_cached",   "rotary_emb.sin_cached",
                                          "rotary_pos_emb.inv_freq", "embeddings.position_ids"};

struct Reason {
  std::string_view part;  // of a name
  std::string_view why;
};

constexpr Reason kReasons[] = {
    {".lora_", "it belongs to a LoRA adapter, which has to be merged into the weights"},
    {".qweight", "it is quantised, and config.json has no quantization_config that says how"},
    {".qzeros", "it is quantised, and config.json has no quantization_config that says how"},
    {".g_idx", "it is quantised, and config.json has no quantization_config that says how"},
    {".scales", "it is quantised, and config.json has no quantization_config that says how"},
    {"_packed", "it is quantised, and config.json has no quantization_config that says how"},
    {"_scale", "it is quantised, and config.json has no quantization_config that says how"},
    {".absmax", "it is quantised, and config.json has no quantization_config that says how"},
    {".quant_", "it is quantised, and config.json has no quantization_config that says how"},
    {"vision", "it belongs to a model of images, which is not supported"},
    {"visual", "it belongs to a model of images, which is not supported"},
    {"v_head.", "it is a head that gives no tokens"},
    {"score.", "it is a head that gives no tokens"},
    {"classifier.", "it is a head that gives no tokens"},
    {".experts.", "config.json says otherwise of the experts"},
};

constexpr std::string_view kLayers = "model.layers.";
constexpr std::string_view kMtp = "mtp.";

// The number of the layer that a tensor belongs to; -1: it belongs to none.
int LayerOf(std::string_view name) {
  if (!name.starts_with(kLayers)) return -1;
  std::string_view number = name.substr(kLayers.size());
  number = number.substr(0, number.find('.'));
  int layer = 0;
  return absl::SimpleAtoi(std::string(number), &layer) && layer >= 0 ? layer : -1;
}

}  // namespace

const NamePrefix* FindNamePrefix(std::string_view embedding) {
  for (const std::string_view name : kEmbeddings) {
    if (!embedding.ends_with(name)) continue;
    const std::string_view body = embedding.substr(0, embedding.size() - name.size());
    for (const NamePrefix& prefix : kPrefixes) {
      if (body == prefix.body) return &prefix;
    }
  }
  return nullptr;
}

std::string CanonicalName(const NamePrefix& prefix, std::string_view name) {
  std::string_view rest = name;
  if (name.starts_with(prefix.head)) rest.remove_prefix(prefix.head.size());
  if (rest.starts_with("lm_head.") || rest.starts_with(kMtp)) return std::string(rest);
  if (!name.starts_with(prefix.body)) return std::string(name);
  return absl::StrCat("model.", std::string(name.substr(prefix.body.size())));
}

ScoreHeadNames NamesOfScoreHead(const ScoreHeadConfig& head) {
  switch (head.form) {
    case ScoreHeadConfig::Form::kNone:
      return {};
    case ScoreHeadConfig::Form::kProduct:
      return {.product = "score", .product_bias = false};
    case ScoreHeadConfig::Form::kPooler:
      return {.dense = "model.pooler.dense", .product = "classifier"};
    case ScoreHeadConfig::Form::kClassifier:
      return {.dense = "classifier.dense", .product = "classifier.out_proj"};
    case ScoreHeadConfig::Form::kPrediction:
      return {.dense = "head.dense",
              .dense_bias = head.dense_bias,
              .norm = "head.norm",
              .product = "classifier"};
  }
  CONTINUO_CHECK(!"a form that is not known");
}

std::vector<std::string> ScoreHeadTensors(const ModelConfig& config) {
  const ScoreHeadNames names = NamesOfScoreHead(config.score_head);
  std::vector<std::string> tensors;
  const auto add = [&tensors](std::string_view module, bool has_bias) {
    if (module.empty()) return;
    tensors.push_back(absl::StrCat(std::string(module), ".weight"));
    if (has_bias) tensors.push_back(absl::StrCat(std::string(module), ".bias"));
  };
  add(names.dense, names.dense_bias);
  add(names.norm, config.norm_bias);
  add(names.product, names.product_bias);
  return tensors;
}

bool IsMtpTensor(std::string_view name) { return name.starts_with(kMtp); }

std::string_view SkippedPart(const ModelConfig& config, std::string_view name) {
  constexpr std::string_view kTowers[] = {
      "vision_tower.",        "vision_model.",          "visual.",
      "audio_tower.",         "multi_modal_projector.", "mm_projector.",
      "embed_vision.",        "embed_audio.",           "image_newline",
      "vision_embed_tokens.", "vision_projection.",     "patch_merger."};
  const std::string_view rest = name.starts_with("model.") ? name.substr(6) : name;
  if (rest.starts_with(kMtp) && !config.reads_mtp) {
    return name.substr(0, name.size() - rest.size() + kMtp.size());
  }
  if (const int layer = LayerOf(name);
      layer >= config.num_layers && layer < config.num_layers + config.num_predicting_layers) {
    return name.substr(0, name.find('.', kLayers.size()) + 1);
  }
  // Files of Gemma 4 have keys' and values' weights of layers that read another layer's, too.
  if (const int layer = LayerOf(name);
      layer >= 0 && layer < config.num_layers && !config.has_own_kv(layer)) {
    for (const std::string_view own :
         {".self_attn.k_proj.", ".self_attn.v_proj.", ".self_attn.k_norm.", ".self_attn.v_norm."}) {
      if (name.find(own) != name.npos) return "keys and values that layers do not have";
    }
  }
  if (config.encoder.is_encoder) {
    // A pooler, which scores alone depend on, and heads that guess masked words.
    for (const std::string_view head : {"pooler.", "cls.", "lm_head.", "head.", "decoder."}) {
      if (rest.starts_with(head)) return name.substr(0, name.size() - rest.size() + head.size());
    }
  }
  if (!config.is_text_part) return {};
  for (const std::string_view tower : kTowers) {
    if (rest.starts_with(tower)) return name.substr(0, name.size() - rest.size() + tower.size());
  }
  return {};
}

bool IsHarmlessTensor(std::string_view name) {
  for (const std::string_view end : kHarmless) {
    if (name == end || name.ends_with(absl::StrCat(".", std::string(end)))) return true;
  }
  return false;
}

std::string WhyUnread(const ModelConfig& config, std::string_view name) {
  if (LayerOf(name) >= config.num_layers) {
    return absl::StrCat("; config.json's num_hidden_layers is ", config.num_layers);
  }
  for (const Reason& reason : kReasons) {
    if (name.find(reason.part) != name.npos) {
      return absl::StrCat("; ", std::string(reason.why));
    }
  }
  if (name.ends_with(".bias")) return "; config.json says that there is no such bias";
  return "";
}

}  // namespace continuo::model
