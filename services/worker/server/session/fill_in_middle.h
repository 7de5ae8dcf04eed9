// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "services/worker/text/text_model.h"

namespace continuo::server {

// The special tokens by which a model was taught to fill the gap between two texts.
struct FillInMiddle {
  std::string prefix, suffix, middle;  // texts of the tokens; `middle` may be empty
  bool suffix_first = false;           // the prompt ends with the text before the gap

  // Returns the prompt whose answer belongs between the two texts.
  std::string Join(std::string_view before, std::string_view after) const;
};

// Returns the tokens of `text`'s vocabulary, or none where it has no known set of them.
std::optional<FillInMiddle> FindFillInMiddle(const text::TextModel& text);

}  // namespace continuo::server
