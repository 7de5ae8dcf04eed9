// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/tools/make_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/math/bfloat16.h"
#include "nlohmann/json.hpp"
#include "services/base/random.h"
#include "services/base/status_macros.h"
#include "services/worker/model/checkpoint/fingerprint.h"
#include "services/worker/model/checkpoint/tensor_names.h"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/model/description/config.h"
#include "services/worker/model/description/json_file.h"

namespace continuo::model {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kChunkElements = 1 << 20;  // made and written at a time

uint64_t Mix(uint64_t x) { return SplitMix64(x).Next(); }

// Element i of the stream `key`: uniform in [-1, 1), a multiple of 2^-23.
float Uniform(uint64_t key, uint64_t i) {
  const int64_t bits = static_cast<int64_t>(Mix(key ^ Mix(i)) >> 40) - (int64_t{1} << 23);
  return static_cast<float>(bits) * 0x1p-23f;
}

struct Format {
  std::string name;  // in safetensors
  size_t bytes;
};

absl::StatusOr<Format> FormatOf(const std::string& dtype) {
  if (dtype == "bf16") return Format{"BF16", 2};
  if (dtype == "fp16") return Format{"F16", 2};
  if (dtype == "fp32") return Format{"F32", 4};
  return absl::InvalidArgumentError(
      absl::StrCat("dtype is \"", dtype, "\"; it must be bf16, fp16 or fp32"));
}

// value = offset + amplitude * Uniform
struct Distribution {
  float offset = 0, amplitude = 0;
};

Distribution DistributionOf(const WeightSpec& spec, int hidden_size) {
  if (spec.shape.size() == 1) {
    const bool gain = spec.name.find("norm.weight") != std::string::npos ||
                      spec.name.find("layernorm_") != std::string::npos ||
                      spec.name.ends_with("LayerNorm.weight") ||
                      spec.name.ends_with("layer_scalar") || spec.name.ends_with("router.scale") ||
                      spec.name.ends_with("router.per_expert_scale");
    return {gain && !spec.less_one ? 1.0f : 0.0f, 0.1f};
  }
  // A uniform number in [-1, 1) has a standard deviation of 1/√3.
  const bool vocabulary = spec.cut == Cut::kVocabRows;
  const double in = static_cast<double>(vocabulary ? hidden_size : spec.shape.back());
  return {0.0f, static_cast<float>((vocabulary ? 2.0 : 1.0) * std::sqrt(3.0 / in))};
}

// What stands in front of an encoder's names in files: nothing for its base model's class, by which
// encoders are published, unless it has a head.
std::string_view EncoderPrefix(const ModelConfig& config) {
  if (!config.has_score_head()) return "";
  switch (config.score_head.form) {
    case ScoreHeadConfig::Form::kPooler:
      return "bert.";
    case ScoreHeadConfig::Form::kClassifier:
      return "roberta.";
    default:
      return "model.";
  }
}

// The name that files of the family have.
std::string StoredName(const WeightSpec& spec, const ModelConfig& config) {
  constexpr std::string_view kBody = "model.";
  if (!config.encoder.is_encoder || !spec.name.starts_with(kBody)) return spec.name;
  return absl::StrCat(std::string(EncoderPrefix(config)), spec.name.substr(kBody.size()));
}

// The tensors of a head of one score.
std::vector<WeightSpec> ScoreHeadSpecs(const ModelConfig& config) {
  const ScoreHeadNames names = NamesOfScoreHead(config.score_head);
  std::vector<WeightSpec> specs;
  for (const std::string& name : ScoreHeadTensors(config)) {
    const bool is_product = name.starts_with(absl::StrCat(std::string(names.product), "."));
    const bool is_matrix =
        name.ends_with(".weight") && (is_product || name.starts_with(std::string(names.dense)));
    WeightSpec& spec = specs.emplace_back();
    spec.name = name;
    spec.shape = {is_product ? 1 : config.hidden_size};
    if (is_matrix) spec.shape.push_back(config.hidden_size);
  }
  return specs;
}

int64_t Elements(const WeightSpec& spec) {
  int64_t n = 1;
  for (const int64_t size : spec.shape) n *= size;
  return n;
}

void WriteTensor(const WeightSpec& spec, const Distribution& distribution, const Format& format,
                 uint64_t seed, std::ofstream& out) {
  const uint64_t key = Mix(seed) ^ DigestOf(spec.name).low;
  const int64_t total = Elements(spec);
  std::vector<char> bytes;
  for (int64_t begin = 0; begin < total; begin += kChunkElements) {
    const int64_t n = std::min(kChunkElements, total - begin);
    bytes.resize(static_cast<size_t>(n) * format.bytes);
    for (int64_t i = 0; i < n; ++i) {
      const float value = distribution.offset +
                          distribution.amplitude * Uniform(key, static_cast<uint64_t>(begin + i));
      char* to = bytes.data() + static_cast<size_t>(i) * format.bytes;
      if (format.bytes == 4) {
        std::memcpy(to, &value, 4);
      } else {
        const uint16_t half =
            format.name == "BF16" ? kernels::ToBF16(value) : kernels::ToF16(value);
        std::memcpy(to, &half, 2);
      }
    }
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
}

absl::Status WriteText(const fs::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (out) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path.string(), ": cannot be written"));
}

