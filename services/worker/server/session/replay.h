// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"
#include "services/worker/engine/types/request.h"
#include "services/worker/server/session/answer_sequence.h"
#include "services/worker/server/session/served_model.h"

namespace continuo::server {

// Where an answer stands before anything of it is computed here: at its beginning, or after what a
// continuation says was received. One entry per sequence in each vector.
struct Replay {
  std::vector<AnswerSequence> sequences;  // in the state after the received ids
  std::vector<engine::ReceivedSequence> received;
  // Sequences that the received ids have ended though their finish was not received: it is still
  // to be sent, with the text that was held back.
  std::vector<std::optional<AnswerSequence::Output>> endings;
  int num_prompt_logprobs = 0;  // that the client has

  bool all_finished() const;
  int num_tokens() const;  // received, of all sequences
};

// A request without a continuation: `num_sequences` at their beginning.
Replay BeginAnswer(int num_sequences, const ServedModel& model, const StopRules& rules);

// Replays received ids through detokeniser, stop strings and limits (exactness: replay). `exact`:
// they were made by a worker of this one's fingerprint, so that ids which the request cannot have
// given are INVALID_ARGUMENT. Otherwise only ids outside the vocabulary are: an end before the
// last received id is ignored, a limit already passed ends the sequence with LENGTH.
absl::StatusOr<Replay> ReplayReceived(const v1::GenerateResponse& received, int num_sequences,
                                      size_t prompt_tokens, bool exact, const ServedModel& model,
                                      const StopRules& rules);

}  // namespace continuo::server
