// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/schedule/invariants.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "absl/strings/str_cat.h"

namespace continuo::engine {
namespace {

absl::Status CheckRequest(const LiveRequest& r, int block_size, bool has_states,
                          bool step_in_flight) {
  int num_unfinished = 0;
  bool moves = false;
  for (const Sequence& s : r.sequences) {
    if (s.state == SequenceState::kFinished) continue;
    ++num_unfinished;
    moves |= s.state != SequenceState::kPending;
    if (s.state == SequenceState::kPending && r.prefill_leader == nullptr) {
      return absl::InternalError(absl::StrCat("sequence ", s.id, " waits for nobody"));
    }
    if (s.state != SequenceState::kRunning &&
        (!s.blocks.empty() || s.num_computed != 0 || !s.states.empty())) {
      return absl::InternalError(absl::StrCat("sequence ", s.id, " holds blocks and waits"));
    }
    if (s.state == SequenceState::kRunning &&
        (s.num_computed >= NumTokens(s) + (step_in_flight ? 1 : 0) ||
         static_cast<int>(s.blocks.size()) < BlocksFor(s.num_computed, block_size))) {
      return absl::InternalError(absl::StrCat("sequence ", s.id, " runs on nothing"));
    }
    if (has_states && s.state == SequenceState::kRunning && !step_in_flight &&
        (s.num_computed == 0 ? !s.states.empty()
                             : s.states.size() != 1 || s.states[0].position != s.num_computed)) {
      return absl::InternalError(absl::StrCat("sequence ", s.id, " has another state"));
    }
    if (s.state == SequenceState::kRunning && s.num_computed < r.prompt_tokens() &&
        r.prefill_leader != &s) {
      return absl::InternalError(absl::StrCat("sequence ", s.id, " prefills a sibling's prompt"));
    }
  }
  if (num_unfinished != r.num_unfinished || num_unfinished == 0 || !moves) {
    return absl::InternalError(absl::StrCat("request ", r.request.id, " cannot end"));
  }
  return absl::OkStatus();
}

absl::Status CheckQueue(const RequestBook& book) {
  int64_t queued_tokens = 0;
  for (const Sequence* s : book.waiting().InOrder()) {
    if (s->state != SequenceState::kWaiting) return absl::InternalError("the queue is wrong");
    queued_tokens += NumTokens(*s);
  }
  if (queued_tokens != book.queued_tokens()) {
    return absl::InternalError("tokens in the queue are miscounted");
  }
  return absl::OkStatus();
}

absl::Status CheckRunning(std::span<Sequence* const> running) {
  for (size_t i = 0; i < running.size(); ++i) {
    const Sequence& s = *running[i];
    if (s.state != SequenceState::kRunning) return absl::InternalError("not running");
    if (i > 0 && running[i - 1]->request->request.priority < s.request->request.priority) {
      return absl::InternalError("running sequences are out of order");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckInvariants(const RequestBook& book, const Residency& residency,
                             bool step_in_flight) {
  absl::Status status = residency.pool().CheckInvariants();
  if (const int64_t lost = residency.unaccounted_blocks(); lost != 0) {
    status.Update(absl::InternalError(absl::StrCat(lost, " block references are lost")));
  }
  status.Update(residency.states().pool().CheckInvariants());
  if (const int64_t lost = residency.unaccounted_states(); lost != 0) {
    status.Update(absl::InternalError(absl::StrCat(lost, " references to states are lost")));
  }
  status.Update(CheckQueue(book));
  status.Update(CheckRunning(residency.running()));
  int num_unfinished = 0;
  int64_t waiting_tokens = 0;
  book.live().ForEach([&](const LiveRequest& r) {
    status.Update(CheckRequest(r, residency.pool().block_size(), residency.states().has_slots(),
                               step_in_flight));
    num_unfinished += r.num_unfinished;
    if (r.admitted) return;
    int64_t tokens = r.prompt_tokens();
    for (const Sequence& s : r.sequences) tokens += static_cast<int64_t>(s.answer.size());
    waiting_tokens += std::max<int64_t>(tokens, r.request.num_sequences);
  });
  if (!status.ok()) return status;
  if (num_unfinished != book.num_unfinished()) {
    return absl::InternalError("sequences are miscounted");
  }
  if (waiting_tokens != book.waiting_tokens()) {
    return absl::InternalError("the queue is miscounted");
  }
  return absl::OkStatus();
}

}  // namespace continuo::engine
