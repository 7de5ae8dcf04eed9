// SPDX-License-Identifier: Apache-2.0
// Field names and defaults are those of transformers' BertConfig, RobertaConfig and
// ModernBertConfig.
#include "services/worker/model/description/encoder_config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"

namespace continuo::model {
namespace {

constexpr int kMaxTokenTypes = 1 << 10;

int Size(JsonObject& json, std::string_view field, int64_t max, int64_t fallback) {
  return static_cast<int>(json.Int(field, 1, max, fallback));
}

// What all encoders are.
void BeginEncoder(ModelConfig& config) {
  config.encoder.is_encoder = true;
  config.encoder.embedding_norm = true;
  config.norm = NormKind::kLayer;
  config.tied_embeddings = true;  // there is no head that anybody reads
}

void ParseSizes(JsonObject& json, ModelConfig& config, int vocab_size, int layers, int inner) {
  config.vocab_size = Size(json, "vocab_size", kMaxVocabSize, vocab_size);
  config.hidden_size = Size(json, "hidden_size", kMaxHiddenSize, 768);
  config.intermediate_size = Size(json, "intermediate_size", kMaxIntermediateSize, inner);
  config.num_layers = Size(json, "num_hidden_layers", kMaxLayers, layers);
  config.num_heads = config.num_kv_heads = Size(json, "num_attention_heads", kMaxHeads, 12);
  const int dim = config.hidden_size / config.num_heads;
  if (config.hidden_size % config.num_heads != 0 || dim % 2 != 0 || dim > kMaxHeadDim) {
    json.Fail("num_attention_heads",
              absl::StrCat("heads of hidden_size, ", config.hidden_size, ", by ", config.num_heads,
                           " elements: it must be even, from 2 to ", kMaxHeadDim));
  }
  config.head_dim = config.rotary_dim = std::max(2, dim);
  config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_dim));
  config.windows.assign(static_cast<size_t>(config.num_layers), 0);
  config.layer_ropes.assign(static_cast<size_t>(config.num_layers), 0);
}

absl::Status ParseActivation(JsonObject& json, std::string_view field, Activation& activation) {
  const std::string name = json.String(field, "gelu");
  activation = Activation::kGeluErf;
  if (name == "gelu") return absl::OkStatus();
  activation = Activation::kGeluTanh;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat(json.name(), ": ", std::string(field), " \"", name.substr(0, 60),
                   "\" is not known; known of encoders are gelu, gelu_new and gelu_pytorch_tanh"));
}

