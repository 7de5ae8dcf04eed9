// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/received.h"

#include "absl/strings/str_cat.h"

namespace continuo::gateway {

void Received::Begin(const v1::GenerateResponse& received) {
  // A response begins with Accepted; one without is nobody's.
  if (!received.has_accepted()) return;
  // What is wrong with it the worker finds out, and says.
  Merge(received).IgnoreError();
  sequence_known_ = false;
}

absl::Status Received::Add(const v1::GenerateResponse& response) {
  const uint64_t expected = has_any_ ? sequence_ + 1 : 0;
  if (sequence_known_ && response.sequence() != expected) {
    return absl::InternalError(absl::StrCat("the worker sent response ", response.sequence(),
                                            " where ", expected, " follows"));
  }
  sequence_known_ = true;
  return Merge(response);
}

absl::Status Received::Merge(const v1::GenerateResponse& response) {
  has_any_ = true;
  sequence_ = response.sequence();
  if (response.has_accepted()) {
    accepted_.MergeFrom(response.accepted());
    has_accepted_ = true;
  }
  for (const v1::Delta& delta : response.deltas()) {
    const auto [slot, added] = by_index_.try_emplace(delta.index(), sequences_.size());
    if (added) {
      if (sequences_.size() >= kMaxSequences) {
        return absl::InternalError(
            absl::StrCat("the worker sent more than ", kMaxSequences, " sequences"));
      }
      sequences_.push_back({.index = delta.index()});
    }
    Sequence& sequence = sequences_[slot->second];
    if (sequence.finish_reason != v1::FINISH_REASON_UNSPECIFIED) {
      return absl::InternalError(
          absl::StrCat("the worker went on with sequence ", delta.index(), " after its end"));
    }
    sequence.token_ids.insert(sequence.token_ids.end(), delta.token_ids().begin(),
                              delta.token_ids().end());
    sequence.finish_reason = delta.finish_reason();
    num_tokens_ += delta.token_ids_size();
  }
  num_prompt_logprobs_ += response.prompt_logprobs_size();
  has_summary_ = has_summary_ || response.has_summary();
  return absl::OkStatus();
}

v1::GenerateResponse Received::ToProto() const {
  v1::GenerateResponse result;
  if (!has_any_) return result;
  result.set_sequence(sequence_);
  if (has_accepted_) *result.mutable_accepted() = accepted_;
  for (const Sequence& sequence : sequences_) {
    v1::Delta& delta = *result.add_deltas();
    delta.set_index(sequence.index);
    delta.mutable_token_ids()->Add(sequence.token_ids.begin(), sequence.token_ids.end());
    delta.set_finish_reason(sequence.finish_reason);
  }
  for (int64_t i = 0; i < num_prompt_logprobs_; ++i) result.add_prompt_logprobs();
  if (has_summary_) result.mutable_summary();
  return result;
}

}  // namespace continuo::gateway
