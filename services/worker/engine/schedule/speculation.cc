// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/schedule/speculation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "services/base/check.h"

namespace continuo::engine {
namespace {

// The counts of a sequence's right and verified drafts decay by kKeepVerified at each draft that
// was verified, and by kKeepUnverified at each step without one, so that the sequence is tried
// again after about a hundred steps.
constexpr float kKeepVerified = 0.9f, kKeepUnverified = 0.98f;

// The cost of drafts is only known from drafts: after this many steps in which they did not seem to
// pay, one is asked for anyway.
constexpr int kAskAnyway = 64;

constexpr int kMostOverlaps = 16;

float HitRate(const Sequence& s) { return (s.draft_hits + 1) / (s.draft_tries + 2); }

}  // namespace

// A sequence that yields to another tenant's prompt gets no drafts.
bool Speculation::MayHaveDrafts(const Sequence& s, const PlannedStep& step) const {
  return NumRemaining(s) == 1 && NumAnswered(s) > 0 &&
         !(step.prefill_tenant != nullptr &&
           tenants_.HasDeficit(*step.prefill_tenant, *s.request->tenant));
}

// Returns for how many drafts there is room in step, KV cache and answer; may be negative.
int64_t Speculation::MostDrafts(const Sequence& s, const PlannedStep& step) const {
  return std::min<int64_t>({options_.max_drafts, residency_.states().RoomForDrafts(),
                            step.max_tokens - step.load.tokens,
                            residency_.RoomAfter(s, s.num_computed + 1),
                            // The last token of an answer is sampled and never computed.
                            s.request->request.max_tokens - int64_t{NumAnswered(s)} - 1});
}

// Returns how many drafts of `s` are worth their tokens and their other `cost`. The i-th is right
// with about the i-th power of the rate at which drafts are. One more token is worth its time if it
// gives more tokens for it than the step as a whole. The cost before the next draft is spread over
// the tokens that the answer has: a sequence that has generated many is likely to generate many
// more.
int Speculation::NumDraftsWorth(const Sequence& s, const PlannedStep& step,
                                const DraftCost& cost) const {
  const int64_t position = s.num_computed + 1, most = MostDrafts(s, step);
  if (most <= 0) return 0;
  if (options_.always_drafts) return static_cast<int>(most);
  const absl::Duration duration = cost_.Predict(step.load);
  const double seconds = absl::ToDoubleSeconds(duration + drafting_);
  const auto more = [&](int64_t count) {
    return cost_.Predict(step.load.WithTokens(position, count, count)) - duration;
  };
  const double token_seconds = absl::ToDoubleSeconds(more(most)) / static_cast<double>(most);
  const auto worth = [&](absl::Duration draft) {
    return (token_seconds + absl::ToDoubleSeconds(draft)) * expected_tokens_;
  };
  const double once = absl::ToDoubleSeconds(cost.once) * expected_tokens_ /
                      static_cast<double>(s.answer.size() + 1);
  const double first = worth(cost.one) + once, further = worth(cost.each);
  double chance = 1;
  int drafts = 0;
  while (drafts < most && (chance *= HitRate(s)) * seconds > (drafts == 0 ? first : further)) {
    ++drafts;
  }
  while (drafts > 0 &&
         duration + drafting_ + more(drafts) + cost.Of(drafts) > options_.target_step) {
    --drafts;
  }
  return drafts;
}

// Calls Prepare of a drafter that guesses for all sequences at once.
void Speculation::PrepareBatch(const PlannedStep& step) {
  const auto may_have = [&](const ScheduledTokens& t) { return MayHaveDrafts(*t.sequence, step); };
  const auto count = static_cast<int>(std::ranges::count_if(step.scheduled, may_have));
  asks_.clear();
  absl::Duration drafting;
  for (const ScheduledTokens& t : step.scheduled) {
    const Sequence& s = *t.sequence;
    if (!MayHaveDrafts(s, step)) continue;
    const DraftCost cost = options_.drafter->Cost(s, count);
    const int most = NumDraftsWorth(s, step, cost);
    if (most == 0) continue;
    asks_.push_back({&s, most});
    if (options_.drafter->reads_every_step()) {
      residency_.Grow(*t.sequence, s.num_computed + 1 + most);
    }
    drafting += cost.Of(most);
  }
  if (asks_.empty() && count > 0 && steps_without_drafts_ >= kAskAnyway) {
    // It has a block for its next token, where the module reads last.
    asks_.push_back({std::ranges::find_if(step.scheduled, may_have)->sequence, 1});
  }
  drafting_ = drafting;
  if (!asks_.empty() || options_.drafter->reads_every_step()) options_.drafter->Prepare(asks_);
}

// Keeps the proposed drafts that the constraint of `s` accepts, up to one after which the answer
// must end.
void Speculation::CutDrafts(Sequence& s) {
  TokenConstraint& constraint = *s.constraint;
  const std::vector<int32_t>& stops = s.request->request.stop_ids;
  int accepted = 0;
  size_t kept = 0;
  for (; kept < proposed_.size(); ++kept) {
    const int32_t draft = proposed_[kept];
    if (std::ranges::binary_search(stops, draft) || !constraint.Accept(draft)) break;
    ++accepted;
    if (!constraint.status().ok() || (constraint.Restricts() && constraint.MustEnd())) break;
  }
  constraint.Rollback(accepted);
  proposed_.resize(kept);
}

void Speculation::AddDrafts(PlannedStep& step, bool is_overlapped) {
  drafts_.clear();
  if (options_.drafter == nullptr) return;
  if (is_overlapped) {
    --overlaps_left_;
    ++steps_without_drafts_;
    return;
  }
  expected_tokens_ = static_cast<double>(std::max<int64_t>(1, step.load.samples));
  drafting_ = absl::ZeroDuration();
  const bool prepared = options_.drafter->works_in_batches();
  if (prepared) PrepareBatch(step);
  size_t next_ask = 0;
  bool any = false, asks_anyway = steps_without_drafts_ >= kAskAnyway;
  for (ScheduledTokens& t : step.scheduled) {
    Sequence& s = *t.sequence;
    if (!MayHaveDrafts(s, step)) continue;
    const bool asked = !prepared || (next_ask < asks_.size() && asks_[next_ask].sequence == &s);
    if (prepared && asked) ++next_ask;
    // The drafter has done its work by now, so its cost does not count again.
    int most = asked ? NumDraftsWorth(s, step, {}) : 0;
    any = true;
    if (asked && std::exchange(asks_anyway, false) && most == 0 && MostDrafts(s, step) > 0 &&
        cost_.Predict(step.load.WithTokens(s.num_computed + 1, 1, 1)) <= options_.target_step) {
      most = 1;
    }
    if (most == 0) {
      s.draft_hits *= kKeepUnverified;
      s.draft_tries *= kKeepUnverified;
      continue;
    }
    options_.drafter->Propose(s, most, proposed_);
    CONTINUO_CHECK(static_cast<int>(proposed_.size()) <= most);
    if (s.constraint != nullptr) CutDrafts(s);
    if (proposed_.empty()) continue;
    const auto count = static_cast<int>(proposed_.size());
    t.first_draft = drafts_.size();
    t.num_drafts = count;
    drafts_.insert(drafts_.end(), proposed_.begin(), proposed_.end());
    residency_.Grow(s, s.num_computed + 1 + count);
    residency_.states().PlaceDrafts(s, s.num_computed + 1, count);
    step.load = step.load.WithTokens(s.num_computed + 1, count, count);
    tenants_.Charge(*s.request->tenant, count);
    const double rate = HitRate(s);
    expected_tokens_ += rate * (1 - std::pow(rate, count)) / (1 - rate);
  }
  if (options_.drafter->reads_every_step()) ShrinkAsked(step);
  if (any) steps_without_drafts_ = drafts_.empty() ? steps_without_drafts_ + 1 : 0;
  overlaps_left_ = drafts_.empty() ? next_overlaps_ : 0;
  next_overlaps_ = drafts_.empty() ? std::min(2 * next_overlaps_, kMostOverlaps) : 1;
}

// Releases the blocks of what was asked for and has not been proposed.
void Speculation::ShrinkAsked(const PlannedStep& step) {
  size_t next = 0;
  for (const ScheduledTokens& t : step.scheduled) {
    if (next == asks_.size()) return;
    if (asks_[next].sequence != t.sequence) continue;
    ++next;
    residency_.Shrink(*t.sequence, t.begin + t.num_tokens + t.num_drafts);
  }
}

void Speculation::OnVerified(const ScheduledTokens& t) {
  Sequence& s = *t.sequence;
  const int hits = s.num_computed - t.begin - 1;
  CONTINUO_CHECK(hits >= 0 && hits <= t.num_drafts);
  const bool missed = hits < t.num_drafts && s.finish == FinishReason::kNone;
  s.draft_hits = kKeepVerified * s.draft_hits + static_cast<float>(hits);
  s.draft_tries = kKeepVerified * s.draft_tries + static_cast<float>(hits + (missed ? 1 : 0));
  metrics_.draft_tokens.fetch_add(t.num_drafts, std::memory_order_relaxed);
  metrics_.accepted_draft_tokens.fetch_add(hits, std::memory_order_relaxed);
  residency_.Publish(s, s.num_computed);
  residency_.Shrink(s, s.num_computed + 1);
}

void Speculation::OnCommitted(const PlannedStep& step) {
  if (options_.drafter == nullptr || !options_.drafter->reads_every_step()) return;
  computed_.clear();
  int row = 0;
  for (const ScheduledTokens& t : step.scheduled) {
    const Sequence& s = *t.sequence;
    if (s.state == SequenceState::kRunning) {
      // A block that was equal to another's has been given up for it, and the other writes there.
      const int size = options_.block_size, end = s.num_computed;
      int begin = t.begin;
      while (begin < end && residency_.pool().references(s.blocks[begin / size]) > 1) {
        begin = std::min(end, (begin / size + 1) * size);
      }
      if (begin < end) computed_.push_back({&s, row + begin - t.begin, begin, end});
    }
    row += t.num_tokens + t.num_drafts;
  }
  options_.drafter->OnCommitted(computed_);
}

}  // namespace continuo::engine
