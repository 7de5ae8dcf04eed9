// SPDX-License-Identifier: Apache-2.0
// Speculation: drafts are checked where the step then gives more tokens a second.
#include <algorithm>
#include <cmath>
#include <utility>

#include "services/base/check.h"
#include "services/worker/engine/scheduler.h"

namespace continuo::engine {
namespace {

// Of what is known about how often guesses were right: kept at each guess that was checked, and at
// each that was not, so that a sequence is given another chance after about a hundred steps.
constexpr float kKeepChecked = 0.9f, kKeepUnchecked = 0.98f;

// What drafts cost is only known from drafts: after so many steps in which they did not seem to
// pay, one is asked for to see.
constexpr int kAskAnyway = 64;

constexpr int kMostStepsAhead = 16;

float HitRate(const Sequence& s) { return (s.draft_hits + 1) / (s.draft_tries + 2); }

}  // namespace

bool Scheduler::MayHaveDrafts(const Sequence& s) const {
  return NumRemaining(s) == 1 && NumAnswered(s) > 0 &&
         !Owes(s);  // else the step is for another tenant's prompt
}

// As many as there is room for, in the step, in memory and in the answer; may be negative.
int64_t Scheduler::MostDrafts(const Sequence& s) const {
  const int64_t room =
      (static_cast<int64_t>(s.blocks.size()) + pool_.num_free()) * options_.block_size -
      (s.num_computed + 1);
  return std::min<int64_t>({options_.max_drafts, MostRows() - next_->load.rows, room,
                            // The last token of an answer is drawn and never computed.
                            s.request->request.max_tokens - int64_t{NumAnswered(s)} - 1});
}

// How many drafts of `s` are worth their rows and what else they cost: the i-th one is right with
// about the i-th power of the rate at which drafts are. A row more is worth its time where it
// brings more tokens for it than the step as a whole does. What has to be done once before the
// first draft is spread over the tokens that the answer has: who has generated many is likely to
// generate many more.
int Scheduler::NumDraftsWorth(const Sequence& s, const DraftCost& cost) const {
  const int64_t position = s.num_computed + 1, most = MostDrafts(s);
  if (most <= 0) return 0;
  const absl::Duration step = cost_.Predict(next_->load);
  const double seconds = absl::ToDoubleSeconds(step + drafting_);
  const auto more = [&](int64_t rows) {
    return cost_.Predict(next_->load.WithRows(position, rows, rows)) - step;
  };
  const double row_seconds = absl::ToDoubleSeconds(more(most)) / static_cast<double>(most);
  const double worth = (row_seconds + absl::ToDoubleSeconds(cost.each)) * expected_tokens_;
  const double first = absl::ToDoubleSeconds(cost.first) * expected_tokens_ /
                       static_cast<double>(s.answer.size() + 1);
  double chance = 1;
  int drafts = 0;
  while (drafts < most && (chance *= HitRate(s)) * seconds > worth + (drafts == 0 ? first : 0)) {
    ++drafts;
  }
  while (drafts > 0 &&
         step + drafting_ + more(drafts) + drafts * cost.each > options_.target_step) {
    --drafts;
  }
  return drafts;
}

// Lets a drafter that guesses for all at once do so.
void Scheduler::PrepareDrafts() {
  const auto count = static_cast<int>(std::ranges::count_if(
      next_->chosen, [this](const Chosen& chosen) { return MayHaveDrafts(*chosen.sequence); }));
  asks_.clear();
  absl::Duration drafting;
  for (const Chosen& chosen : next_->chosen) {
    const Sequence& s = *chosen.sequence;
    if (!MayHaveDrafts(s)) continue;
    const DraftCost cost = options_.drafter->Cost(s, count);
    const int most = NumDraftsWorth(s, cost);
    if (most == 0) continue;
    asks_.push_back({&s, most});
    drafting += most * cost.each;
  }
  if (asks_.empty() && count > 0 && steps_without_drafts_ >= kAskAnyway) {
    const auto first = std::ranges::find_if(
        next_->chosen, [this](const Chosen& chosen) { return MayHaveDrafts(*chosen.sequence); });
    asks_.push_back({first->sequence, 1});
  }
  drafting_ = drafting;
  if (!asks_.empty()) options_.drafter->Prepare(asks_);
}

// After all else has been chosen. Ahead of another step nobody knows what to guess from: while no
// drafts are found, more and more steps are planned ahead before the next one is asked for some.
void Scheduler::ChooseDrafts(bool is_ahead) {
  drafts_.clear();
  if (options_.drafter == nullptr) return;
  if (is_ahead) {
    --steps_ahead_;
    ++steps_without_drafts_;
    return;
  }
  expected_tokens_ = static_cast<double>(std::max<int64_t>(1, next_->load.samples));
  drafting_ = absl::ZeroDuration();
  const bool prepared = options_.drafter->works_in_batches();
  if (prepared) PrepareDrafts();
  size_t next_ask = 0;
  bool any = false, asks_anyway = steps_without_drafts_ >= kAskAnyway;
  for (Chosen& chosen : next_->chosen) {
    Sequence& s = *chosen.sequence;
    if (!MayHaveDrafts(s)) continue;
    const bool asked = !prepared || (next_ask < asks_.size() && asks_[next_ask].sequence == &s);
    if (prepared && asked) ++next_ask;
    // What guessing takes is spent by now.
    int most = asked ? NumDraftsWorth(s, {}) : 0;
    any = true;
    if (asked && std::exchange(asks_anyway, false) && most == 0 && MostDrafts(s) > 0 &&
        cost_.Predict(next_->load.WithRows(s.num_computed + 1, 1, 1)) <= options_.target_step) {
      most = 1;
    }
    if (most == 0) {
      s.draft_hits *= kKeepUnchecked;
      s.draft_tries *= kKeepUnchecked;
      continue;
    }
    options_.drafter->Propose(s, most, proposed_);
    CONTINUO_CHECK(static_cast<int>(proposed_.size()) <= most);
    if (proposed_.empty()) continue;
    const auto count = static_cast<int>(proposed_.size());
    chosen.first_draft = drafts_.size();
    chosen.num_drafts = count;
    drafts_.insert(drafts_.end(), proposed_.begin(), proposed_.end());
    const int need = BlocksFor(s.num_computed + 1 + count, options_.block_size);
    while (static_cast<int>(s.blocks.size()) < need) s.blocks.push_back(pool_.Allocate());
    next_->load = next_->load.WithRows(s.num_computed + 1, count, count);
    tenants_.Charge(*s.request->tenant, count);
    const double rate = HitRate(s);
    expected_tokens_ += rate * (1 - std::pow(rate, count)) / (1 - rate);
  }
  if (any) steps_without_drafts_ = drafts_.empty() ? steps_without_drafts_ + 1 : 0;
  steps_ahead_ = drafts_.empty() ? next_steps_ahead_ : 0;
  next_steps_ahead_ = drafts_.empty() ? std::min(2 * next_steps_ahead_, kMostStepsAhead) : 1;
}

// After the step's tokens are in the answers: learns from those that were right, gives back the
// blocks of those that were not.
void Scheduler::SettleDrafts(const Chosen& chosen) {
  Sequence& s = *chosen.sequence;
  const int hits = s.num_computed - chosen.begin - 1;
  CONTINUO_CHECK(hits >= 0 && hits <= chosen.num_drafts);
  const bool missed = hits < chosen.num_drafts && s.finish == FinishReason::kNone;
  s.draft_hits = kKeepChecked * s.draft_hits + static_cast<float>(hits);
  s.draft_tries = kKeepChecked * s.draft_tries + static_cast<float>(hits + (missed ? 1 : 0));
  metrics_.draft_tokens.fetch_add(chosen.num_drafts, std::memory_order_relaxed);
  metrics_.accepted_draft_tokens.fetch_add(hits, std::memory_order_relaxed);
  PublishBlocks(s, s.num_computed);
  const int need = BlocksFor(s.num_computed + 1, options_.block_size);
  while (static_cast<int>(s.blocks.size()) > need) {
    pool_.Release(s.blocks.back());
    s.blocks.pop_back();
    ++num_releases_;
  }
}

}  // namespace continuo::engine
