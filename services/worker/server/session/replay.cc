// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/replay.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"
#include "services/worker/server/session/validate.h"

namespace continuo::server {
namespace {

constexpr char kDeltas[] = "continuation.received.deltas";

// Collects the deltas' ids and ends by sequence.
absl::StatusOr<std::vector<engine::ReceivedSequence>> Gather(const v1::GenerateResponse& received,
                                                             int num_sequences, bool exact,
                                                             const ServedModel& model) {
  std::vector<engine::ReceivedSequence> sequences(num_sequences);
  for (int i = 0; i < received.deltas_size(); ++i) {
    const v1::Delta& delta = received.deltas(i);
    if (delta.index() >= static_cast<uint32_t>(num_sequences)) {
      return protocol::FieldError(
          absl::StrCat(kDeltas, "[", i, "].index"),
          absl::StrCat(delta.index(), " is not below the request's ", num_sequences, " sequences"));
    }
    engine::ReceivedSequence& sequence = sequences[delta.index()];
    for (const uint32_t id : delta.token_ids()) {
      if (id >= static_cast<uint32_t>(model.vocab_size)) {
        return ValidateToken(absl::StrCat(kDeltas, "[", i, "].token_ids"), id, model);
      }
    }
    if (sequence.finished && delta.token_ids_size() > 0) {
      if (!exact) continue;
      return protocol::FieldError(absl::StrCat(kDeltas, "[", i, "].token_ids"),
                                  absl::StrCat("sequence ", delta.index(), " had finished before"));
    }
    sequence.tokens.insert(sequence.tokens.end(), delta.token_ids().begin(),
                           delta.token_ids().end());
    // A reason that this worker does not know, from a newer one, is an end too.
    sequence.finished |= delta.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
  }
  return sequences;
}

// Checks how many entries of the prompt were received against the number that the prompt gives.
absl::StatusOr<int> CountReceived(std::string_view field, int received, size_t given, bool exact) {
  const auto count = static_cast<size_t>(received);
  if (exact && count > given) {
    return protocol::FieldError(field,
                                absl::StrCat("has ", count, " entries, the prompt gives ", given));
  }
  return static_cast<int>(std::min(count, given));
}

// Takes one more id of a sequence into its constraint.
absl::Status Constrain(int32_t id, int index, bool is_last, bool exact, const StopRules& rules,
                       AnswerConstraint& constraint) {
  const bool ends = rules.EndsSequence(id) && (exact || is_last);
  if (ends && constraint.CanEnd()) return absl::OkStatus();
  if (!ends && constraint.Accept(id)) return absl::OkStatus();
  if (!constraint.status().ok()) return constraint.status();
  const std::string message = absl::StrCat("sequence ", index, " has id ", id,
                                           ", which the constraint does not allow there");
  if (exact) return protocol::FieldError(kDeltas, message);
  return protocol::WithReason(absl::FailedPreconditionError(message),
                              protocol::kReasonModelChanged);
}

// Replays the received ids of a sequence. Returns the end that they imply, if any. `constraint` may
// be null.
absl::StatusOr<std::optional<AnswerSequence::Output>> ReplaySequence(
    const std::vector<int32_t>& tokens, int index, bool exact, const StopRules& rules,
    AnswerSequence& sequence, AnswerConstraint* constraint) {
  const int count = static_cast<int>(tokens.size());
  for (int k = 0; k < count; ++k) {
    const bool last = k + 1 == count;
    if (constraint != nullptr) {
      RETURN_IF_ERROR(Constrain(tokens[k], index, last, exact, rules, *constraint));
    } else if (exact && k < rules.min_tokens && rules.EndsSequence(tokens[k])) {
      return protocol::FieldError(kDeltas,
                                  absl::StrCat("sequence ", index, " has stop id ", tokens[k],
                                               " before min_tokens, which is ", rules.min_tokens));
    }
    AnswerSequence::Output output = sequence.Push(tokens[k], exact || last);
    if (!sequence.finished()) continue;
    if (!last) {
      return protocol::FieldError(
          kDeltas,
          absl::StrCat("sequence ", index, " has ids after its end, which is token ", k + 1));
    }
    // What is deliverable without the end was delivered with these ids.
    static_cast<AnswerSequence::Said&>(output) = std::move(output.held);
    return output;
  }
  if (constraint != nullptr && constraint->MustEnd()) return sequence.End(v1::FINISH_REASON_STOP);
  if (count > 0 && count >= rules.max_tokens) return sequence.End(v1::FINISH_REASON_LENGTH);
  return std::nullopt;
}

}  // namespace

bool Replay::all_finished() const {
  return std::all_of(sequences.begin(), sequences.end(),
                     [](const AnswerSequence& s) { return s.finished(); });
}

int Replay::num_tokens() const {
  size_t sum = 0;
  for (const engine::ReceivedSequence& sequence : received) sum += sequence.tokens.size();
  return static_cast<int>(sum);
}

Replay BeginAnswer(int num_sequences, const ServedModel& model, const StopRules& rules,
                   const AnswerFormat* format) {
  Replay replay;
  for (int i = 0; i < num_sequences; ++i) {
    replay.sequences.emplace_back(&model, &rules, format, i);
  }
  replay.received.resize(num_sequences);
  replay.endings.resize(num_sequences);
  return replay;
}

absl::StatusOr<Replay> ReplayReceived(
    const v1::GenerateResponse& received, int num_sequences, size_t prompt_tokens, bool exact,
    const ServedModel& model, const StopRules& rules, const AnswerFormat* format,
    std::span<const std::shared_ptr<AnswerConstraint>> constraints) {
  Replay replay = BeginAnswer(num_sequences, model, rules, format);
  ASSIGN_OR_RETURN(replay.received, Gather(received, num_sequences, exact, model));
  for (int i = 0; i < num_sequences; ++i) {
    engine::ReceivedSequence& sequence = replay.received[i];
    if (exact && sequence.tokens.size() > static_cast<size_t>(rules.max_tokens)) {
      return protocol::FieldError(kDeltas,
                                  absl::StrCat("sequence ", i, " has ", sequence.tokens.size(),
                                               " tokens, max_tokens is ", rules.max_tokens));
    }
    if (sequence.finished) {
      replay.sequences[i].MarkFinished(sequence.tokens);
      continue;
    }
    AnswerConstraint* const constraint = constraints.empty() ? nullptr : constraints[i].get();
    ASSIGN_OR_RETURN(replay.endings[i], ReplaySequence(sequence.tokens, i, exact, rules,
                                                       replay.sequences[i], constraint));
    sequence.finished = replay.endings[i].has_value();
  }
  ASSIGN_OR_RETURN(replay.num_prompt_logprobs,
                   CountReceived("continuation.received.prompt_logprobs",
                                 received.prompt_logprobs_size(), prompt_tokens - 1, exact));
  ASSIGN_OR_RETURN(replay.num_prompt_tokens,
                   CountReceived("continuation.received.prompt_tokens",
                                 received.prompt_tokens_size(), prompt_tokens, exact));
  return replay;
}

}  // namespace continuo::server
