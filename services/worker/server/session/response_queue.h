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

// Output that was generated and not yet written, as the responses that will carry it. Additions go
// into the last response as long as that stays within protocol::kMaxResponseBytes, so that a reader
// who keeps up gets small messages and a slow one gets few. Not thread-safe.
class ResponseQueue {
 public:
  // `accepted` goes out with the first response, which is number `next_sequence`. With `collect`
  // there is one response, ready with its summary. `model` outlives the queue.
  ResponseQueue(v1::Accepted accepted, uint64_t next_sequence, int num_sequences, bool collect,
                const ServedModel* model);

  // Lets Accepted go out, because the request has started.
  void AddStart();
  void AddProgress(const engine::PromptProgress& progress);
  void AddPromptToken(int32_t token);
  void AddPromptLogprob(int32_t token, const model::TokenScore& score);
  // Adds one token of sequence `index` with its output; `score` may be null.
  void AddToken(int index, int32_t token, const model::TokenScore* score,
                const AnswerSequence::Output& output, const StopRules& rules);
  // Adds the end of a sequence that comes without a token.
  void AddEnd(int index, const AnswerSequence::Output& output, const StopRules& rules);
  void AddSummary(v1::Summary summary);

  // True if a response may be written now.
  bool ready() const;
  // Takes the next response. Called only when ready().
  v1::GenerateResponse Pop();
  // Upper bound of the bytes on the wire of all waiting responses.
  size_t bytes() const { return bytes_; }

 private:
  // Returns the response that `bytes` more fit into.
  v1::GenerateResponse& Open(size_t bytes);
  v1::Delta& OpenDelta(int index, size_t bytes);
  // The last Delta of the sequence, or a new one where what comes at `place` may not follow in it.
  v1::Delta& DeltaFor(int index, DeltaPlace place);
  // Adds to the sequence's Delta, which is open.
  void Append(int index, const AnswerSequence::Output& output, const StopRules& rules);

  struct Waiting {
    v1::GenerateResponse response;
    size_t bytes = 0;  // upper bound on the wire
  };

  v1::Accepted accepted_;
  uint64_t next_sequence_;
  const bool collect_;
  const ServedModel* model_;
  bool accepted_sent_ = false;
  bool complete_ = false;  // the summary was added
  std::deque<Waiting> responses_;
  size_t bytes_ = 0;  // sum over responses_
  std::vector<int>
      delta_of_;  // by sequence: index of its last delta in the last response, -1 if there is none
};

}  // namespace continuo::server
