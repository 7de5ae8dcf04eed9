// SPDX-License-Identifier: Apache-2.0
#include "services/worker/quantised/quantisation_config.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"

namespace continuo::quantised {
namespace {

using nlohmann::json;

constexpr int64_t kMaxGroupSize = 1 << 20;
constexpr size_t kMaxGroups = 1024;
constexpr char kWeightOnly[] =
    "quantization_config: activations are quantised by the checkpoint's own tools; here only the "
    "weights are";

struct NamedMethod {
  const char* name;
  Method method;
};

constexpr NamedMethod kMethods[] = {{"fp8", Method::kFp8},
                                    {"compressed-tensors", Method::kCompressedTensors},
                                    {"awq", Method::kAwq},
                                    {"gptq", Method::kGptq},
                                    {"mxfp4", Method::kMxfp4}};

const json& NullJson() {
  static const json* const null = new json;
  return *null;
}

// The fields of an object. The first wrong one is remembered.
class Fields {
 public:
  Fields(std::string name, const json& object) : name_(std::move(name)), object_(object) {
    if (!object.is_object()) Fail("", object, "it must be an object");
  }

  const json& Raw(const char* field) const {
    if (!object_.is_object()) return NullJson();
    const auto found = object_.find(field);
    return found == object_.end() ? NullJson() : *found;
  }
  bool Has(const char* field) const { return !Raw(field).is_null(); }
  int64_t Int(const char* field, int64_t min, int64_t max, int64_t fallback) {
    const json& value = Raw(field);
    if (value.is_null()) return fallback;
    if (!value.is_number_integer() || value.get<double>() < static_cast<double>(min) ||
        value.get<double>() > static_cast<double>(max)) {
      Fail(field, value, absl::StrCat("it must be a whole number from ", min, " to ", max));
      return fallback;
    }
    return value.get<int64_t>();
  }
  bool Bool(const char* field, bool fallback) {
    const json& value = Raw(field);
    if (value.is_null()) return fallback;
    if (!value.is_boolean()) {
      Fail(field, value, "it must be true or false");
      return fallback;
    }
    return value.get<bool>();
  }
  // Returns the field's text in lower case.
  std::string Word(const char* field, const char* fallback) {
    const json& value = Raw(field);
    if (value.is_null()) return fallback;
    if (!value.is_string()) {
      Fail(field, value, "it must be a text");
      return fallback;
    }
    return absl::AsciiStrToLower(value.get<std::string>());
  }
  // Two positive numbers, also as "128x128".
  std::array<int64_t, 2> Pair(const char* field) {
    const json& value = Raw(field);
    std::array<int64_t, 2> pair = {0, 0};
    bool fits = value.is_array() && value.size() == 2;
    for (size_t i = 0; fits && i < 2; ++i) {
      fits = value[i].is_number_integer() && value[i].get<double>() >= 1 &&
             value[i].get<double>() <= static_cast<double>(kMaxGroupSize);
      if (fits) pair[i] = value[i].get<int64_t>();
    }
    if (!fits) {
      Fail(field, value,
           absl::StrCat("it must be a list of two numbers from 1 to ", kMaxGroupSize));
      return {1, 1};
    }
    return pair;
  }

  void Fail(const char* field, const json& value, const std::string& problem) {
    Set(absl::InvalidArgumentError(
        absl::StrCat(Path(field), " is ", ShowJsonValue(value), "; ", problem)));
  }
  // Says that a value is known and not taken.
  void Refuse(const char* field, const std::string& taken) {
    Set(absl::UnimplementedError(absl::StrCat(Path(field), " ", ShowJsonValue(Raw(field)),
                                              " is not supported; supported is ", taken)));
  }
  std::string Path(const char* field) const {
    return *field == 0 ? name_ : absl::StrCat(name_, ": ", field);
  }
  const absl::Status& status() const { return status_; }

