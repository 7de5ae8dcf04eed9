// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"
#include "services/worker/engine/types/request.h"
#include "services/worker/server/constraint/answer_constraint.h"
#include "services/worker/server/session/answer_sequence.h"
#include "services/worker/server/session/served_model.h"

namespace continuo::server {

// The state of an answer before anything of it is computed here: at its beginning, or after the ids
// that a continuation received. Each vector has one entry per sequence.
struct Replay {
  std::vector<AnswerSequence> sequences;  // in the state after the received ids
  std::vector<engine::ReceivedSequence> received;
  // Ends that the received ids imply but that were not received: they are still to be sent, with
  // the text that was held back.
  std::vector<std::optional<AnswerSequence::Output>> endings;
  int num_prompt_logprobs = 0;  // received by the client
  int num_prompt_tokens = 0;    // received by the client

  bool all_finished() const;
  int num_tokens() const;  // received in all sequences
};

// The state of a request without a continuation: `num_sequences` at their beginning.
// `format` may be null.
Replay BeginAnswer(int num_sequences, const ServedModel& model, const StopRules& rules,
                   const AnswerFormat* format = nullptr);

// Replays received ids through detokeniser, stop strings and limits (exactness: replay). `exact`
// means that a worker of this one's fingerprint made them, so that ids which the request cannot
// have given are INVALID_ARGUMENT. Otherwise only ids outside the vocabulary are: an end before the
// last received id is ignored, and a limit already passed ends the sequence with LENGTH.
// `constraints` are none or one a sequence: each accepts the ids of its sequence, unless that was
// received to its end. An id that it does not allow is INVALID_ARGUMENT, and otherwise
// FAILED_PRECONDITION, reason MODEL_CHANGED.
absl::StatusOr<Replay> ReplayReceived(
    const v1::GenerateResponse& received, int num_sequences, size_t prompt_tokens, bool exact,
    const ServedModel& model, const StopRules& rules, const AnswerFormat* format = nullptr,
    std::span<const std::shared_ptr<AnswerConstraint>> constraints = {});

}  // namespace continuo::server