// Post-norm layers with absolute positions; position 0 has row `first_position`.
absl::Status ParseBertLike(JsonObject& json, int first_position, ModelConfig& config) {
  BeginEncoder(config);
  config.names = WeightNames::kBert;
  ParseSizes(json, config, 30522, 12, 3072);
  EncoderConfig& encoder = config.encoder;
  encoder.stream_norms = true;
  encoder.final_norm = false;
  encoder.num_positions = Size(json, "max_position_embeddings", kMaxContextLength, 512);
  encoder.first_position = first_position;
  config.context_length = encoder.num_positions - first_position;
  if (config.context_length < 1) {
    json.Fail("max_position_embeddings",
              absl::StrCat("the first ", first_position, " positions are no text's"));
  }
  encoder.num_token_types = static_cast<int>(json.Int("type_vocab_size", 0, kMaxTokenTypes, 2));
  config.norm_eps = static_cast<float>(json.Number("layer_norm_eps", 0, 1, 1e-12));
  config.norm_bias = true;
  config.input_norms = false;
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.gated = false;
  config.ropes = {RopeConfig{.type = RopeConfig::Type::kNone}};
  const std::string positions = json.String("position_embedding_type", "absolute");
  if (positions != "absolute") json.Fail("position_embedding_type", "known is \"absolute\"");
  for (const std::string_view field : {"is_decoder", "add_cross_attention"}) {
    if (json.Bool(field, false)) json.Fail(field, "the model is an encoder, it must be false");
  }
  // These belong to a decoder's generation, and to a pooler with other layers, which no class here
  // has.
  for (const std::string_view field :
       {"use_cache", "tie_word_embeddings", "pooler_fc_size", "pooler_num_attention_heads",
        "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "directionality"}) {
    (void)json.Raw(field);
  }
  return ParseActivation(json, "hidden_act", config.activation);
}

absl::Status ParseBert(JsonObject& json, ModelConfig& config) {
  config.architecture = "BertModel";
  if (config.has_score_head()) config.score_head.form = ScoreHeadConfig::Form::kPooler;
  return ParseBertLike(json, 0, config);
}

// Positions count from behind the padding's id, whose row is for padding alone.
template <bool kIsXlm>
absl::Status ParseRoberta(JsonObject& json, ModelConfig& config) {
  config.architecture = kIsXlm ? "XLMRobertaModel" : "RobertaModel";
  if (config.has_score_head()) config.score_head.form = ScoreHeadConfig::Form::kClassifier;
  const auto padding = static_cast<int>(json.Int("pad_token_id", 0, kMaxVocabSize, 1));
  return ParseBertLike(json, padding + 1, config);
}

// RoPE's base of layers of a kind: rope_parameters' in newer files.
double ThetaOf(JsonObject& json, std::string_view kind, std::string_view older, double fallback) {
  if (!json.Has("rope_parameters")) {
    return json.Number(older, 1e-6, 1e18, fallback);
  }
  JsonObject all = json.Object("rope_parameters");
  JsonObject own = all.Object(kind);
  const double theta = own.Number("rope_theta", 1e-6, 1e18, fallback);
  if (own.String("rope_type", "default") != "default") {
    json.Fail("rope_parameters", "known of encoders is the rope_type \"default\"");
  }
  for (const JsonObject* const part : {&all, &own}) {
    if (!part->status().ok()) json.Fail("rope_parameters", std::string(part->status().message()));
  }
  return theta;
}

// Layers that see the whole text: every n-th, the first among them, or those of layer_types.
std::vector<bool> WholeLayers(JsonObject& json, int num_layers) {
  const int period = Size(json, "global_attn_every_n_layers", kMaxLayers, 3);
  std::vector<bool> whole(static_cast<size_t>(num_layers));
  for (int i = 0; i < num_layers; ++i) whole[static_cast<size_t>(i)] = i % period == 0;
  if (!json.Has("layer_types")) return whole;
  const nlohmann::json& types = json.Raw("layer_types");
  if (!types.is_array() || types.size() != whole.size()) {
    json.Fail("layer_types", absl::StrCat("it must be an array of ", num_layers));
    return whole;
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    whole[i] = types[i] == "full_attention";
    if (!whole[i] && types[i] != "sliding_attention") {
      json.Fail("layer_types", "known are full_attention and sliding_attention");
    }
  }
  return whole;
}

absl::Status ParsePrediction(JsonObject& json, ScoreHeadConfig& head) {
  head.form = ScoreHeadConfig::Form::kPrediction;
  head.dense_bias = json.Bool("classifier_bias", false);
  const std::string pooling = json.String("classifier_pooling", "cls");
  head.reads_mean = pooling == "mean";
  if (pooling != "cls" && pooling != "mean") {
    json.Fail("classifier_pooling", "known are \"cls\" and \"mean\"");
  }
  return ParseActivation(json, "classifier_activation", head.activation);
}

absl::Status ParseModernBert(JsonObject& json, ModelConfig& config) {
  config.architecture = "ModernBertModel";
  BeginEncoder(config);
  config.names = WeightNames::kModernBert;
  ParseSizes(json, config, 50368, 22, 1152);
  config.encoder.first_layer_reads_x = true;
  config.context_length = Size(json, "max_position_embeddings", kMaxContextLength, 8192);
  config.norm_eps = static_cast<float>(json.Number("norm_eps", 0, 1, 1e-5));
  config.norm_bias = json.Bool("norm_bias", false);
  for (const std::string_view field : {"attention_bias", "mlp_bias"}) {
    if (json.Bool(field, false)) json.Fail(field, "known is false");
  }
  // A token sees half of local_attention to each side.
  const int window = Size(json, "local_attention", kMaxContextLength, 128) / 2 + 1;
  const std::vector<bool> whole = WholeLayers(json, config.num_layers);
  const RopeConfig global = {.theta = ThetaOf(json, "full_attention", "global_rope_theta", 160000)};
  const RopeConfig local = {.theta = ThetaOf(json, "sliding_attention", "local_rope_theta", 10000)};
  config.ropes = {global};
  if (!(local == global)) config.ropes.push_back(local);
  for (size_t i = 0; i < whole.size(); ++i) {
    if (whole[i]) continue;
    config.windows[i] = window < config.context_length ? window : 0;
    config.layer_ropes[i] = static_cast<uint8_t>(config.ropes.size() - 1);
  }
  // How heads are trained and pooled, and how Python computes.
  for (const std::string_view field :
       {"classifier_pooling", "classifier_bias", "classifier_activation", "decoder_bias",
        "deterministic_flash_attn", "sparse_prediction", "sparse_pred_ignore_index",
        "reference_compile", "repad_logits_with_grad", "initializer_cutoff_factor",
        "tie_word_embeddings", "position_embedding_type", "layer_norm_eps"}) {
    (void)json.Raw(field);
  }
  if (config.has_score_head()) RETURN_IF_ERROR(ParsePrediction(json, config.score_head));
  return ParseActivation(json, "hidden_activation", config.activation);
}

constexpr EncoderFamily kEncoders[] = {
    {"Bert", "bert", "BERT", ParseBert},
    {"Roberta", "roberta", "RoBERTa", ParseRoberta<false>},
    {"XLMRoberta", "xlm-roberta", "XLM-RoBERTa", ParseRoberta<true>},
    {"ModernBert", "modernbert", "ModernBERT", ParseModernBert},
};

}  // namespace

std::span<const EncoderFamily> EncoderFamilies() { return kEncoders; }

const EncoderFamily* FindEncoder(const JsonObject& json) {
  const nlohmann::json& names = json.Raw("architectures");
  const bool has_name = names.is_array() && !names.empty() && names[0].is_string();
  const nlohmann::json& type = json.Raw("model_type");
  for (const EncoderFamily& family : kEncoders) {
    if (!has_name && type.is_string() && type.get<std::string>() == family.model_type) {
      return &family;
    }
    for (const char* end :
         {"Model", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification"}) {
      if (has_name && names[0].get<std::string>() == absl::StrCat(std::string(family.stem), end)) {
        return &family;
      }
    }
  }
  return nullptr;
}

}  // namespace continuo::model