absl::Status WriteShard(const fs::path& path, const std::vector<WeightSpec>& specs,
                        const ModelConfig& config, const Format& format, uint64_t seed) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  int64_t offset = 0;
  for (const WeightSpec& spec : specs) {
    const int64_t bytes = Elements(spec) * static_cast<int64_t>(format.bytes);
    header[StoredName(spec, config)] = {
        {"dtype", format.name}, {"shape", spec.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data begins at a multiple of 8
  std::ofstream out(path, std::ios::binary);
  for (int i = 0; i < 8; ++i) out.put(static_cast<char>(text.size() >> (8 * i)));
  out << text;
  for (const WeightSpec& spec : specs) {
    WriteTensor(spec, DistributionOf(spec, config.hidden_size), format, seed, out);
  }
  out.close();
  if (out) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path.string(), ": cannot be written"));
}

absl::Status WriteWeights(const RandomModelOptions& options, const ModelConfig& config,
                          const Format& format) {
  ModelWeights places;
  std::vector<std::vector<WeightSpec>> shards(1);
  int64_t bytes = 0, total = 0;
  std::vector<WeightSpec> specs = ListWeights(config, places);
  for (WeightSpec& spec : ScoreHeadSpecs(config)) specs.push_back(std::move(spec));
  for (WeightSpec& spec : specs) {
    if (!shards.back().empty() && shards.back().back().name == spec.name) continue;
    const int64_t size = Elements(spec) * static_cast<int64_t>(format.bytes);
    if (bytes > 0 && bytes + size > options.shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += size;
    total += size;
    shards.back().push_back(std::move(spec));
  }
  const fs::path dir(options.out_dir);
  if (shards.size() == 1) {
    return WriteShard(dir / "model.safetensors", shards[0], config, format, options.seed);
  }
  nlohmann::json index;
  index["metadata"]["total_size"] = total;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, shards.size());
    for (const WeightSpec& spec : shards[i]) index["weight_map"][StoredName(spec, config)] = name;
    RETURN_IF_ERROR(WriteShard(dir / name, shards[i], config, format, options.seed));
  }
  return WriteText(dir / "model.safetensors.index.json", index.dump(2));
}

// GPT-2's printable stand-ins for bytes, as UTF-8: bytes that are printable in Latin-1 stand for
// themselves, the others for U+0100 on.
std::vector<std::string> ByteStandIns() {
  std::vector<std::string> names;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
                           (byte >= 0xAE && byte <= 0xFF);
    const int code = printable ? byte : next++;
    std::string name;
    if (code < 0x80) {
      name = static_cast<char>(code);
    } else {
      name = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
    }
    names.push_back(name);
  }
  return names;
}

constexpr char kChatTemplate[] =
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}";

