// SPDX-License-Identifier: Apache-2.0
#include "services/worker/embedding/sentence_modules.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/base/utf8.h"
#include "services/worker/model/description/json_file.h"

namespace continuo::embedding {
namespace {

namespace fs = std::filesystem;
using model::JsonObject;

constexpr int64_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxModules = 64, kMaxPrompts = 256, kMaxPromptBytes = 1 << 16;
constexpr int64_t kMaxFeatures = 1 << 16, kMaxTokens = int64_t{1} << 30;
constexpr std::string_view kModules = "modules.json";
constexpr std::string_view kTransformer = "sentence_bert_config.json";
constexpr std::string_view kConfig = "config_sentence_transformers.json";

// How older files name the poolings, one boolean each.
struct OldPooling {
  std::string_view field, name;
};
constexpr OldPooling kOldPoolings[] = {
    {"pooling_mode_cls_token", "cls"},
    {"pooling_mode_max_tokens", "max"},
    {"pooling_mode_mean_tokens", "mean"},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
    {"pooling_mode_weightedmean_tokens", "weightedmean"},
    {"pooling_mode_lasttoken", "lasttoken"}};

absl::Status Unknown(std::string_view file, std::string_view what, std::string_view value,
                     std::string_view known) {
  return absl::UnimplementedError(absl::StrCat(std::string(file), ": ", std::string(what), " is ",
                                               model::ShowJson(nlohmann::json(std::string(value))),
                                               ", which is not supported; ", std::string(known)));
}

// The first field that nothing has read.
absl::Status CheckAllRead(const JsonObject& object) {
  const std::vector<std::string> unread = object.Unread();
  if (unread.empty()) return object.status();
  RETURN_IF_ERROR(object.status());
  return absl::UnimplementedError(absl::StrCat(object.name(), ": the field ",
                                               model::ShowJson(nlohmann::json(unread.front())),
                                               " is not known"));
}

// Fields that say which tensor a module reads and writes: the pooled vector.
void ReadPlaces(JsonObject& object) {
  for (const std::string_view field : {"module_input_name", "module_output_name"}) {
    const std::string place = object.String(field, "sentence_embedding");
    if (place != "sentence_embedding") object.Fail(field, "known is \"sentence_embedding\"");
  }
}

// The pooling that a file names; several are joined by "+".
std::string PoolingOf(JsonObject& object) {
  std::string pooling;
  for (const OldPooling& old : kOldPoolings) {
    if (!object.Bool(old.field, false)) continue;
    absl::StrAppend(&pooling, pooling.empty() ? "" : "+", std::string(old.name));
  }
  if (!object.Has("pooling_mode")) return pooling.empty() ? "mean" : pooling;
  const nlohmann::json& mode = object.Raw("pooling_mode");
  if (mode.is_array() && mode.size() == 1 && mode[0].is_string()) return mode[0].get<std::string>();
  return mode.is_string() ? mode.get<std::string>() : model::ShowJson(mode);
}

// "" where there is no such file.
absl::StatusOr<std::string> ReadOptional(const fs::path& path) {
  absl::StatusOr<std::string> text = model::ReadSmallFile(path.string(), kMaxFileBytes);
  if (absl::IsNotFound(text.status())) return "";
  return text;
}

// A folder below the model's: no way out of it.
bool IsPlainFolder(std::string_view path) {
  return path.size() <= 256 && path.find('/') == path.npos && path.find('\\') == path.npos &&
         path != "." && path != "..";
}

absl::Status ReadModule(const fs::path& dir, const ListedModule& module, SentenceModules* all) {
  const std::string name = absl::StrCat(module.path, "/config.json");
  if (module.kind == "Normalize") {
    all->normalises = true;
    ASSIGN_OR_RETURN(const std::string text, ReadOptional(dir / module.path / "config.json"));
    if (text.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(JsonObject object, JsonObject::Parse(name, text));
    ReadPlaces(object);
    return CheckAllRead(object);
  }
  ASSIGN_OR_RETURN(
      const std::string text,
      model::ReadSmallFile((dir / module.path / "config.json").string(), kMaxFileBytes));
  if (module.kind == "Pooling") return ParsePooling(name, text, all);
  if (module.kind == "LogitScore") {
    ASSIGN_OR_RETURN(all->score, ParseLogitScore(name, text));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(DenseModule dense, ParseDense(name, text));
  dense.folder = module.path;
  const int before = all->dense.empty() ? all->dimension : all->dense.back().out_features;
  if (before != 0 && dense.in_features != before) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": in_features is ", dense.in_features,
                                                   ", the module before gives ", before));
  }
  all->dense.push_back(std::move(dense));
  return absl::OkStatus();
}

// Known are Transformer, Pooling, any Dense, and at most one Normalize at the end; or Transformer
// with LogitScore or with nothing.
absl::Status CheckOrder(const std::vector<ListedModule>& modules) {
  const auto fails = [](size_t i, std::string_view kind) {
    return Unknown(
        kModules, absl::StrCat("module ", i), kind,
        "known are Transformer, Pooling, then Dense, then Normalize; or Transformer, alone "
        "or with LogitScore");
  };
  const bool is_score = modules.size() == 2 && modules[1].kind == "LogitScore";
  for (size_t i = 0; i < modules.size(); ++i) {
    const std::string& kind = modules[i].kind;
    const bool fits = i == 0 ? kind == "Transformer"
                      : i == 1
                          ? kind == "Pooling" || is_score
                          : kind == "Dense" || (kind == "Normalize" && i + 1 == modules.size());
    if (!fits) return fails(i, kind);
  }
  if (modules.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(kModules), ": has no module"));
  }
  if (modules[0].path.empty()) return absl::OkStatus();
  return Unknown(kModules, "path of the Transformer", modules[0].path,
                 "the model's files lie in the folder itself");
}

}  // namespace

