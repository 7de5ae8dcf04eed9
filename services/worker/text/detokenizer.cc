// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/detokenizer.h"

#include <algorithm>
#include <utility>

namespace continuo::text {

Detokenizer::Detokenizer(const TextModel* model, std::vector<std::string> stop_strings,
                         bool include_stop, bool tell_special)
    : model_(model),
      stops_(std::move(stop_strings)),
      include_stop_(include_stop),
      tell_special_(tell_special) {}

Detokenizer::Piece Detokenizer::Push(int32_t token, bool stops_active) {
  const std::string_view bytes = model_->TokenBytesAfter(token, previous_token_);
  previous_token_ = token;
  if (tell_special_ && model_->IsSpecial(token)) waiting_.push_back({num_taken_, token});
  std::string characters;
  assembler_.Push(bytes, &characters);
  num_taken_ += characters.size();
  Piece piece;
  piece.matched_stop = stops_.Push(characters, stops_active, include_stop_, &piece.text);
  if (piece.matched_stop >= 0) piece.num_held = stops_.num_held_at_match();
  TakeSpecials(/*at_end=*/false, piece);
  return piece;
}

std::string Detokenizer::Flush(std::vector<Special>* specials) {
  Piece piece;
  stops_.Flush(&piece.text);
  assembler_.Flush(&piece.text);
  TakeSpecials(/*at_end=*/true, piece);
  if (specials != nullptr) {
    specials->insert(specials->end(), piece.specials.begin(), piece.specials.end());
  }
  return std::move(piece.text);
}

// A special token is told with the text before it, once that is released as a whole.
void Detokenizer::TakeSpecials(bool at_end, Piece& piece) {
  if (!tell_special_) return;
  const size_t end = num_released_ + piece.text.size();
  size_t count = 0;
  for (; count < waiting_.size() && (at_end || waiting_[count].begin <= end); ++count) {
    const Special& special = waiting_[count];
    piece.specials.push_back({std::min(special.begin, end) - num_released_, special.id});
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(count));
  num_released_ = end;
}

}  // namespace continuo::text
