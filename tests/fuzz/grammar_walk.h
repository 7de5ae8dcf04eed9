// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/check.h"
#include "services/base/random.h"
#include "services/base/utf8.h"
#include "services/worker/text/grammar/grammar.h"
#include "tests/testing/text_files.h"

namespace continuo::testing {

// A vocabulary of all printable ASCII characters, some others and some words.
inline const text::TextModel& FuzzVocabulary() {
  static const text::TextModel* const model = [] {
    std::string vocab;
    int num_tokens = 0;
    const auto add = [&](std::string_view token) {
      vocab += (num_tokens == 0 ? "\"" : ", \"");
      for (const char c : token) {
        if (c == '"' || c == '\\') vocab += '\\';
        vocab += c;
      }
      vocab += "\": " + std::to_string(num_tokens++);
    };
    for (char c = ' '; c < 0x7f; ++c) add({&c, 1});
    for (const char* word : {"\\n", "é", "😀", "\u0660", "true", "null", "\": ", "\", \"", "{\"",
                             "]}", "00", "ab", "  "}) {
      if (std::string_view(word) == "\\n") {
        vocab += ", \"\\n\": " + std::to_string(num_tokens++);
      } else {
        add(word);
      }
    }
    const std::string end = std::to_string(num_tokens);
    const std::string json =
        R"({"version": "1.0", "added_tokens": [{"id": )" + end +
        R"(, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true}], "decoder": {"type": "Fuse"},
            "model": {"type": "WordLevel", "vocab": {)" +
        vocab + R"(, "<end>": )" + end + R"(}, "unk_token": "<end>"}})";
    auto opened = OpenText({.tokenizer_json = json});
    CONTINUO_CHECK(opened.ok());
    return opened->release();
  }();
  return *model;
}

// An answer of random tokens; empty unless it finished. Masks hold what Accept takes, and are the
// same after a rollback.
inline std::string WalkGrammar(const text::Grammar& grammar, uint64_t seed) {
  constexpr int kMaxTokens = 24;
  const text::TextModel& model = FuzzVocabulary();
  SplitMix64 random(seed);
  const auto matcher = grammar.NewMatcher();
  CONTINUO_CHECK(matcher.ok());
  const auto mask_of = [&] {
    std::vector<uint32_t> mask((model.vocab_size() + 31) / 32, ~uint32_t{0});
    (*matcher)->FillMask(mask);
    return mask;
  };
  const auto has = [](const std::vector<uint32_t>& mask, int32_t id) {
    return (mask[id / 32] >> (id % 32) & 1) != 0;
  };
  std::string text;
  for (int i = 0; i < kMaxTokens; ++i) {
    if ((*matcher)->MustEnd()) CONTINUO_CHECK((*matcher)->CanEnd());
    const bool ends = (*matcher)->MustEnd() ||
                      ((*matcher)->CanEnd() && (i > kMaxTokens / 2 || random.Next() % 4 == 0));
    if (ends) {
      CONTINUO_CHECK(IsUtf8(text));
      return text;
    }
    const std::vector<uint32_t> mask = mask_of();
    if (!(*matcher)->status().ok()) return "";
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < model.vocab_size(); ++id) {
      if (has(mask, id)) allowed.push_back(id);
    }
    CONTINUO_CHECK(!allowed.empty());
    const auto other = static_cast<int32_t>(random.Next() % model.vocab_size());
    if (!has(mask, other)) CONTINUO_CHECK(!(*matcher)->Accept(other) && (*matcher)->status().ok());
    const int32_t id = allowed[random.Next() % allowed.size()];
    const bool accepts = (*matcher)->Accept(id);
    if (!(*matcher)->status().ok()) return "";
    CONTINUO_CHECK(accepts);
    if (random.Next() % 4 == 0) {
      (*matcher)->Rollback(1);
      const std::vector<uint32_t> again = mask_of();
      if (!(*matcher)->status().ok()) return "";
      CONTINUO_CHECK(again == mask);
      CONTINUO_CHECK((*matcher)->Accept(id) || !(*matcher)->status().ok());
      if (!(*matcher)->status().ok()) return "";
    }
    text += model.TokenBytes(id);
  }
  return "";
}

// Compiles a grammar of hostile text and walks through it twice, with the same result.
inline std::string FuzzGrammar(text::GrammarSource::Kind kind, std::string_view source) {
  const auto grammar =
      text::Grammar::Compile(FuzzVocabulary(), {.kind = kind, .text = std::string(source)});
  if (!grammar.ok()) {
    CONTINUO_CHECK(grammar.status().code() == absl::StatusCode::kInvalidArgument);
    const std::string message(grammar.status().message());
    CONTINUO_CHECK(IsUtf8(message) && message.size() < 1000);
    return "";
  }
  uint64_t seed = source.size();
  for (const char c : source) seed = seed * 31 + static_cast<unsigned char>(c);
  const std::string answer = WalkGrammar(**grammar, seed);
  CONTINUO_CHECK(WalkGrammar(**grammar, seed) == answer);
  return answer;
}

}  // namespace continuo::testing
