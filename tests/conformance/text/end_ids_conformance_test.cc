// SPDX-License-Identifier: Apache-2.0
// The token that each of the published templates closes a turn of the assistant with.
#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>

#include "tests/testing/text_files.h"
#include "tests/worker/text/test_files.h"

namespace continuo {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Special tokens that are no tags, or that a template makes of parts.
constexpr const char* kOtherTokens[] = {"[e~[", "]~b]", "]~!b[", "<｜hy_eos:opensource｜>",
                                        "<｜hy_User:opensource｜>"};

// A tokenizer that finds every tag in the template as a special token.
std::string TokenizerFor(const std::string& chat_template) {
  static const std::regex kTag(R"(<[^<>\s{}'"()=]{1,40}>|\[/?[A-Z_]+\])");
  std::set<std::string> tags = {"<EOS>", "<BOS>"};
  tags.insert(std::begin(kOtherTokens), std::end(kOtherTokens));
  for (std::sregex_iterator it(chat_template.begin(), chat_template.end(), kTag), end; it != end;
       ++it) {
    tags.insert(it->str());
  }
  json added = json::array();
  for (const std::string& tag : tags) {
    added.push_back({{"id", 3 + added.size()},
                     {"content", tag},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  return json{
      {"version", "1.0"},
      {"added_tokens", added},
      {"pre_tokenizer",
       {{"type", "Split"},
        {"pattern", {{"Regex", "\\s"}}},
        {"behavior", "Isolated"},
        {"invert", false}}},
      {"model",
       {{"type", "WordLevel"}, {"vocab", {{"?", 0}, {"\n", 1}, {" ", 2}}}, {"unk_token", "?"}}}}
      .dump();
}

// The variable eos_token without a file that says that it ends an answer.
constexpr char kConfig[] =
    R"({"bos_token": "<BOS>", "extra_special_tokens": {"eos_token": "<EOS>"}})";

std::string ClosingToken(const std::string& chat_template) {
  const auto model = testing::OpenText({.tokenizer_json = TokenizerFor(chat_template),
                                        .tokenizer_config_json = kConfig,
                                        .chat_template = chat_template});
  EXPECT_TRUE(model.ok()) << model.status();
  // The end tokens that the files of a model with these templates name.
  const int32_t named = testing::IdOf(**model, " <|END_OF_TURN_TOKEN|>");
  std::string shown;
  for (const int32_t id : (*model)->EndIds({&named, size_t{named >= 0}})) {
    shown += (*model)->TokenBytesKeepSpecial(id);
  }
  if (shown.starts_with(' ')) shown.erase(0, 1);  // of tokens without a decoder
  return shown;
}

TEST(EndIdsConformanceTest, PublishedTemplatesShowWhatTheyCloseTurnsWith) {
  CONTINUO_NEED_SHARED("data/chat_templates/llama.cpp/Qwen-Qwen3-0.6B.jinja");
  // MiroThinker's refuses every turn of the assistant, firefunction's refuses all without two
  // arguments.
  const std::map<std::string, std::string> expected = {
      {"Apertus-8B-Instruct", "<|assistant_end|>"},
      {"Apriel-1.6-15b-Thinker-fixed", "<|end|>"},
      {"Bielik-11B-v3.0-Instruct", "<|im_end|>"},
      {"ByteDance-Seed-OSS", "<seed:eos>"},
      {"Cohere2MoE", "<|END_OF_TURN_TOKEN|>"},
      {"CohereForAI-c4ai-command-r-plus-tool_use", "<|END_OF_TURN_TOKEN|>"},
      {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "<|END_OF_TURN_TOKEN|>"},
      {"GLM-4.6", "<|user|>"},
      {"GLM-4.7-Flash", "<|user|>"},
      {"GLM-5.2", "<|user|>"},
      {"GigaChat3-10B-A1.8B", "<|message_sep|>"},
      {"GigaChat3.1-10B-A1.8B", "<|message_sep|>"},
      {"HuggingFaceTB-SmolLM3-3B", "<|im_end|>"},
      {"Kimi-K2-Instruct", "<|im_end|>"},
      {"Kimi-K2-Thinking", "<|im_end|>"},
      {"LFM2-8B-A1B", "<|im_end|>"},
      {"LFM2.5-8B-A1B", "<|im_end|>"},
      {"LFM2.5-Instruct", "<|im_end|>"},
      {"MiMo-VL", "<|im_end|>"},
      {"MiniMax-M2", "[e~["},
      {"MiniMax-M3", "[e~["},
      {"MiroThinker", "<|im_end|>"},
      {"Mistral-Small-3.2-24B-Instruct-2506", "<EOS>"},
      {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "<|im_end|>"},
      {"NVIDIA-Nemotron-Nano-v2", "<SPECIAL_12>"},
      {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "<|im_end|>"},
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "<|im_end|>"},
      {"Qwen-QwQ-32B", "<|im_end|>"},
      {"Qwen-Qwen2.5-7B-Instruct", "<|im_end|>"},
      {"Qwen-Qwen3-0.6B", "<|im_end|>"},
      {"Qwen3-Coder", "<|im_end|>"},
      {"Qwen3.5-4B", "<|im_end|>"},
      {"Reka-Edge", "<sep>"},
      {"StepFun3.5-Flash", "<|im_end|>"},
      {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "<｜end▁of▁sentence｜>"},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "<｜end▁of▁sentence｜>"},
      {"deepseek-ai-DeepSeek-V3.1", "<｜end▁of▁sentence｜>"},
      {"deepseek-ai-DeepSeek-V3.2", "<｜end▁of▁sentence｜>"},
      {"deepseek-ai-DeepSeek-V4", "<｜end▁of▁sentence｜>"},
      {"deepseek-ai-DeepSeek-V4-Flash-0731", "<｜end▁of▁sentence｜>"},
      {"fireworks-ai-llama-3-firefunction-v2", "<|eot_id|>"},
      {"google-gemma-2-2b-it", "<end_of_turn>"},
      {"google-gemma-4-31B-it", "<turn|>"},
      {"google-gemma-4-31B-it-interleaved", "<turn|>"},
      {"ibm-granite-granite-3.3-2B-Instruct", "<|end_of_text|>"},
      {"ibm-granite-granite-4.0", "<|end_of_text|>"},
      {"ibm-granite-granite-4.1", "<|end_of_text|>"},
      {"llama-cpp-deepseek-r1", "<｜end▁of▁sentence｜>"},
      {"llama-cpp-rwkv-world", ""},  // an empty line
      {"meetkai-functionary-medium-v3.1", "<|eot_id|>"},
      {"meetkai-functionary-medium-v3.2", "<|eot_id|>"},
      {"meta-llama-Llama-3.1-8B-Instruct", "<|eot_id|>"},
      {"meta-llama-Llama-3.2-3B-Instruct", "<|eot_id|>"},
      {"meta-llama-Llama-3.3-70B-Instruct", "<|eot_id|>"},
      {"microsoft-Phi-3.5-mini-instruct", "<|end|>"},
      {"mistralai-Ministral-3-14B-Reasoning-2512", "<EOS>"},
      {"mistralai-Mistral-Nemo-Instruct-2407", "<EOS>"},
      {"moonshotai-Kimi-K2", "<|im_end|>"},
      {"openai-gpt-oss-120b", "<|return|>"},
      {"openbmb-MiniCPM5-1B", "<|im_end|>"},
      {"poolside-Laguna-S-2.1", "</assistant>"},
      {"poolside-Laguna-XS-2.1", "</assistant>"},
      {"poolside-Laguna-XS.2", "</assistant>"},
      {"stepfun-ai-Step-3.5-Flash", "<|im_end|>"},
      {"tencent-Hy3", "<｜hy_eos:opensource｜>"},
      {"unsloth-Apriel-1.5", "<|end|>"},
      {"unsloth-mistral-Devstral-Small-2507", "<EOS>"},
      {"upstage-Solar-Open-100B", "<|end|>"},
  };
  size_t num_found = 0;
  const fs::path folder = testing::SharedPath("data/chat_templates/llama.cpp");
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const auto it = expected.find(entry.path().stem().string());
    ASSERT_NE(it, expected.end()) << entry.path();
    EXPECT_EQ(ClosingToken(testing::ReadFile(entry.path().string())), it->second) << it->first;
    ++num_found;
  }
  EXPECT_EQ(num_found, expected.size());
}

}  // namespace
}  // namespace continuo
