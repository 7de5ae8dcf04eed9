// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace continuo::text {

StopMatcher::StopMatcher(std::vector<std::string> stop_strings) {
  std::vector<Pattern> patterns;
  for (std::string& stop : stop_strings) {
    Pattern pattern{.text = std::move(stop), .fallback = {}};
    pattern.fallback.assign(pattern.text.size() + 1, 0);
    size_t border = 0;
    for (size_t k = 1; k < pattern.text.size(); ++k) {
      while (border > 0 && pattern.text[k] != pattern.text[border]) {
        border = pattern.fallback[border];
      }
      if (pattern.text[k] == pattern.text[border]) ++border;
      pattern.fallback[k + 1] = border;
    }
    patterns.push_back(std::move(pattern));
  }
  matched_.assign(patterns.size(), 0);
  patterns_ = std::make_shared<const std::vector<Pattern>>(std::move(patterns));
}

size_t StopMatcher::Advance(const Pattern& pattern, size_t matched, char c) const {
  // A stop string that was met while not active may begin again inside itself.
  if (matched == pattern.text.size()) matched = pattern.fallback[matched];
  while (matched > 0 && pattern.text[matched] != c) matched = pattern.fallback[matched];
  return !pattern.text.empty() && pattern.text[matched] == c ? matched + 1 : 0;
}

int StopMatcher::Push(std::string_view text, bool active, bool include_stop,
                      std::string* released) {
  for (const char c : text) {
    held_.push_back(c);
    int longest = -1;
    size_t num_held = 0;  // bytes to hold back if a complete stop string is plain text
    size_t num_in_stop = 0;
    for (size_t i = 0; i < matched_.size(); ++i) {
      const Pattern& pattern = (*patterns_)[i];
      matched_[i] = Advance(pattern, matched_[i], c);
      if (pattern.text.empty()) continue;
      num_in_stop = std::max(num_in_stop, matched_[i]);
      if (matched_[i] < pattern.text.size()) {
        num_held = std::max(num_held, matched_[i]);
        continue;
      }
      num_held = std::max(num_held, pattern.fallback[matched_[i]]);
      if (longest < 0 || pattern.text.size() > (*patterns_)[longest].text.size()) longest = i;
    }
    if (active && longest >= 0) {
      const size_t num_cut = include_stop ? 0 : (*patterns_)[longest].text.size();
      held_.resize(held_.size() - num_cut);
      num_held_at_match_ = num_in_stop - num_cut;
      Flush(released);
      return longest;
    }
    released->append(held_, 0, held_.size() - num_held);
    held_.erase(0, held_.size() - num_held);
  }
  return -1;
}

void StopMatcher::Flush(std::string* released) {
  released->append(held_);
  held_.clear();
}

}  // namespace continuo::text
