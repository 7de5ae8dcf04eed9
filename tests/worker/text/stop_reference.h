// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace continuo::testing {

// Applies stop strings to a text in the slow and obvious way: it searches the whole text after
// every byte of whole characters.
class StopReference {
 public:
  StopReference(std::vector<std::string> stops, bool include_stop)
      : stops_(std::move(stops)), include_stop_(include_stop) {}

  // Returns the matched stop string's index or -1.
  int Push(std::string_view piece, bool active) {
    for (const char c : piece) {
      text_.push_back(c);
      int longest = -1;
      for (size_t i = 0; i < stops_.size(); ++i) {
        if (text_.ends_with(stops_[i]) &&
            (longest < 0 || stops_[i].size() > stops_[longest].size())) {
          longest = static_cast<int>(i);
        }
      }
      if (active && longest >= 0) {
        if (!include_stop_) text_.resize(text_.size() - stops_[longest].size());
        num_held_ = 0;
        return longest;
      }
    }
    num_held_ = 0;
    for (const std::string& stop : stops_) {
      for (size_t n = 1; n < stop.size() && n <= text_.size(); ++n) {
        if (text_.ends_with(std::string_view(stop).substr(0, n))) {
          num_held_ = std::max(num_held_, n);
        }
      }
    }
    return -1;
  }

  // The text released so far, and all text.
  std::string released() const { return text_.substr(0, text_.size() - num_held_); }
  const std::string& text() const { return text_; }

 private:
  std::vector<std::string> stops_;
  bool include_stop_;
  std::string text_;
  size_t num_held_ = 0;
};

}  // namespace continuo::testing
