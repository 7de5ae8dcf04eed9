// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace continuo::text {

// Watches a growing text for stop strings, and holds back exactly its longest end that could still
// become one. The first complete one ends the text, the longest of several that end at the same
// character. It compares bytes, which is the same as comparing characters, since text and stop
// strings consist of whole ones. Not thread-safe; copies share the tables.
class StopMatcher {
 public:
  // Stop strings are UTF-8. Empty ones never match.
  explicit StopMatcher(std::vector<std::string> stop_strings);

  // Takes whole characters and appends to `released` the text that can be no part of a stop string.
  // Returns the index of the stop string that ended the text, or -1. After a match the text before
  // the stop string is released, with `include_stop` the stop string too, and nothing may be pushed
  // any more. While `active` is false a complete stop string is plain text.
  int Push(std::string_view text, bool active, bool include_stop, std::string* released);

  // After a match: number of bytes at the end of the released text that would have been held back
  // without the match, as a stop string or the beginning of one.
  size_t num_held_at_match() const { return num_held_at_match_; }

  // Releases the text that is held back, when nothing follows.
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
