// SPDX-License-Identifier: Apache-2.0
#include "services/protocol/continuation.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "services/protocol/limits.h"

namespace continuo::protocol {

void ReceivedResponses::Begin(const v1::GenerateResponse& received) {
  // A stream begins with Accepted, so a continuation without one belongs to no stream.
  if (!received.has_accepted()) return;
  // The worker checks the rest and rejects what is wrong.
  Merge(received);
  sequence_known_ = false;
}

absl::Status ReceivedResponses::Add(const v1::GenerateResponse& response) {
  const uint64_t expected = has_any_ ? sequence_ + 1 : 0;
  if (sequence_known_ && response.sequence() != expected) {
    return absl::InternalError(absl::StrCat("the worker sent response ", response.sequence(),
                                            " where ", expected, " follows"));
  }
  // A rejected response is not delivered, so nothing of it may become part of a continuation.
  if (absl::Status status = Check(response); !status.ok()) return status;
  sequence_known_ = true;
  Merge(response);
  return absl::OkStatus();
}

absl::Status ReceivedResponses::Check(const v1::GenerateResponse& response) const {
  absl::flat_hash_set<uint32_t> added, ended;
  for (const v1::Delta& delta : response.deltas()) {
    const auto known = by_index_.find(delta.index());
    if (known == by_index_.end() && added.insert(delta.index()).second &&
        sequences_.size() + added.size() > kMaxReceivedSequences) {
      return absl::InternalError(
          absl::StrCat("the worker sent more than ", kMaxReceivedSequences, " sequences"));
    }
    if (ended.contains(delta.index()) ||
        (known != by_index_.end() &&
         sequences_[known->second].finish_reason != v1::FINISH_REASON_UNSPECIFIED)) {
      return absl::InternalError(
          absl::StrCat("the worker went on with sequence ", delta.index(), " after its end"));
    }
    if (delta.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) ended.insert(delta.index());
  }
  return absl::OkStatus();
}

void ReceivedResponses::Merge(const v1::GenerateResponse& response) {
  has_any_ = true;
  sequence_ = response.sequence();
  if (response.has_accepted()) {
    accepted_.MergeFrom(response.accepted());
    has_accepted_ = true;
  }
  for (const v1::Delta& delta : response.deltas()) {
    const auto [slot, added] = by_index_.try_emplace(delta.index(), sequences_.size());
    if (added) sequences_.push_back({.index = delta.index()});
    Sequence& sequence = sequences_[slot->second];
    sequence.token_ids.insert(sequence.token_ids.end(), delta.token_ids().begin(),
                              delta.token_ids().end());
    if (delta.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
      sequence.finish_reason = delta.finish_reason();
    }
    num_tokens_ += delta.token_ids_size();
  }
  num_prompt_logprobs_ += response.prompt_logprobs_size();
  num_prompt_tokens_ += response.prompt_tokens_size();
  has_summary_ = has_summary_ || response.has_summary();
}

v1::GenerateResponse ReceivedResponses::ToProto() const {
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
  for (int64_t i = 0; i < num_prompt_tokens_; ++i) result.add_prompt_tokens();
  if (has_summary_) result.mutable_summary();
  return result;
}

}  // namespace continuo::protocol
