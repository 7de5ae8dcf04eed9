// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "continuo/v1/inference.pb.h"
#include "services/worker/server/session/answer_sequence.h"
#include "services/worker/server/session/served_model.h"

namespace continuo::server {

// What was generated and not yet written, as the responses that will carry it. What is added goes
// into the last of them as long as that stays within 1 MiB, so that a reader who keeps up gets
// small messages and one who does not gets few. Not thread-safe.
class ResponseQueue {
 public:
  // `accepted` goes out with the first response, which is number `next_sequence`. With `collect`
  // there is one response, ready with its summary. `model` outlives the queue.
  ResponseQueue(v1::Accepted accepted, uint64_t next_sequence, int num_sequences, bool collect,
                const ServedModel* model);

  // The request has started: lets Accepted go out.
  void AddStart();
  void AddProgress(const engine::PromptProgress& progress);
  void AddPromptLogprob(int32_t token, const model::TokenScore& score);
  // One token of sequence `index` with all that it brought; `score` may be null.
  void AddToken(int index, int32_t token, const model::TokenScore* score,
                const AnswerSequence::Output& output, const StopRules& rules);
  // The end of a sequence without a token of its own.
  void AddEnd(int index, const AnswerSequence::Output& output, const StopRules& rules);
  void AddSummary(v1::Summary summary);

  // A response may be written now.
  bool ready() const;
  // The next response; only when ready.
  v1::GenerateResponse Pop();
  // Of all that waits, on the wire, at most.
  size_t bytes() const { return bytes_; }

 private:
  // The response that `bytes` more fit into.
  v1::GenerateResponse& Open(size_t bytes);
  v1::Delta& OpenDelta(int index, size_t bytes);
  void Append(v1::Delta& delta, const AnswerSequence::Output& output, const StopRules& rules);

  struct Waiting {
    v1::GenerateResponse response;
    size_t bytes = 0;  // at most
  };

  v1::Accepted accepted_;
  uint64_t next_sequence_;
  const bool collect_;
  const ServedModel* model_;
  bool accepted_sent_ = false;
  bool complete_ = false;  // the summary is in
  std::deque<Waiting> responses_;
  size_t bytes_ = 0;           // sum of theirs
  std::vector<int> delta_of_;  // index in the last response's deltas, -1: none; by sequence
};

}  // namespace continuo::server
