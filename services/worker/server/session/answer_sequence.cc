// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/answer_sequence.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"

namespace continuo::server {
namespace {

bool Contains(const std::vector<int32_t>& ascending, int32_t id) {
  return std::binary_search(ascending.begin(), ascending.end(), id);
}

}  // namespace

bool StopRules::EndsSequence(int32_t token) const {
  return Contains(eos_ids, token) || Contains(stop_ids, token);
}

AnswerSequence::AnswerSequence(const ServedModel* model, const StopRules* rules)
    : rules_(rules), detokenizer_(model->text, rules->strings, rules->include_stop) {}

AnswerSequence::Output AnswerSequence::Push(int32_t token, bool stops_active) {
  CONTINUO_CHECK(!finished_);
  ++num_tokens_;
  stops_active = stops_active && num_tokens_ > rules_->min_tokens;
  if (stops_active && rules_->EndsSequence(token)) {
    std::string text;
    if (rules_->include_stop && Contains(rules_->stop_ids, token)) {
      text = detokenizer_.Push(token, /*stops_active=*/false).text;
    }
    Output output = End(v1::FINISH_REASON_STOP);
    output.text.insert(0, text);
    if (!Contains(rules_->eos_ids, token)) output.matched_token_id = token;
    return output;
  }
  text::Detokenizer::Piece piece = detokenizer_.Push(token, stops_active);
  Output output{.text = std::move(piece.text),
                .matched_string = piece.matched_stop,
                .num_held = piece.num_held};
  if (piece.matched_stop >= 0) {
    output.finish = v1::FINISH_REASON_STOP;
    finished_ = true;
  }
  return output;
}

AnswerSequence::Output AnswerSequence::End(v1::FinishReason why) {
  CONTINUO_CHECK(!finished_);
  finished_ = true;
  Output output{.text = detokenizer_.Flush(), .finish = why};
  output.num_held = output.text.size();
  return output;
}

v1::FinishReason ToProto(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kNone:
      return v1::FINISH_REASON_UNSPECIFIED;
    case engine::FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case engine::FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case engine::FinishReason::kTimeLimit:
      return v1::FINISH_REASON_TIME_LIMIT;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

}  // namespace continuo::server
