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

// Turns one sequence's tokens back into text, one token at a time: holds back bytes that are not
// yet a whole character and text that may yet become a stop string. What has come out after k
// tokens is a function of those k tokens alone (exactness: text-per-token). Not thread-safe;
// copyable.
class Detokenizer {
 public:
  // `model` outlives the Detokenizer. Stop strings are UTF-8 and not empty. With `include_stop` the
  // text of a stop string that was met is part of the text.
  Detokenizer(const TextModel* model, std::vector<std::string> stop_strings, bool include_stop);

  struct Piece {
    std::string text;       // whole characters only; what this token released
    int matched_stop = -1;  // index of the stop string that this token completed; else -1
    // Of a match: so many bytes at the end of `text` would be held back without it.
    size_t num_held = 0;
  };
  // An id that names no token has no text. After a match nothing more may be pushed. `stops_active`
  // false (before min_tokens): a stop string that this token completes is plain text. Stop strings
  // are judged by character: the first to be complete ends the text, of several that end at the
  // same character the longest.
  Piece Push(int32_t token, bool stops_active);

  // The held-back rest at a limit: half a character becomes U+FFFD. Nothing may follow.
  std::string Flush();

 private:
  const TextModel* model_;
  Utf8Assembler assembler_;
  StopMatcher stops_;
  bool include_stop_;
  int32_t previous_token_ = -1;
};

}  // namespace continuo::text
