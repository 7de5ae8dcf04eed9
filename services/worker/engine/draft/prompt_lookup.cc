// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/draft/prompt_lookup.h"

#include <algorithm>

namespace continuo::engine {

void PromptLookup::Propose(const Sequence& s, int most, std::vector<int32_t>& drafts) {
  drafts.clear();
  const TokenRange tokens = TokensOf(s);
  const int last = NumTokens(s) - 1;
  const int first = std::max(0, last - kWindow);
  int best = kShortest - 1, place = -1;
  for (int at = last - 1; at >= first && best < kLongest; --at) {
    if (tokens[at] != tokens[last]) continue;
    int length = 1;
    while (length < kLongest && length <= at && tokens[at - length] == tokens[last - length]) {
      ++length;
    }
    if (length <= best) continue;
    best = length;
    place = at;
  }
  if (place < 0) return;
  // A proposal that reaches the end goes on in a circle: repetition is likely to continue.
  const int period = last - place;
  for (int i = 0; i < most; ++i) {
    drafts.push_back(i < period ? tokens[place + 1 + i] : drafts[i - period]);
  }
}

}  // namespace continuo::engine