absl::StatusOr<std::vector<ListedModule>> ParseModules(std::string_view json) {
  ASSIGN_OR_RETURN(const nlohmann::json list, model::ParseJson(kModules, json));
  if (!list.is_array() || list.size() > kMaxModules) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(kModules), ": must be an array of at most ", kMaxModules));
  }
  std::vector<ListedModule> modules;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string name = absl::StrCat(std::string(kModules), ": module ", i);
    ASSIGN_OR_RETURN(JsonObject object, JsonObject::Parse(name, list[i].dump()));
    const std::string type = object.String("type", "");
    ListedModule& module = modules.emplace_back();
    module.kind = type.substr(type.rfind('.') + 1);
    module.path = object.String("path", "");
    if (!IsPlainFolder(module.path)) object.Fail("path", "must be a folder of the model's");
    RETURN_IF_ERROR(object.status());
  }
  return modules;
}

absl::Status ParsePooling(std::string_view name, std::string_view json, SentenceModules* modules) {
  ASSIGN_OR_RETURN(JsonObject object, JsonObject::Parse(name, json));
  const std::string_view dimension =
      object.Has("embedding_dimension") ? "embedding_dimension" : "word_embedding_dimension";
  modules->dimension = static_cast<int>(object.Int(dimension, 1, kMaxFeatures, std::nullopt));
  const std::string pooling = PoolingOf(object);
  const bool has_prompt = object.Bool("include_prompt", true);
  if (!has_prompt && pooling == "mean") {
    object.Fail("include_prompt", "a mean is of all tokens, it must be true");
  }
  RETURN_IF_ERROR(CheckAllRead(object));
  for (const auto& [known, value] : {std::pair{"lasttoken", Pooling::kLast},
                                     {"cls", Pooling::kFirst},
                                     {"mean", Pooling::kMean}}) {
    if (pooling != known) continue;
    modules->pooling = value;
    return absl::OkStatus();
  }
  return Unknown(name, "the pooling", pooling, "known are lasttoken, cls and mean");
}

absl::StatusOr<DenseModule> ParseDense(std::string_view name, std::string_view json) {
  ASSIGN_OR_RETURN(JsonObject object, JsonObject::Parse(name, json));
  DenseModule dense;
  dense.in_features = static_cast<int>(object.Int("in_features", 1, kMaxFeatures, std::nullopt));
  dense.out_features = static_cast<int>(object.Int("out_features", 1, kMaxFeatures, std::nullopt));
  dense.has_bias = object.Bool("bias", true);
  ReadPlaces(object);
  if (object.Bool("use_residual", false)) object.Fail("use_residual", "known is false");
  const std::string type = object.String("activation_function", "torch.nn.modules.activation.Tanh");
  RETURN_IF_ERROR(CheckAllRead(object));
  const std::string activation = type.substr(type.rfind('.') + 1);
  if (activation != "Identity" && activation != "Tanh") {
    return Unknown(name, "activation_function", type, "known are Identity and Tanh of torch.nn");
  }
  dense.activation = activation == "Tanh" ? Activation::kTanh : Activation::kIdentity;
  return dense;
}

absl::StatusOr<ScoreTokens> ParseLogitScore(std::string_view name, std::string_view json) {
  ASSIGN_OR_RETURN(JsonObject object, JsonObject::Parse(name, json));
  ScoreTokens tokens;
  tokens.relevant = static_cast<int32_t>(object.Int("true_token_id", 0, kMaxTokens, std::nullopt));
  if (object.Has("false_token_id")) {
    tokens.irrelevant =
        static_cast<int32_t>(object.Int("false_token_id", 0, kMaxTokens, std::nullopt));
  }
  if (object.String("module_input_name", "causal_logits") != "causal_logits") {
    object.Fail("module_input_name", "known is \"causal_logits\"");
  }
  RETURN_IF_ERROR(CheckAllRead(object));
  return tokens;
}