 private:
  static std::string ShowJsonValue(const json& value) {
    constexpr size_t kMaxShown = 60;
    return value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace)
        .substr(0, kMaxShown);
  }
  void Set(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  const std::string name_;
  const json& object_;
  absl::Status status_;
};

std::string MethodNames() {
  std::string names;
  for (const NamedMethod& method : kMethods) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", method.name);
  }
  return names;
}

Scheme ParseFp8(Fields& fields, QuantisationConfig& config) {
  Scheme scheme = {.format = Format::kFloat8};
  if (fields.Has("weight_block_size")) {
    const auto [rows, columns] = fields.Pair("weight_block_size");
    scheme.sharing = Sharing::kBlock;
    scheme.block_rows = rows;
    scheme.block_columns = columns;
  }
  if (fields.Word("fmt", "e4m3") != "e4m3") fields.Refuse("fmt", "e4m3");
  if (fields.Word("expert_dtype", "fp8") != "fp8") fields.Refuse("expert_dtype", "fp8");
  config.notes.emplace_back(kWeightOnly);
  return scheme;
}

int64_t GroupSize(Fields& fields, const char* field) {
  const int64_t size = fields.Int(field, -1, kMaxGroupSize, 128);
  if (size == 0) fields.Fail(field, fields.Raw(field), "it must be positive, or -1 for whole rows");
  return std::max<int64_t>(size, 0);
}

Scheme ParseAwq(Fields& fields) {
  Scheme scheme = {
      .format = Format::kAwq, .bits = 4, .symmetric = false, .sharing = Sharing::kGroup};
  const char* const bits = fields.Has("bits") ? "bits" : "w_bit";
  if (fields.Int(bits, 1, 32, 4) != 4) fields.Refuse(bits, "4");
  scheme.group_size = GroupSize(fields, fields.Has("group_size") ? "group_size" : "q_group_size");
  const char* const version = fields.Has("version") ? "version" : "format";
  if (fields.Word(version, "gemm") != "gemm") fields.Refuse(version, "gemm");
  if (fields.Word("backend", "auto") == "llm-awq") fields.Refuse("backend", "autoawq");
  return scheme;
}

Scheme ParseGptq(Fields& fields) {
  Scheme scheme = {.format = Format::kGptq, .symmetric = false, .sharing = Sharing::kGroup};
  scheme.bits = static_cast<int>(fields.Int("bits", 1, 32, 4));
  if (scheme.bits != 4 && scheme.bits != 8) fields.Refuse("bits", "4 or 8");
  scheme.group_size = GroupSize(fields, "group_size");
  const char* const field = fields.Has("checkpoint_format") ? "checkpoint_format" : "format";
  const std::string format = fields.Word(field, "gptq");
  if (format != "gptq" && format != "gptq_v2") fields.Refuse(field, "gptq or gptq_v2");
  scheme.zeros_less_one = format == "gptq";
  if (fields.Bool("is_marlin_format", false)) fields.Refuse("is_marlin_format", "false");
  if (fields.Word("pack_dtype", "int32") != "int32") fields.Refuse("pack_dtype", "int32");
  // Rules of modules. Those behind "-:" leave a module as it is, which its tensors tell, too.
  const json& dynamic = fields.Raw("dynamic");
  if (!dynamic.is_null() && !dynamic.is_object()) {
    fields.Fail("dynamic", dynamic, "it must be an object");
  } else if (dynamic.is_object()) {
    for (auto it = dynamic.begin(); it != dynamic.end(); ++it) {
      if (!it.key().starts_with("-:")) {
        fields.Refuse("dynamic", "rules that leave modules as they are (\"-:...\")");
      }
    }
  }
  return scheme;
}

// The scheme of config_groups' "weights".
Scheme ParseWeights(Fields& fields, const std::string& format) {
  Scheme scheme;
  const std::string type = fields.Word("type", "int");
  scheme.bits = static_cast<int>(fields.Int("num_bits", 1, 32, 8));
  scheme.symmetric = fields.Bool("symmetric", true);
  const bool is_float = type == "float";
  if (!is_float && type != "int") fields.Refuse("type", "int or float");
  const bool is_fp4 = format == "nvfp4-pack-quantized" || format == "mxfp4-pack-quantized";
  if (format == "pack-quantized") {
    scheme.format = Format::kPackedInt;
    if (is_float) fields.Refuse("type", "int for pack-quantized");
    if (scheme.bits != 4 && scheme.bits != 8) fields.Refuse("num_bits", "4 or 8");
  } else if (is_fp4) {
    scheme.format = format[0] == 'n' ? Format::kNvfp4 : Format::kMxfp4;
    if (!is_float) fields.Refuse("type", absl::StrCat("float for ", format));
    if (scheme.bits != 4) fields.Refuse("num_bits", absl::StrCat("4 for ", format));
  } else {  // int-quantized, float-quantized, naive-quantized
    scheme.format = is_float ? Format::kFloat8 : Format::kInt8;
    if (scheme.bits != 8) fields.Refuse("num_bits", absl::StrCat("8 for ", format));
  }
  if (is_float && !scheme.symmetric) fields.Refuse("symmetric", "true where type is float");

  const int64_t group_size = fields.Int("group_size", -1, kMaxGroupSize, 0);
  const std::string strategy = fields.Word("strategy", group_size > 0     ? "group"
                                                       : group_size == -1 ? "channel"
                                                                          : "tensor");
  if (strategy == "tensor") {
    scheme.sharing = Sharing::kTensor;
  } else if (strategy == "channel") {
    scheme.sharing = Sharing::kChannel;
  } else if (strategy == "group" || strategy == "tensor_group") {
    scheme.sharing = Sharing::kGroup;
    scheme.group_size = group_size;
    if (group_size <= 0) {
      fields.Fail("group_size", fields.Raw("group_size"), "groups need a positive number");
    }
  } else if (strategy == "block") {
    scheme.sharing = Sharing::kBlock;
    const auto [rows, columns] = fields.Pair("block_structure");
    scheme.block_rows = rows;
    scheme.block_columns = columns;
  } else {
    fields.Refuse("strategy", "tensor, channel, group, tensor_group or block");
  }
  if (is_fp4 && scheme.sharing != Sharing::kGroup) {
    fields.Refuse("strategy", absl::StrCat("a group for ", format));
  }
  return scheme;
}

// Refuses what changes the values of compressed-tensors files in a way that is not read.
void CheckCompressedTensors(Fields& fields) {
  const std::string status = fields.Word("quantization_status", "compressed");
  if (status != "compressed") fields.Refuse("quantization_status", "compressed");
  for (const char* const field : {"sparsity_config", "transform_config", "moe_sparsity_config"}) {
    const json& value = fields.Raw(field);
    if (value.is_null() || (value.is_object() && value.empty())) continue;
    const auto format = value.is_object() ? value.find("format") : value.end();
    const bool is_dense = value.is_object() && format != value.end() && *format == json("dense");
    if (!is_dense) fields.Refuse(field, "none");
  }
}

absl::Status ParseGroups(Fields& fields, QuantisationConfig& config) {
  CheckCompressedTensors(fields);
  RETURN_IF_ERROR(fields.status());
  const json& groups = fields.Raw("config_groups");
  if (!groups.is_object() || groups.empty() || groups.size() > kMaxGroups) {
    fields.Fail("config_groups", groups,
                absl::StrCat("it must be an object with 1 to ", kMaxGroups, " groups"));
    return fields.status();
  }
  const std::string format = fields.Word("format", "");
  bool rounds_activations = fields.Has("kv_cache_scheme");
  for (auto it = groups.begin(); it != groups.end(); ++it) {
    Fields group(absl::StrCat(fields.Path("config_groups"), ": ", it.key().substr(0, 60)),
                 it.value());
    RETURN_IF_ERROR(group.status());
    rounds_activations |= group.Has("input_activations") || group.Has("output_activations");
    if (!group.Has("weights")) continue;  // a group of activations or of the KV cache
    Fields weights(group.Path("weights"), group.Raw("weights"));
    RETURN_IF_ERROR(weights.status());
    const std::string own = group.Word("format", format.c_str());
    constexpr std::string_view kFormats[] = {"pack-quantized",       "int-quantized",
                                             "float-quantized",      "naive-quantized",
                                             "nvfp4-pack-quantized", "mxfp4-pack-quantized"};
    if (std::ranges::find(kFormats, std::string_view(own)) == std::end(kFormats)) {
      std::string taken;
      for (const std::string_view name : kFormats) {
        absl::StrAppend(&taken, taken.empty() ? "" : ", ", std::string(name));
      }
      (group.Has("format") ? group : fields).Refuse("format", taken);
    }
    RETURN_IF_ERROR(group.status());
    RETURN_IF_ERROR(fields.status());
    ASSIGN_OR_RETURN(ModulePatterns targets,
                     ModulePatterns::Make(ModulePatterns::Kind::kTargets, group.Path("targets"),
                                          group.Raw("targets")));
    config.groups.push_back({std::move(targets), ParseWeights(weights, own)});
    RETURN_IF_ERROR(weights.status());
  }
  if (rounds_activations) config.notes.emplace_back(kWeightOnly);
  ASSIGN_OR_RETURN(config.ignored,
                   ModulePatterns::Make(ModulePatterns::Kind::kTargets, fields.Path("ignore"),
                                        fields.Raw("ignore")));
  return fields.status();
}

// The object that tells of the quantisation, and where it lies.
std::pair<std::string, const json*> FindObject(const json& config) {
  for (const char* const nested : {"", "text_config"}) {
    const json* parent = &config;
    if (*nested != 0) {
      if (!config.is_object() || !config.contains(nested)) continue;
      parent = &config[nested];
    }
    if (!parent->is_object()) continue;
    for (const char* const field : {"quantization_config", "compression_config"}) {
      const auto found = parent->find(field);
      if (found == parent->end() || found->is_null()) continue;
      return {absl::StrCat("config.json: ", nested, *nested != 0 ? ": " : "", field), &*found};
    }
  }
  return {"", nullptr};
}

}  // namespace

