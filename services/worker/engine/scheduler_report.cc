// SPDX-License-Identifier: Apache-2.0
// What the scheduler tells about itself: the record of a step, and whether its state is sound.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "services/worker/engine/scheduler.h"

namespace continuo::engine {
namespace {

StepRecord::SequenceRow RowOf(const Sequence& s) {
  StepRecord::SequenceRow row;
  row.label = s.request->request.label;
  row.index = s.index;
  row.prompt_tokens = s.request->prompt_tokens();
  row.generated_tokens = static_cast<int>(s.answer.size());
  row.finish = s.finish;
  return row;
}

absl::Status CheckRequest(const LiveRequest& r, int block_size, bool under_way) {
  int num_unfinished = 0;
  bool moves = false;
  for (const Sequence& s : r.sequences) {
    if (s.state == SequenceState::kFinished) continue;
    ++num_unfinished;
    moves |= s.state != SequenceState::kPending;
    if (s.state == SequenceState::kPending && r.reader == nullptr) {
      return absl::InternalError(absl::StrCat("sequence ", s.id, " waits for nobody"));
    }
    if (s.state != SequenceState::kRunning && (!s.blocks.empty() || s.num_computed != 0)) {
      return absl::InternalError(absl::StrCat("sequence ", s.id, " holds blocks and waits"));
    }
    if (s.state == SequenceState::kRunning &&
        (s.num_computed >= NumTokens(s) + (under_way ? 1 : 0) ||
         static_cast<int>(s.blocks.size()) < BlocksFor(s.num_computed, block_size))) {
      return absl::InternalError(absl::StrCat("sequence ", s.id, " runs on nothing"));
    }
    if (s.state == SequenceState::kRunning && s.num_computed < r.prompt_tokens() &&
        r.reader != &s) {
      return absl::InternalError(absl::StrCat("sequence ", s.id, " reads a sibling's prompt"));
    }
  }
  if (num_unfinished != r.num_unfinished || num_unfinished == 0 || !moves) {
    return absl::InternalError(absl::StrCat("request ", r.request.id, " cannot end"));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t Scheduler::unaccounted_blocks() const {
  int64_t held = 0;
  for (const Sequence* s : running_) held += static_cast<int64_t>(s->blocks.size());
  const int64_t lost = pool_.num_references() - held;
  return lost < 0 ? -lost : lost;
}

void Scheduler::Describe(StepRecord& record) const {
  const PlannedStep& step = Committed();
  record.number = num_committed_;
  record.sequences.clear();
  const model::StepPlan& plan = step.plan.plan();
  for (size_t i = 0; i < step.chosen.size(); ++i) {
    const Sequence& s = *step.chosen[i].sequence;
    // It had ended before the step was through, which nobody is told anything of.
    if (s.state == SequenceState::kFinished && s.finished_after < num_committed_) continue;
    StepRecord::SequenceRow row = RowOf(*step.chosen[i].sequence);
    row.new_tokens = step.chosen[i].rows + step.chosen[i].num_drafts;
    row.cached_tokens = plan.kv_len[i] - row.new_tokens;
    record.sequences.push_back(std::move(row));
  }
  for (const Sequence* s : step.preempted) {
    record.sequences.push_back(RowOf(*s));
    record.sequences.back().preempted = true;
  }
  record.waiting = num_waiting();
  record.used_blocks = pool_.num_used();
}

absl::Status Scheduler::CheckInvariants() const {
  if (absl::Status status = pool_.CheckInvariants(); !status.ok()) return status;
  if (unaccounted_blocks() != 0) {
    return absl::InternalError(absl::StrCat(unaccounted_blocks(), " block references are lost"));
  }
  int64_t waiting_rows = 0;
  for (const Sequence* s : waiting_.InOrder()) {
    if (s->state != SequenceState::kWaiting) return absl::InternalError("the queue is wrong");
    waiting_rows += NumTokens(*s);
  }
  if (waiting_rows != waiting_rows_) return absl::InternalError("waiting rows are miscounted");
  for (size_t i = 0; i < running_.size(); ++i) {
    const Sequence& s = *running_[i];
    if (s.state != SequenceState::kRunning) return absl::InternalError("not running");
    if (i > 0 && running_[i - 1]->request->request.priority < s.request->request.priority) {
      return absl::InternalError("running sequences are out of order");
    }
  }
  int num_unfinished = 0;
  int64_t waiting_tokens = 0;
  absl::Status status;
  live_.ForEach([&](const LiveRequest& r) {
    status.Update(CheckRequest(r, options_.block_size, num_under_way() > 0));
    num_unfinished += r.num_unfinished;
    if (r.admitted) return;
    int64_t tokens = r.prompt_tokens();
    for (const Sequence& s : r.sequences) tokens += static_cast<int64_t>(s.answer.size());
    waiting_tokens += std::max<int64_t>(tokens, r.request.num_sequences);
  });
  if (!status.ok()) return status;
  if (num_unfinished != num_unfinished_) return absl::InternalError("sequences are miscounted");
  if (waiting_tokens != waiting_tokens_) return absl::InternalError("the queue is miscounted");
  return absl::OkStatus();
}

}  // namespace continuo::engine
