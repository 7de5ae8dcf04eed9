// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace continuo::text {

// Watches a growing text for stop strings, and holds back exactly its longest end that could still
// become one. The first to be complete ends the text; of several that end at the same character
// the longest does. Bytes are compared: whole characters in text and stop strings make that the
// same as comparing characters. Not thread-safe; copies share the tables.
class StopMatcher {
 public:
  // Stop strings are UTF-8. Empty ones never match.
  explicit StopMatcher(std::vector<std::string> stop_strings);

  // Takes whole characters and appends to `released` what can be no part of a stop string.
  // Returns the index of the stop string that ended the text, else -1; then what the text had
  // before it is released, with `include_stop` the stop string too, and nothing may be pushed any
  // more. While not `active` a complete stop string is plain text.
  int Push(std::string_view text, bool active, bool include_stop, std::string* released);

  // After a match: so many bytes at the end of what it released were, or would be, held back as
  // what is or may become a stop string. The rest is out without the end.
  size_t num_held_at_match() const { return num_held_at_match_; }

  // Releases what is held back: no stop string comes any more.
  void Flush(std::string* released);

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> fallback;  // Knuth-Morris-Pratt: [k] = longest border of the first k bytes
  };
  size_t Advance(const Pattern& pattern, size_t matched, char c) const;

  std::shared_ptr<const std::vector<Pattern>> patterns_;
  std::vector<size_t> matched_;  // per pattern: bytes of it that the text ends with
  std::string held_;             // the end of the text that is not released yet
  size_t num_held_at_match_ = 0;
};

}  // namespace continuo::text
