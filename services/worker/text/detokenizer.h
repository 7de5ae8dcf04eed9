// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "services/base/utf8.h"
#include "services/worker/text/stop_matcher.h"
#include "services/worker/text/text_model.h"

namespace continuo::text {

// Turns one sequence's tokens back into text, one token at a time. It holds back bytes that are not
// yet a whole character and text that may yet become a stop string. The text released after k
// tokens is a function of those k tokens alone (exactness: text-per-token). Not thread-safe;
// copyable.
class Detokenizer {
 public:
  // `model` outlives the Detokenizer. Stop strings are UTF-8 and not empty. With `include_stop` a
  // matched stop string is part of the text.
  // With `tell_special` it also tells which special tokens are in the text, and where.
  Detokenizer(const TextModel* model, std::vector<std::string> stop_strings, bool include_stop,
              bool tell_special = false);

  // A special token: it has no text, and stands before byte `begin` of a Piece's.
  struct Special {
    size_t begin = 0;
    int32_t id = 0;
  };

  struct Piece {
    std::string text;       // whole characters that this token released
    int matched_stop = -1;  // index of the stop string that this token completed, or -1
    // After a match: bytes at the end of `text` that would be held back without it.
    size_t num_held = 0;
    std::vector<Special> specials;  // ascending
  };
  // An id that names no token has no text. After a match nothing more may be pushed. With
  // `stops_active` false (before min_tokens) a stop string that this token completes is plain text.
  // Stop strings are compared by character: the first complete one ends the text, the longest of
  // several that end at the same character.
  Piece Push(int32_t token, bool stops_active);

  // Returns the text held back at the end; half a character becomes U+FFFD. Nothing may follow.
  // The special tokens in it are appended to `specials`, unless that is null.
  std::string Flush(std::vector<Special>* specials = nullptr);

 private:
  void TakeSpecials(bool at_end, Piece& piece);

  const TextModel* model_;
  Utf8Assembler assembler_;
  StopMatcher stops_;
  bool include_stop_;
  bool tell_special_;
  int32_t previous_token_ = -1;
  // Bytes of text that StopMatcher took and released; specials wait at what it took.
  size_t num_taken_ = 0, num_released_ = 0;
  std::vector<Special> waiting_;
};

}  // namespace continuo::text
