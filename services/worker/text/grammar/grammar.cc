// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/grammar/grammar.h"

#include <nlohmann/json.hpp>

#include "services/base/check.h"
#include "services/base/utf8.h"

namespace continuo::text {
namespace {

absl::Status LastGrammarError() {
  const ContinuoSlice message = continuo_text_error();
  return absl::Status(static_cast<absl::StatusCode>(continuo_text_error_code()),
                      std::string(message.data, message.size));
}

int NumberOf(const GrammarSource& source) {
  switch (source.kind) {
    case GrammarSource::Kind::kJsonSchema:
      return CONTINUO_GRAMMAR_JSON_SCHEMA;
    case GrammarSource::Kind::kJsonObject:
      return CONTINUO_GRAMMAR_JSON_OBJECT;
    case GrammarSource::Kind::kRegex:
      return CONTINUO_GRAMMAR_REGEX;
    case GrammarSource::Kind::kChoice:
      return CONTINUO_GRAMMAR_CHOICE;
    case GrammarSource::Kind::kLark:
      return source.is_own_lark ? CONTINUO_GRAMMAR_OWN_LARK : CONTINUO_GRAMMAR_LARK;
  }
  CONTINUO_CHECK(false);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::Compile(const TextModel& model,
                                                                const GrammarSource& source) {
  std::string text = source.text;
  if (source.kind == GrammarSource::Kind::kChoice) {
    for (const std::string& option : source.options) {
      if (!IsUtf8(option)) return absl::InvalidArgumentError("an option is not UTF-8");
    }
    text = nlohmann::json(source.options).dump();
  }
  ContinuoGrammar* const grammar = continuo_grammar_compile(
      model.handle(), NumberOf(source), {.data = text.data(), .size = text.size()},
      {.data = source.around.data(), .size = source.around.size()});
  if (grammar == nullptr) return LastGrammarError();
  return std::shared_ptr<const Grammar>(new Grammar(grammar));
}

Grammar::~Grammar() { continuo_grammar_free(grammar_); }

absl::StatusOr<std::unique_ptr<GrammarMatcher>> Grammar::NewMatcher() const {
  ContinuoMatcher* const matcher = continuo_matcher_new(grammar_);
  if (matcher == nullptr) return LastGrammarError();
  return std::unique_ptr<GrammarMatcher>(new GrammarMatcher(matcher));
}

GrammarMatcher::~GrammarMatcher() { continuo_matcher_free(matcher_); }

absl::StatusOr<std::unique_ptr<GrammarMatcher>> GrammarMatcher::Clone() const {
  ContinuoMatcher* const matcher = continuo_matcher_clone(matcher_);
  if (matcher == nullptr) return LastGrammarError();
  return std::unique_ptr<GrammarMatcher>(new GrammarMatcher(matcher));
}

void GrammarMatcher::FillMask(std::span<uint32_t> mask) {
  continuo_matcher_fill_mask(matcher_, mask.data(), mask.size());
}

bool GrammarMatcher::Accept(int32_t id) { return continuo_matcher_accept(matcher_, id) != 0; }

void GrammarMatcher::Rollback(int count) {
  CONTINUO_CHECK(count >= 0);
  continuo_matcher_rollback(matcher_, static_cast<size_t>(count));
}

bool GrammarMatcher::CanEnd() { return continuo_matcher_can_end(matcher_) != 0; }

bool GrammarMatcher::MustEnd() { return continuo_matcher_must_end(matcher_) != 0; }

absl::Status GrammarMatcher::status() const {
  if (continuo_matcher_status(matcher_) == CONTINUO_TEXT_OK) return absl::OkStatus();
  return LastGrammarError();
}

}  // namespace continuo::text
