// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "continuo/v1/inference.pb.h"

namespace continuo::gateway::openai {

using OrderedJson = nlohmann::ordered_json;

// A chat's entry of logprobs.content: token, logprob, bytes, top_logprobs. A part of a character
// is U+FFFD in `token` and exact in `bytes`.
OrderedJson ChatLogprob(const v1::TokenLogprob& logprob);

// A completion's logprobs, in four arrays that go on from delta to delta.
class CompletionLogprobs {
 public:
  // Adds to `arrays` (null: makes it): tokens, token_logprobs, top_logprobs, text_offset. The
  // offset counts characters from the beginning of the answer. A part of a character is written as
  // "bytes:\xe2\x82".
  void Add(const v1::TokenLogprob& logprob, OrderedJson* arrays);

 private:
  int64_t offset_ = 0;
};

}  // namespace continuo::gateway::openai
