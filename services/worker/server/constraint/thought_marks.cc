// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/constraint/thought_marks.h"

#include <algorithm>

#include "services/worker/text/response/spaces.h"

namespace continuo::server {
namespace {

using State = text::Pattern::Match::State;

// Returns the one text that the pattern matches, or "" if there are several.
std::string OnlyMatch(const text::Pattern& pattern) {
  std::string only;
  while (only.size() < text::Pattern::kMaxLength) {
    int next = -1;
    for (int c = 0; c < 256; ++c) {
      const std::string longer = only + static_cast<char>(c);
      if (pattern.MatchAt(longer, /*at_start=*/true, /*at_end=*/false).state == State::kNone) {
        continue;
      }
      if (next >= 0) return "";
      next = c;
    }
    if (next < 0) return "";
    only += static_cast<char>(next);
    if (pattern.MatchAt(only, true, false).state == State::kMatch) return only;
  }
  return "";
}

// Returns the text that models open a thought with; of several, the plainest one.
std::string OpeningOf(const text::Pattern& pattern) {
  std::string only = OnlyMatch(pattern);
  return only.empty() ? pattern.example().value_or("") : only;
}

bool IsSpace(std::string_view text) { return text::StripLeft(text).empty(); }

bool Has(std::span<const uint32_t> mask, int32_t id) {
  const auto word = static_cast<size_t>(id) / 32;
  return word < mask.size() && (mask[word] >> (id % 32) & 1) != 0;
}

void SetAllowed(const std::vector<int32_t>& ids, std::span<const uint32_t> allowed,
                std::span<uint32_t> mask) {
  for (const int32_t id : ids) {
    if (Has(allowed, id)) mask[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
  }
}

void Clear(const std::vector<int32_t>& ids, std::span<uint32_t> mask) {
  for (const int32_t id : ids) {
    if (Has(mask, id)) mask[static_cast<size_t>(id) / 32] &= ~(uint32_t{1} << (id % 32));
  }
}

}  // namespace

std::shared_ptr<const ThoughtMarks> ThoughtMarks::Find(const text::TextModel& text) {
  for (const text::ResponseField& field : text.response_format().response_template.fields) {
    if (field.channel != text::ResponseField::Channel::kReasoning) continue;
    if (!field.has_open || !field.has_close) continue;
    return std::shared_ptr<const ThoughtMarks>(new ThoughtMarks(&text, &field));
  }
  return nullptr;
}

ThoughtMarks::ThoughtMarks(const text::TextModel* text, const text::ResponseField* field)
    : text_(text),
      field_(field),
      open_text_(OpeningOf(field->open)),
      close_text_(OnlyMatch(field->close)) {
  tokens_.resize(static_cast<size_t>(text->vocab_size() + 31) / 32);
  for (int32_t id = 0; id < text->vocab_size(); ++id) Add(id);
  // Where one token is the whole mark, models do not spell it.
  std::vector<int32_t>& first = opening_[""];
  const auto is_whole = [&](int32_t id) { return BytesOf(id).starts_with(open_text_); };
  if (std::ranges::any_of(first, is_whole)) {
    std::erase_if(first, [&](int32_t id) { return !is_whole(id); });
  }
}

void ThoughtMarks::Add(int32_t id) {
  const std::string_view bytes = BytesOf(id);
  if (bytes.empty()) return;
  tokens_[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
  if (IsSpace(bytes)) spaces_.push_back(id);
  for (size_t k = 0; k < open_text_.size(); ++k) {
    const std::string_view rest = std::string_view(open_text_).substr(k);
    if (bytes.starts_with(rest) || rest.starts_with(bytes)) {
      opening_[open_text_.substr(0, k)].push_back(id);
    }
  }
  if (Crosses(bytes)) crossing_[""].push_back(id);
  for (size_t k = 1; k < close_text_.size(); ++k) {
    const std::string_view rest = std::string_view(close_text_).substr(k);
    if (bytes.starts_with(rest) && !IsSpace(bytes.substr(rest.size()))) {
      crossing_[close_text_.substr(0, k)].push_back(id);
    }
  }
}

// Returns whether the bytes have a whole closing mark and text behind it.
bool ThoughtMarks::Crosses(std::string_view bytes) const {
  for (size_t at = 0; at < bytes.size(); ++at) {
    if (!close().MayBeginWith(bytes[at])) continue;
    const text::Pattern::Match match = close().MatchAt(bytes.substr(at), false, false);
    if (match.state == State::kMatch) return !IsSpace(bytes.substr(at + match.length));
  }
  return false;
}

void ThoughtMarks::AddOpening(std::string_view begun, std::span<const uint32_t> allowed,
                              std::span<uint32_t> mask) const {
  const auto at = opening_.find(begun);
  if (at != opening_.end()) SetAllowed(at->second, allowed, mask);
}

void ThoughtMarks::AddSpaces(std::span<const uint32_t> allowed, std::span<uint32_t> mask) const {
  SetAllowed(spaces_, allowed, mask);
}

void ThoughtMarks::ClearCrossing(std::string_view held, std::span<uint32_t> mask) const {
  for (size_t i = 0; i < mask.size(); ++i) mask[i] &= i < tokens_.size() ? tokens_[i] : 0;
  for (const std::string_view prefix : {std::string_view(), held}) {
    const auto at = crossing_.find(prefix);
    if (at != crossing_.end()) Clear(at->second, mask);
  }
}

}  // namespace continuo::server
