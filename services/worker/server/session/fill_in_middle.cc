// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/fill_in_middle.h"

#include "absl/strings/str_cat.h"

namespace continuo::server {
namespace {

// True if the tokenizer has a token of its own for `name`.
bool IsToken(const text::TextModel& text, const std::string& name) {
  const auto ids = text.Encode(name, /*add_special=*/false);
  return ids.ok() && ids->size() == 1 && text.TokenBytesKeepSpecial(ids->front()) == name;
}

}  // namespace

std::string FillInMiddle::Join(std::string_view before, std::string_view after) const {
  const std::string first(before), last(after);
  return suffix_first ? absl::StrCat(suffix, last, prefix, first, middle)
                      : absl::StrCat(prefix, first, suffix, last, middle);
}

std::optional<FillInMiddle> FindFillInMiddle(const text::TextModel& text) {
  // From the tokenizers and model cards of the named families.
  const FillInMiddle known[] = {
      // Qwen2.5-Coder, Qwen3-Coder, CodeGemma.
      {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
      // StarCoder, StarCoder 2, StableCode, Granite.
      {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
      // SantaCoder.
      {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
      // DeepSeek-Coder: begin, hole, end.
      {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
      // Seed-Coder.
      {"<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>", /*suffix_first=*/true},
      // Codestral.
      {"[PREFIX]", "[SUFFIX]", "", /*suffix_first=*/true},
  };
  for (const FillInMiddle& fill : known) {
    if (IsToken(text, fill.prefix) && IsToken(text, fill.suffix) &&
        (fill.middle.empty() || IsToken(text, fill.middle))) {
      return fill;
    }
  }
  return std::nullopt;
}

}  // namespace continuo::server