absl::StatusOr<QuantisationConfig> ReadQuantisationConfig(const json& json_config) {
  QuantisationConfig config;
  const auto [name, object] = FindObject(json_config);
  if (object == nullptr) return config;
  Fields fields(name, *object);
  RETURN_IF_ERROR(fields.status());
  const std::string method =
      fields.Word("quant_method", fields.Has("config_groups") ? "compressed-tensors" : "");
  RETURN_IF_ERROR(fields.status());
  for (const NamedMethod& known : kMethods) {
    if (method == known.name) config.method = known.method;
  }
  switch (config.method) {
    case Method::kNone:
      if (method.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(name, ": has no quant_method"));
      }
      fields.Refuse("quant_method", MethodNames());
      break;
    case Method::kFp8:
      config.groups.push_back({{}, ParseFp8(fields, config)});
      break;
    case Method::kAwq:
      config.groups.push_back({{}, ParseAwq(fields)});
      break;
    case Method::kGptq:
      config.groups.push_back({{}, ParseGptq(fields)});
      break;
    case Method::kMxfp4:
      config.groups.push_back(
          {{},
           {.format = Format::kMxfp4, .bits = 4, .sharing = Sharing::kGroup, .group_size = 32}});
      break;
    case Method::kCompressedTensors:
      RETURN_IF_ERROR(ParseGroups(fields, config));
      break;
  }
  RETURN_IF_ERROR(fields.status());
  if (config.method != Method::kCompressedTensors) {
    const char* const list =
        fields.Has("modules_to_not_convert") ? "modules_to_not_convert" : "ignored_layers";
    ASSIGN_OR_RETURN(config.ignored, ModulePatterns::Make(ModulePatterns::Kind::kParts,
                                                          fields.Path(list), fields.Raw(list)));
  }
  return config;
}

absl::StatusOr<Scheme> SchemeOf(const QuantisationConfig& config, std::string_view module,
                                const std::string& tensor) {
  const auto error = [&](const char* problem) {
    return absl::InvalidArgumentError(absl::StrCat("weights: tensor ", tensor, problem));
  };
  if (config.ignored.Find(module) != ModulePatterns::Match::kNone) {
    return error(" is quantised, and config.json's quantization_config leaves its module as it is");
  }
  const Scheme* best = nullptr;
  if (config.method != Method::kCompressedTensors) {
    best = &config.groups.front().scheme;
  } else {
    auto match = ModulePatterns::Match::kNone;
    for (const QuantisationConfig::Group& group : config.groups) {
      const ModulePatterns::Match found = group.targets.Find(module);
      if (found <= match) continue;
      match = found;
      best = &group.scheme;
    }
  }
  if (best == nullptr) return error(" is quantised, and no group of config_groups has it");
  return *best;
}

}  // namespace continuo::quantised