absl::Status ParseTransformer(std::string_view json, SentenceModules* modules) {
  ASSIGN_OR_RETURN(JsonObject object, JsonObject::Parse(kTransformer, json));
  if (object.Has("max_seq_length")) {
    modules->max_tokens = static_cast<int>(object.Int("max_seq_length", 1, kMaxTokens, {}));
  }
  modules->lowercases = object.Bool("do_lower_case", false);
  const std::string task = modules->score.has_value() ? "text-generation"
                           : modules->has_score_head  ? "sequence-classification"
                                                      : "feature-extraction";
  if (object.String("transformer_task", task) != task) {
    object.Fail("transformer_task", absl::StrCat("known is \"", task, "\""));
  }
  const std::string output = modules->score.has_value() ? "causal_logits"
                             : modules->has_score_head  ? "scores"
                                                        : "token_embeddings";
  if (object.String("module_output_name", output) != output) {
    object.Fail("module_output_name", absl::StrCat("known is \"", output, "\""));
  }
  // It names methods of the Python class for text, images and so on; texts are all that is read.
  (void)object.Raw("modality_config");
  // They say how Python loads the files and pads its batches.
  for (const std::string_view field :
       {"model_args", "tokenizer_args", "config_args", "model_kwargs", "processor_kwargs",
        "config_kwargs", "processing_kwargs", "unpad_inputs"}) {
    (void)object.Raw(field);
  }
  return CheckAllRead(object);
}

absl::Status ParsePrompts(std::string_view json, SentenceModules* modules) {
  ASSIGN_OR_RETURN(JsonObject object, JsonObject::Parse(kConfig, json));
  modules->default_prompt = object.String("default_prompt_name", "");
  const nlohmann::json& prompts = object.Raw("prompts");
  if (prompts.is_object() && prompts.size() > kMaxPrompts) {
    object.Fail("prompts", absl::StrCat("has more than ", kMaxPrompts));
  } else if (prompts.is_object()) {
    for (const auto& [name, text] : prompts.items()) {
      const std::string value = text.is_string() ? text.get<std::string>() : "";
      const bool fits = (text.is_string() || text.is_null()) && !name.empty() &&
                        name.size() <= 128 && value.size() <= kMaxPromptBytes && IsUtf8(name) &&
                        IsUtf8(value);
      if (!fits) {
        object.Fail("prompts", absl::StrCat("must have names and texts of at most ",
                                            kMaxPromptBytes, " bytes"));
        break;
      }
      modules->prompts.push_back({name, value});
    }
  } else if (!prompts.is_null()) {
    object.Fail("prompts", "must be an object");
  }
  std::ranges::sort(modules->prompts, {}, &Prompt::name);
  const bool is_known = std::ranges::find(modules->prompts, modules->default_prompt,
                                          &Prompt::name) != modules->prompts.end();
  if (!modules->default_prompt.empty() && !is_known) {
    object.Fail("default_prompt_name", "is none of prompts");
  }
  // Other fields are versions, and how callers may compare vectors.
  return object.status();
}

absl::StatusOr<std::optional<SentenceModules>> ReadSentenceModules(const std::string& model_dir) {
  const fs::path dir(model_dir);
  std::error_code ignored;
  if (!fs::is_directory(dir, ignored)) return std::nullopt;
  ASSIGN_OR_RETURN(const std::string list, ReadOptional(dir / std::string(kModules)));
  if (list.empty()) return std::nullopt;
  ASSIGN_OR_RETURN(const std::vector<ListedModule> listed, ParseModules(list));
  RETURN_IF_ERROR(CheckOrder(listed));
  SentenceModules modules;
  modules.has_score_head = listed.size() == 1;
  for (size_t i = 1; i < listed.size(); ++i) {
    RETURN_IF_ERROR(ReadModule(dir, listed[i], &modules));
  }
  ASSIGN_OR_RETURN(const std::string transformer, ReadOptional(dir / std::string(kTransformer)));
  if (!transformer.empty()) RETURN_IF_ERROR(ParseTransformer(transformer, &modules));
  ASSIGN_OR_RETURN(const std::string config, ReadOptional(dir / std::string(kConfig)));
  if (!config.empty()) RETURN_IF_ERROR(ParsePrompts(config, &modules));
  return modules;
}

}  // namespace continuo::embedding
