// SPDX-License-Identifier: Apache-2.0
#include "services/worker/gguf/pre_tokenizers.h"

#include <array>
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

constexpr char kQwen35Words[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kSeedWords[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1})"
                              R"(| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kMiniCpm5Words[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kThreeDigits[] = R"(\p{N}{1,3})";
// From the right, as thousands are written.
constexpr char kThousands[] = R"(\d{1,3}(?=(?:\d{3})*\b))";
constexpr char kHanKana[] = R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";
constexpr char kDeepSeek3Words[] =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kLineEnd[] = R"([\r\n])";
constexpr char kLetters[] = R"(\s?\p{L}+)", kPunctuation[] = R"(\s?\p{P}+)";
constexpr char kLastSpaces[] = R"(\s+$)";
constexpr char kHanHangul[] = R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";
constexpr char kDeepSeekLetters[] =
    R"(\s?[A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf})"
    R"(\x{1c4}-\x{293}\x{295}-\x{2af}\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f})"
    R"(\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481})"
    R"(\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}\x{13f8}-\x{13fd})"
    R"(\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77})"
    R"(\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45})"
    R"(\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d})"
    R"(\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc})"
    R"(\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4})"
    R"(\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124})"
    R"(\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f})"
    R"(\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4})"
    R"(\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f})"
    R"(\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06})"
    R"(\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f})"
    R"(\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2})"
    R"(\x{118a0}-\x{118df}\x{1e900}-\x{1e943}]+)";
constexpr char kDeepSeekPunctuation[] =
    R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)";

struct Rule {
  std::string_view name;
  // Each one divides the pieces that the ones before it made. None: GPT-2's words, which ByteLevel
  // has itself.
  std::array<const char*, 5> words = {};
  bool single_digits = false;  // each digit is a word
  bool normalises = false;     // to Unicode's form C
  bool ignore_merges = false;
  bool adds_bos = false;
};

constexpr Rule kRules[] = {
    {.name = "gpt-2"},
    {.name = "phi-2"},
    {.name = "olmo"},
    {.name = "exaone4"},
    {.name = "mellum"},
    {.name = "a.x-4.0"},
    {.name = "gigachat"},
    {.name = "trillion"},
    {.name = "granite-docling"},
    {.name = "smollm", .single_digits = true},
    {.name = "starcoder", .single_digits = true},
    {.name = "refact", .single_digits = true},
    {.name = "codeshell", .single_digits = true},
    {.name = "exaone", .single_digits = true},
    {.name = "minerva-7b", .single_digits = true},
    {.name = "command-r", .single_digits = true, .normalises = true},
    {.name = "llama-bpe", .words = {kGpt4Words}, .ignore_merges = true, .adds_bos = true},
    {.name = "llama3", .words = {kGpt4Words}, .ignore_merges = true, .adds_bos = true},
    {.name = "llama-v3", .words = {kGpt4Words}, .ignore_merges = true, .adds_bos = true},
    {.name = "lfm2", .words = {kGpt4Words}, .ignore_merges = true, .adds_bos = true},
    {.name = "falcon-h1", .words = {kGpt4Words}, .ignore_merges = true, .adds_bos = true},
    {.name = "midm-2.0", .words = {kGpt4Words}, .ignore_merges = true, .adds_bos = true},
    {.name = "falcon3", .words = {kGpt4Words}, .ignore_merges = true},
    {.name = "dbrx", .words = {kGpt4Words}},
    {.name = "smaug-bpe", .words = {kGpt4Words}},
    {.name = "chatglm-bpe", .words = {kGpt4Words}},
    {.name = "glm4", .words = {kGpt4Words}},
    {.name = "qwen2", .words = {kQwenWords}, .normalises = true},
    {.name = "deepseek-r1-qwen", .words = {kQwenWords}, .normalises = true},
    {.name = "qwen35", .words = {kQwen35Words}, .normalises = true},
    {.name = "stablelm2", .words = {kQwenWords}},
    {.name = "hunyuan", .words = {kQwenWords}},
    {.name = "seed-coder", .words = {kSeedWords}},
    {.name = "minicpm5", .words = {kThreeDigits, kMiniCpm5Words}, .ignore_merges = true},
    {.name = "deepseek-llm",
     .words = {kLineEnd, kDeepSeekLetters, kDeepSeekPunctuation, kLastSpaces, kHanHangul},
     .single_digits = true},
    {.name = "deepseek-coder",
     .words = {kLineEnd, kLetters, kPunctuation, kHanHangul},
     .single_digits = true},
    {.name = "deepseek-v3", .words = {kThreeDigits, kHanKana, kDeepSeek3Words}},
    {.name = "hunyuan-dense", .words = {kThreeDigits, kHanKana, kDeepSeek3Words}},
    {.name = "joyai-llm", .words = {kThreeDigits, kHanKana, kDeepSeek3Words}},
    {.name = "tekken", .words = {kTekkenWords}, .ignore_merges = true, .adds_bos = true},
    {.name = "gpt-4o", .words = {kGpt4oWords}},
    {.name = "kanana2", .words = {kGpt4oWords}},
    {.name = "tiny_aya", .words = {kThousands, kGpt4oWords}},
    {.name = "llama4", .words = {kGpt4oWords}, .ignore_merges = true},
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
    for (const char* const words : rule.words) {
      if (words == nullptr) break;
      steps.push_back({{"type", "Split"},
                       {"pattern", Json::object({{"Regex", words}})},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    }
    if (rule.single_digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
    steps.push_back(ByteLevel(rule.words[0] == nullptr));
    result.pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
    if (rule.normalises) result.normalizer = Json::object({{"type", "NFC"}});
    return result;
  }
  return absl::UnimplementedError(absl::StrCat("tokenizer.ggml.pre \"",
                                               std::string(name.substr(0, 60)),
                                               "\" is not known; known are ", known));
}

}  // namespace continuo::gguf
