// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace continuo::text {

// A token of the vocabulary that is no text.
struct SpecialToken {
  std::string text;
  int32_t id = 0;
  bool ends_answer = false;
};

// A piece of a text that has special tokens in it: one of them, or what is between.
struct MarkedPiece {
  std::string text;
  const SpecialToken* token = nullptr;
};

// Divides a text as a tokenizer does: at each place the longest special token counts. `tokens`
// outlive the result.
std::vector<MarkedPiece> DivideAtTokens(std::string_view text,
                                        std::span<const SpecialToken> tokens);

// The pieces as a part of a body of Lark; "" for none.
std::string LarkOf(std::span<const MarkedPiece> pieces);

}  // namespace continuo::text
