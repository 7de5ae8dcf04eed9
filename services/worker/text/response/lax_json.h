// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace continuo::text {

// Turns JSON with keys that lack quotes, or with strings between delimiters of the model's own,
// into JSON, a byte at a time. What is neither passes as it is. Copyable.
class LaxJson {
 public:
  using Delimiters = std::vector<std::pair<std::string, std::string>>;

  // `delimiters`, an open and a close each, outlive it.
  LaxJson(bool unquoted_keys, const Delimiters* delimiters)
      : unquoted_keys_(unquoted_keys), delimiters_(delimiters) {}

  // False: the text is JSON already.
  bool active() const { return unquoted_keys_ || !delimiters_->empty(); }

  // Appends what the byte decides.
  void Push(char c, std::string* json);
  // A special token is a delimiter as a whole, or nothing.
  void PushSpecial(std::string_view token, std::string* json);

 private:
  void Plain(char c, std::string* json);
  void Open(const std::string* close, std::string* json);
  void EndWord(char next, std::string* json);

  bool unquoted_keys_;
  const Delimiters* delimiters_;
  const std::string* close_ = nullptr;  // in a string of the model's own: what ends it
  bool in_string_ = false, escaped_ = false;
  bool key_may_follow_ = false;
  bool in_word_ = false;
  std::string word_;     // perhaps a key
  std::string pending_;  // the beginning of a delimiter
};

}  // namespace continuo::text
