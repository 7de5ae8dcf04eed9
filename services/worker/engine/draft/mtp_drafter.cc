// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/draft/mtp_drafter.h"

#include <algorithm>
#include <utility>

#include "services/worker/engine/draft/draft_plan.h"

namespace continuo::engine {

void MtpDrafter::OnCommitted(std::span<const ComputedRows> rows) {
  fresh_.clear();
  for (const ComputedRows& r : rows) {
    fresh_.push_back({r, r.sequence->id, r.sequence->admitted_in});
  }
}

void MtpDrafter::Forget(model::SequenceId id) {
  std::erase_if(fresh_, [id](const Fresh& fresh) { return fresh.id == id; });
  drafts_.erase(id);
}

bool MtpDrafter::IsThere(const Fresh& fresh) {
  const Sequence& s = *fresh.rows.sequence;
  return s.state == SequenceState::kRunning && s.admitted_in == fresh.admitted_in &&
         s.num_computed >= fresh.rows.end && TokensOf(s).size() > fresh.rows.end;
}

void MtpDrafter::Prepare(std::span<const DraftAsk> asks) {
  works_.clear();
  drafts_.clear();
  if (!status_.ok()) return;
  ReadStep(asks);
  DraftFurther();
}

// Runs plan_ into result_. Returns false if the executor is lost.
bool MtpDrafter::RunStep(const StepLoad& load) {
  const absl::Duration begin = clock_.Elapsed();
  auto result = executor_.Run(plan_, [](std::span<uint32_t>) {});
  status_ = result.status();
  if (!status_.ok()) return false;
  cost_.Observe(load, clock_.Elapsed() - begin);
  executor_.Recycle(std::exchange(result_, *std::move(result)));
  return true;
}

// Runs the module over the rows of the last step, and samples the first draft of those that are
// asked for and whose last token but one is among these rows.
void MtpDrafter::ReadStep(std::span<const DraftAsk> asks) {
  most_.clear();
  for (const DraftAsk& ask : asks) most_[ask.sequence->id] = ask.most;
  std::erase_if(fresh_, [](const Fresh& fresh) { return !IsThere(fresh); });
  // Devices expect sequences of one row first.
  std::stable_partition(fresh_.begin(), fresh_.end(),
                        [](const Fresh& fresh) { return fresh.rows.end - fresh.rows.begin == 1; });
  plan_.Clear();
  for (const Fresh& fresh : fresh_) {
    plan_.max_blocks = std::max(plan_.max_blocks, BlocksFor(fresh.rows.end, block_size_));
  }
  StepLoad load;
  for (const Fresh& fresh : fresh_) {
    const auto& [sequence, first_row, begin, end] = fresh.rows;
    const Sequence& s = *sequence;
    const TokenRange tokens = TokensOf(s);
    for (int at = begin; at < end; ++at) {
      plan_.token_ids.push_back(tokens[at + 1]);
      plan_.hidden_rows.push_back(first_row + at - begin);
    }
    AddPlaces(s.id, s.blocks, block_size_, begin, end, plan_);
    const auto ask = most_.find(fresh.id);
    const int most = ask == most_.end() ? 0 : ask->second;
    const bool drafts = most > 0 && end == s.num_computed && tokens.size() == end + 1;
    if (drafts) {
      AddDraftSample(s, {}, vocab_size_, seen_, plan_);
      works_.push_back({.sequence = &s, .most = most});
    }
    plan_.sample_begin.push_back(plan_.num_samples());
    load = load.WithTokens(begin, end - begin, drafts ? 1 : 0);
  }
  fresh_.clear();
  if (plan_.num_rows() == 0) return;
  if (!RunStep(load)) return works_.clear();
  for (const Work& work : works_) {
    drafts_[work.sequence->id].reserve(static_cast<size_t>(work.most));
  }
  for (size_t i = 0; i < works_.size(); ++i) {
    works_[i].drafts = &drafts_[works_[i].sequence->id];
    works_[i].drafts->push_back(result_.token_ids[i]);
  }
}

// Samples one more draft of every sequence in each step of the module, from the hidden state that
// the step before it left.
void MtpDrafter::DraftFurther() {
  for (;;) {
    size_t kept = 0;
    for (size_t i = 0; i < works_.size(); ++i) {
      if (static_cast<int>(works_[i].drafts->size()) >= works_[i].most) continue;
      works_[kept] = works_[i];
      works_[kept++].row = static_cast<int32_t>(i);
    }
    works_.resize(kept);
    if (works_.empty()) return;
    const auto end_of = [](const Work& work) {
      return work.sequence->num_computed + static_cast<int>(work.drafts->size());
    };
    plan_.Clear();
    for (const Work& work : works_) {
      plan_.max_blocks = std::max(plan_.max_blocks, BlocksFor(end_of(work), block_size_));
    }
    StepLoad load;
    for (const Work& work : works_) {
      plan_.token_ids.push_back(work.drafts->back());
      plan_.hidden_rows.push_back(work.row);
      AddPlaces(work.sequence->id, work.sequence->blocks, block_size_, end_of(work) - 1,
                end_of(work), plan_);
      AddDraftSample(*work.sequence, *work.drafts, vocab_size_, seen_, plan_);
      plan_.sample_begin.push_back(plan_.num_samples());
      load = load.WithTokens(end_of(work) - 1, 1, 1);
    }
    if (!RunStep(load)) return works_.clear();
    for (size_t i = 0; i < works_.size(); ++i) works_[i].drafts->push_back(result_.token_ids[i]);
  }
}

void MtpDrafter::Propose(const Sequence& s, int most, std::vector<int32_t>& drafts) {
  drafts.clear();
  const auto found = drafts_.find(s.id);
  if (found == drafts_.end()) return;
  const auto count = std::min(static_cast<size_t>(most), found->second.size());
  drafts.assign(found->second.begin(), found->second.begin() + static_cast<std::ptrdiff_t>(count));
}

// The module reads the last step's rows in any case, so a first draft costs its sample.
DraftCost MtpDrafter::Cost(const Sequence& s, int num_sequences) const {
  const int count = std::max(1, num_sequences);
  const StepLoad rows = {.tokens = count, .attention = count * int64_t{NumTokens(s)}};
  StepLoad step = rows;
  step.samples = count;
  const absl::Duration all = cost_.Predict(step);
  return {.one = (all - cost_.Predict(rows)) / count, .each = all / count};
}

}  // namespace continuo::engine
