// SPDX-License-Identifier: Apache-2.0
// The files of sentence-transformers of any bytes, divided at NULs (modules.json, a pooling's and a
// dense module's config.json, sentence_bert_config.json, config_sentence_transformers.json, a
// LogitScore's config.json), give modules within the limits or an error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "services/base/check.h"
#include "services/base/utf8.h"
#include "services/worker/embedding/embedding_head.h"
#include "services/worker/embedding/sentence_modules.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto next = [&rest] {
    const std::string_view file = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(file.size() < rest.size() ? file.size() + 1 : rest.size());
    return file;
  };
  const auto listed = continuo::embedding::ParseModules(next());
  if (listed.ok()) {
    for (const auto& module : *listed) {
      CONTINUO_CHECK(module.path.find('/') == std::string::npos && module.path != "..");
    }
  }
  continuo::embedding::SentenceModules modules;
  const bool pools = continuo::embedding::ParsePooling("pooling", next(), &modules).ok();
  if (pools) CONTINUO_CHECK(modules.dimension > 0);
  const auto dense = continuo::embedding::ParseDense("dense", next());
  if (dense.ok()) CONTINUO_CHECK(dense->in_features > 0 && dense->out_features > 0);
  const std::string_view transformer = next();
  if (continuo::embedding::ParseTransformer(transformer, &modules).ok()) {
    CONTINUO_CHECK(modules.max_tokens >= 0);
  }
  const std::string_view prompts = next();
  continuo::embedding::SentenceModules scores;
  if (const auto tokens = continuo::embedding::ParseLogitScore("score", next()); tokens.ok()) {
    CONTINUO_CHECK(tokens->relevant >= 0 && tokens->irrelevant.value_or(0) >= 0);
    scores.score = *tokens;
    (void)continuo::embedding::ParseTransformer(transformer, &scores);
  }
  if (!continuo::embedding::ParsePrompts(prompts, &modules).ok()) return 0;
  const auto head = continuo::embedding::EmbeddingHead::Load(
      "/nowhere", modules, modules.dimension == 0 ? 8 : modules.dimension);
  CONTINUO_CHECK(head.ok());
  CONTINUO_CHECK(modules.default_prompt.empty() ||
                 (*head)->FindPrompt(modules.default_prompt) != nullptr);
  for (const auto& prompt : (*head)->prompts()) CONTINUO_CHECK(continuo::IsUtf8(prompt.text));
  return 0;
}
