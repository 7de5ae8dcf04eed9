// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "continuo/v1/inference.pb.h"

namespace continuo::protocol {

// Everything that one stream has received, merged and without text: what a worker needs to go on
// exactly after it (exactness: relay-edits-nothing). Takes four bytes a token. Gateways and clients
// use it. Not thread-safe.
class ReceivedResponses {
 public:
  // Starts from the continuation that the client itself brought along.
  void Begin(const v1::GenerateResponse& received);

  // Merges the next response of a worker. Returns an error, and keeps nothing of the response,
  // where it cannot follow the ones before: a gap in `sequence`, more than kMaxReceivedSequences
  // indices, or tokens after a sequence's end.
  absl::Status Add(const v1::GenerateResponse& response);

  // Merges a response without checking it.
  void Merge(const v1::GenerateResponse& response);

  // The value for Continuation.received; empty if nothing().
  v1::GenerateResponse ToProto() const;
  bool nothing() const { return !has_any_; }

  bool has_summary() const { return has_summary_; }
  // The latest one. An empty fingerprint does not replace an earlier one.
  const v1::Accepted& accepted() const { return accepted_; }
  // Number of ids in all sequences, including those that the client brought along.
  int64_t num_tokens() const { return num_tokens_; }

 private:
  struct Sequence {
    uint32_t index = 0;
    std::vector<uint32_t> token_ids;
    v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;
  };
  absl::Status Check(const v1::GenerateResponse& response) const;

  bool has_any_ = false;
  uint64_t sequence_ = 0;
  // False after Begin: the first response after the client's own continuation may have any number,
  // the worker checks it.
  bool sequence_known_ = true;
  v1::Accepted accepted_;
  bool has_accepted_ = false;
  std::vector<Sequence> sequences_;  // in the order of their first delta
  absl::flat_hash_map<uint32_t, size_t> by_index_;
  int64_t num_tokens_ = 0;
  int64_t num_prompt_logprobs_ = 0;
  int64_t num_prompt_tokens_ = 0;
  bool has_summary_ = false;
};

}  // namespace continuo::protocol
