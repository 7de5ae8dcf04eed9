// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/check.h"
#include "services/worker/text/grammar/grammar.h"
#include "services/worker/text/text_model.h"

namespace continuo::testing {

using Source = text::GrammarSource;

inline Source SchemaSource(std::string schema) {
  return {.kind = Source::Kind::kJsonSchema, .text = std::move(schema)};
}
inline Source RegexSource(std::string regex) {
  return {.kind = Source::Kind::kRegex, .text = std::move(regex)};
}
inline Source LarkSource(std::string lark) {
  return {.kind = Source::Kind::kLark, .text = std::move(lark)};
}
inline Source ChoiceSource(std::vector<std::string> options) {
  return {.kind = Source::Kind::kChoice, .options = std::move(options)};
}

inline std::unique_ptr<text::GrammarMatcher> NewMatcher(const text::TextModel& model,
                                                        const Source& source) {
  const auto grammar = text::Grammar::Compile(model, source);
  EXPECT_TRUE(grammar.ok()) << grammar.status() << "\n" << source.text;
  CONTINUO_CHECK(grammar.ok());
  auto matcher = (*grammar)->NewMatcher();
  EXPECT_TRUE(matcher.ok()) << matcher.status();
  CONTINUO_CHECK(matcher.ok());
  return *std::move(matcher);
}

// A mask with a few more ids than the model has.
inline std::vector<uint32_t> MaskOf(const text::TextModel& model, text::GrammarMatcher& matcher) {
  std::vector<uint32_t> mask((model.vocab_size() + 127) / 32, ~uint32_t{0});
  matcher.FillMask(mask);
  return mask;
}

inline bool HasBit(const std::vector<uint32_t>& mask, int32_t id) {
  return (mask[id / 32] >> (id % 32) & 1) != 0;
}

inline std::vector<int32_t> IdsOf(const std::vector<uint32_t>& mask) {
  std::vector<int32_t> ids;
  for (size_t id = 0; id < mask.size() * 32; ++id) {
    if (HasBit(mask, static_cast<int32_t>(id))) ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

// Goes on with the longest tokens that `text` begins with.
inline bool AcceptText(const text::TextModel& model, text::GrammarMatcher& matcher,
                       std::string_view text) {
  while (!text.empty()) {
    int32_t longest = -1;
    for (int32_t id = 0; id < model.vocab_size(); ++id) {
      const std::string_view bytes = model.TokenBytes(id);
      if (bytes.empty() || !text.starts_with(bytes)) continue;
      if (longest < 0 || bytes.size() > model.TokenBytes(longest).size()) longest = id;
    }
    CONTINUO_CHECK(longest >= 0);
    if (!matcher.Accept(longest)) return false;
    text.remove_prefix(model.TokenBytes(longest).size());
  }
  return true;
}

// Returns whether `text`, and nothing behind it, is an answer of the grammar.
inline bool IsAnswer(const text::TextModel& model, const Source& source, std::string_view text) {
  const auto matcher = NewMatcher(model, source);
  return AcceptText(model, *matcher, text) && matcher->CanEnd() && matcher->status().ok();
}

struct RandomAnswer {
  std::string text;
  std::vector<int32_t> ids;
  bool is_finished = false;
  absl::Status status;
};

// Returns an answer of a model with random logits under a grammar. Tokens that close something are
// likelier than others, so most answers finish.
inline RandomAnswer AnswerRandomly(const text::TextModel& model, text::GrammarMatcher& matcher,
                                   std::mt19937_64& random, int max_tokens) {
  RandomAnswer answer;
  const auto one_of = [&](int n) { return random() % n == 0; };
  while (static_cast<int>(answer.ids.size()) < max_tokens) {
    answer.is_finished = matcher.MustEnd() || (matcher.CanEnd() && one_of(4));
    if (answer.is_finished) break;
    const std::vector<int32_t> allowed = IdsOf(MaskOf(model, matcher));
    if (!matcher.status().ok()) break;
    EXPECT_FALSE(allowed.empty()) << answer.text;
    if (allowed.empty()) break;
    std::vector<int32_t> closing;
    for (const int32_t id : allowed) {
      const std::string_view bytes = model.TokenBytes(id);
      if (!bytes.empty() && std::string_view("\"}],").find(bytes[0]) != std::string_view::npos) {
        closing.push_back(id);
      }
    }
    const auto& from = closing.empty() || one_of(3) ? allowed : closing;
    const int32_t id = from[random() % from.size()];
    const bool accepts = matcher.Accept(id);
    if (!matcher.status().ok()) break;
    EXPECT_TRUE(accepts) << answer.text << " then id " << id;
    answer.ids.push_back(id);
    answer.text += model.TokenBytes(id);
  }
  answer.status = matcher.status();
  return answer;
}

}  // namespace continuo::testing
