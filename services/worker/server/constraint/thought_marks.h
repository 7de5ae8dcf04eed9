// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/worker/text/response/response_template.h"
#include "services/worker/text/text_model.h"

namespace continuo::server {

// Knows how the answers of one model open and close their thoughts, and which tokens can do so.
// Made once a model. Immutable and thread-safe.
class ThoughtMarks {
 public:
  // Returns null if the model's format has no thoughts with a beginning and an end. `text` must
  // outlive the marks.
  static std::shared_ptr<const ThoughtMarks> Find(const text::TextModel& text);

  const text::Pattern& open() const { return field_->open; }
  const text::Pattern& close() const { return field_->close; }
  // Returns the bytes of a token as marks are written; those of a special one are its text.
  std::string_view BytesOf(int32_t id) const { return text_->TokenBytesKeepSpecial(id); }

  // In a mask an id is bit id % 32 of word id / 32. Both set only bits that `allowed` has, too:
  // AddOpening those of ids that go on with the opening mark behind `begun`, AddSpaces those of
  // white space.
  void AddOpening(std::string_view begun, std::span<const uint32_t> allowed,
                  std::span<uint32_t> mask) const;
  void AddSpaces(std::span<const uint32_t> allowed, std::span<uint32_t> mask) const;
  // Clears the bits of ids that are no tokens, and of those that close a thought, whose last bytes
  // are `held`, and go on with text: a grammar takes whole tokens.
  void ClearCrossing(std::string_view held, std::span<uint32_t> mask) const;

 private:
  using IdsByPrefix = std::map<std::string, std::vector<int32_t>, std::less<>>;

  ThoughtMarks(const text::TextModel* text, const text::ResponseField* field);
  bool Crosses(std::string_view bytes) const;
  void Add(int32_t id);

  const text::TextModel* const text_;
  const text::ResponseField* const field_;
  // Hold the opening mark as models write it, and the closing one, which is empty if several texts
  // are such.
  const std::string open_text_, close_text_;
  // Their keys are the bytes of the mark that came before.
  IdsByPrefix opening_, crossing_;
  std::vector<int32_t> spaces_;
  std::vector<uint32_t> tokens_;  // a mask
};

}  // namespace continuo::server
