// SPDX-License-Identifier: Apache-2.0
#include "services/worker/gguf/pre_tokenizers.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace continuo::gguf {
namespace {

using Json = nlohmann::ordered_json;

// The words that the models' own tokenizer.json files look for, by the names that llama.cpp gives
// to those files' rules (src/llama-vocab.cpp).
constexpr char kGpt4Words[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwenWords[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kTekkenWords[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kGpt4oWords[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Rule {
  std::string_view name;
  const char* words;           // null: GPT-2's, which ByteLevel has itself
  bool single_digits = false;  // each digit is a word, before the others are looked for
  bool normalises = false;     // to Unicode's form C
  bool ignore_merges = false;
  bool adds_bos = false;
};

constexpr Rule kRules[] = {
    {.name = "gpt-2", .words = nullptr},
    {.name = "smollm", .words = nullptr, .single_digits = true},
    {.name = "starcoder", .words = nullptr, .single_digits = true},
    {.name = "refact", .words = nullptr, .single_digits = true},
    {.name = "command-r", .words = nullptr, .single_digits = true},
    {.name = "llama-bpe", .words = kGpt4Words, .ignore_merges = true, .adds_bos = true},
    {.name = "llama3", .words = kGpt4Words, .ignore_merges = true, .adds_bos = true},
    {.name = "llama-v3", .words = kGpt4Words, .ignore_merges = true, .adds_bos = true},
    {.name = "falcon3", .words = kGpt4Words, .ignore_merges = true},
    {.name = "dbrx", .words = kGpt4Words},
    {.name = "smaug-bpe", .words = kGpt4Words},
    {.name = "chatglm-bpe", .words = kGpt4Words},
    {.name = "glm4", .words = kGpt4Words},
    {.name = "qwen2", .words = kQwenWords, .normalises = true},
    {.name = "deepseek-r1-qwen", .words = kQwenWords, .normalises = true},
    {.name = "stablelm2", .words = kQwenWords},
    {.name = "tekken", .words = kTekkenWords, .ignore_merges = true, .adds_bos = true},
    {.name = "gpt-4o", .words = kGpt4oWords},
    {.name = "llama4", .words = kGpt4oWords, .ignore_merges = true},
};

Json ByteLevel(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

}  // namespace

std::vector<std::string_view> PreTokenizerNames() {
  std::vector<std::string_view> names;
  for (const Rule& rule : kRules) names.push_back(rule.name);
  return names;
}

absl::StatusOr<PreTokenizer> FindPreTokenizer(std::string_view name) {
  std::string known;
  for (const Rule& rule : kRules) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(rule.name));
    if (rule.name != name) continue;
    PreTokenizer result{.ignore_merges = rule.ignore_merges, .adds_bos = rule.adds_bos};
    Json steps = Json::array();
    if (rule.single_digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
    if (rule.words != nullptr) {
      steps.push_back({{"type", "Split"},
                       {"pattern", Json::object({{"Regex", rule.words}})},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    }
    steps.push_back(ByteLevel(rule.words == nullptr));
    result.pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
    if (rule.normalises) result.normalizer = Json::object({{"type", "NFC"}});
    return result;
  }
  return absl::UnimplementedError(absl::StrCat("tokenizer.ggml.pre \"",
                                               std::string(name.substr(0, 60)),
                                               "\" is not known; known are ", known));
}

}  // namespace continuo::gguf
