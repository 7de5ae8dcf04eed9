// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/detokenizer.h"

#include <utility>

namespace continuo::text {

Detokenizer::Detokenizer(const TextModel* model, std::vector<std::string> stop_strings,
                         bool include_stop)
    : model_(model), stops_(std::move(stop_strings)), include_stop_(include_stop) {}

Detokenizer::Piece Detokenizer::Push(int32_t token, bool stops_active) {
  const std::string_view bytes = model_->TokenBytesAfter(token, previous_token_);
  previous_token_ = token;
  std::string characters;
  assembler_.Push(bytes, &characters);
  Piece piece;
  piece.matched_stop = stops_.Push(characters, stops_active, include_stop_, &piece.text);
  if (piece.matched_stop >= 0) piece.num_held = stops_.num_held_at_match();
  return piece;
}

std::string Detokenizer::Flush() {
  std::string text;
  stops_.Flush(&text);
  assembler_.Flush(&text);
  return text;
}

}  // namespace continuo::text