absl::Status WriteTokenizer(const RandomModelOptions& options, const ModelConfig& config) {
  const fs::path dir(options.out_dir);
  if (options.tokenizer_dir.empty()) {
    RETURN_IF_ERROR(
        WriteText(dir / "tokenizer.json",
                  ByteLevelTokenizerJson(config.vocab_size, config.defaults.eos_token_ids)));
    return WriteText(dir / "tokenizer_config.json",
                     nlohmann::json{{"chat_template", kChatTemplate}}.dump(2));
  }
  const fs::path from(options.tokenizer_dir);
  bool found = false;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "chat_template.jinja", "generation_config.json"}) {
    std::error_code error;
    if (!fs::exists(from / name, error)) continue;
    fs::copy_file(from / name, dir / name, fs::copy_options::overwrite_existing, error);
    if (error) {
      return absl::InvalidArgumentError(
          absl::StrCat((from / name).string(), ": ", error.message()));
    }
    found = found || std::string(name) == "tokenizer.json";
  }
  if (found) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(options.tokenizer_dir, ": has no tokenizer.json"));
}

}  // namespace

std::string ByteLevelTokenizerJson(int vocab_size, const std::vector<int32_t>& special_ids) {
  const std::vector<std::string> bytes = ByteStandIns();
  const std::string space = bytes[' '];
  nlohmann::json vocab = nlohmann::json::object(), added = nlohmann::json::array();
  size_t next_byte = 0;
  for (int id = 0; id < vocab_size; ++id) {
    std::string name;
    if (std::find(special_ids.begin(), special_ids.end(), id) != special_ids.end()) {
      name = absl::StrCat("<|special_", id, "|>");
      added.push_back({{"id", id},
                       {"content", name},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
    } else if (next_byte < bytes.size()) {
      name = bytes[next_byte++];
    } else {
      name = absl::StrCat(space, "w", id);
    }
    vocab[name] = id;
  }
  const nlohmann::json byte_level = {{"type", "ByteLevel"},
                                     {"add_prefix_space", false},
                                     {"trim_offsets", true},
                                     {"use_regex", true}};
  const nlohmann::json tokenizer = {{"version", "1.0"},
                                    {"truncation", nullptr},
                                    {"padding", nullptr},
                                    {"added_tokens", added},
                                    {"normalizer", nullptr},
                                    {"pre_tokenizer", byte_level},
                                    {"post_processor", nullptr},
                                    {"decoder", byte_level},
                                    {"model",
                                     {{"type", "BPE"},
                                      {"dropout", nullptr},
                                      {"unk_token", nullptr},
                                      {"continuing_subword_prefix", nullptr},
                                      {"end_of_word_suffix", nullptr},
                                      {"fuse_unk", false},
                                      {"byte_fallback", false},
                                      {"vocab", vocab},
                                      {"merges", nlohmann::json::array()}}}};
  return tokenizer.dump(1);
}

absl::Status WriteRandomModel(const RandomModelOptions& options) {
  ASSIGN_OR_RETURN(ModelConfig config, ParseModelConfig(options.config_json, ""));
  if (options.mtp) RETURN_IF_ERROR(AddMtpLayer(config));
  ASSIGN_OR_RETURN(const Format format, FormatOf(options.dtype));
  if (options.shard_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard_bytes is ", options.shard_bytes, "; it must be at least 1"));
  }
  std::error_code error;
  fs::create_directories(options.out_dir, error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat(options.out_dir, ": ", error.message()));
  }
  ASSIGN_OR_RETURN(nlohmann::json config_json, ParseJson("config.json", options.config_json));
  config_json.erase("dtype");
  config_json["torch_dtype"] = options.dtype == "bf16"   ? "bfloat16"
                               : options.dtype == "fp16" ? "float16"
                                                         : "float32";
  RETURN_IF_ERROR(WriteText(fs::path(options.out_dir) / "config.json", config_json.dump(2)));
  RETURN_IF_ERROR(WriteTokenizer(options, config));
  return WriteWeights(options, config, format);
}

}  // namespace continuo::model
