// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "continuo/v1/inference.pb.h"

namespace continuo::gateway {

// Everything one stream has received, merged, without text: what another worker needs to go on
// exactly after it (exactness: relay-edits-nothing). Four bytes a token. Not thread-safe.
class Received {
 public:
  // What the client brought along in its own continuation.
  void Begin(const v1::GenerateResponse& received);

  // The next response of a worker. An error where it cannot follow what is here: a gap in
  // `sequence`, more than kMaxSequences indices, or tokens after a sequence's end.
  absl::Status Add(const v1::GenerateResponse& response);

  // As Continuation.received; nothing() where there is none.
  v1::GenerateResponse ToProto() const;
  bool nothing() const { return !has_any_; }

  bool has_summary() const { return has_summary_; }
  // The latest one. An empty fingerprint does not replace an earlier one.
  const v1::Accepted& accepted() const { return accepted_; }
  // All ids of all sequences, those that the client brought included.
  int64_t num_tokens() const { return num_tokens_; }

  static constexpr int kMaxSequences = 1024;

 private:
  struct Sequence {
    uint32_t index = 0;
    std::vector<uint32_t> token_ids;
    v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;
  };
  absl::Status Check(const v1::GenerateResponse& response) const;
  void Merge(const v1::GenerateResponse& response);

  bool has_any_ = false;
  uint64_t sequence_ = 0;
  // The first response after the client's own continuation may begin anywhere: the worker checks
  // it.
  bool sequence_known_ = true;
  v1::Accepted accepted_;
  bool has_accepted_ = false;
  std::vector<Sequence> sequences_;  // in the order of their first delta
  absl::flat_hash_map<uint32_t, size_t> by_index_;
  int64_t num_tokens_ = 0;
  int64_t num_prompt_logprobs_ = 0;
  bool has_summary_ = false;
};

}  // namespace continuo::gateway
