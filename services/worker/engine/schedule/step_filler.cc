// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/schedule/step_filler.h"

#include <algorithm>

#include "services/worker/engine/requests/preemption_order.h"

namespace continuo::engine {
namespace {

// A prompt gets at least this many tokens if it gets any, provided the step has room at all.
constexpr int kMinChunk = 16;

// While a prompt is prefilled that others yield to, they get 1 / kYieldedShare of target_step.
constexpr int kYieldedShare = 8;

// Prefill is to be done within kPrefillWithin * target_step, if steps of target_step can do that.
// Steps are shorter if that is soon enough, but at least kPauseFactor times the decodes alone and
// target_step / kShortShare, a pause that nobody notices.
constexpr double kPrefillWithin = 2, kPauseFactor = 1.5;
constexpr int kShortShare = 4;

}  // namespace

void StepFiller::Fill(PlannedStep& step, bool is_overlapped) {
  step_ = &step;
  for (;;) {
    limit_ = prompt_limit_ = options_.target_step;
    residency_.ReserveNextTokens(step);
    ScheduleDecodes();
    AdmitSiblings();
    SchedulePrompts();
    if (!step.scheduled.empty() || residency_.running().empty() || is_overlapped) return;
    residency_.Preempt(*residency_.running().back(), step);
  }
}

// Returns how many of the `wanted` tokens of `s` from `begin` on the step can still take: at least
// one if it is empty, whatever that costs. A text of an encoder fits as a whole or not at all.
int StepFiller::TokensThatFit(const Sequence& s, int begin, int wanted) const {
  const int64_t room = step_->max_tokens - step_->load.tokens;
  const bool is_empty = step_->load.tokens == 0;
  const auto fits = [&](int count) {
    return cost_.Predict(step_->load.WithTokens(begin, count, NumSamples(s, begin, count))) <=
           limit_;
  };
  if (options_.whole_prompts) return is_empty || (wanted <= room && fits(wanted)) ? wanted : 0;
  wanted = static_cast<int>(std::min<int64_t>(wanted, room));
  if (wanted <= 0) return 0;
  if (fits(wanted)) return wanted;
  int low = is_empty ? 1 : 0, high = wanted;  // `high` does not fit
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

// Schedules the next tokens of `s`, at most `limit`. Returns whether any were scheduled.
bool StepFiller::Schedule(Sequence& s, int limit) {
  const int64_t room = residency_.RoomAfter(s, s.num_computed);
  const int most = options_.whole_prompts ? NumRemaining(s) : options_.max_prefill_chunk;
  if (options_.whole_prompts && most > room) return false;
  int count = static_cast<int>(std::min<int64_t>({NumRemaining(s), most, limit, room}));
  count = TokensThatFit(s, s.num_computed, count);
  if (count <= 0) return false;
  residency_.Grow(s, s.num_computed + count);
  step_->load = step_->load.WithTokens(s.num_computed, count, NumSamples(s, s.num_computed, count));
  Take(s, count);
  return true;
}

void StepFiller::Take(Sequence& s, int num_tokens) {
  step_->scheduled.push_back({.sequence = &s, .num_tokens = num_tokens, .begin = s.num_computed});
  book_.tenants().Charge(*s.request->tenant, num_tokens);
}

// Returns the tenant whose prompt will be prefilled next, or null.
const Tenant* StepFiller::TenantWithPrompt() const {
  const Tenant* next = nullptr;
  if (!book_.waiting().empty() && !residency_.IsBlocked(*book_.waiting().front())) {
    next = book_.waiting().front()->request->tenant;
  }
  for (const Sequence* s : residency_.running()) {
    const Tenant* tenant = s->request->tenant;
    if (NumRemaining(*s) > 1 &&
        (next == nullptr || tenant->virtual_tokens < next->virtual_tokens)) {
      next = tenant;
    }
  }
  return next;
}

// Returns whether `s` yields to the prompt that is prefilled first.
bool StepFiller::Yields(const Sequence& s) const {
  return step_->prefill_tenant != nullptr &&
         book_.tenants().HasDeficit(*step_->prefill_tenant, *s.request->tenant);
}

// Sequences that yield leave most of the step to the prompt: what they add would delay its first
// token. prompt_limit_ is `target_step` until prompts are scheduled.
void StepFiller::SetLimitFor(const Sequence& s) {
  limit_ = Yields(s) ? options_.target_step / kYieldedShare : prompt_limit_;
}

// Prefill in a mixed step delays decoding. If decoding alone takes D and the pending prefill alone
// takes R, steps of length L finish the prefill after R·L / (L − D). The limit is the least L that
// finishes in time, but no less than the pause that nobody notices. `prompts` is the load of all
// running prompts without their cached beginnings, so that a prompt that began in long steps goes
// on in them. How much of the queued prompts is cached is not known.
absl::Duration StepFiller::PromptLimit(const StepLoad& decodes, const StepLoad& prompts) const {
  const absl::Duration most = options_.target_step;
  if (decodes.tokens == 0 || decodes_yield_) return most;
  const StepLoad all = {decodes.tokens + prompts.tokens, decodes.attention + prompts.attention,
                        decodes.samples};
  const absl::Duration decoding = cost_.Predict(decodes);
  const absl::Duration prefill =
      cost_.Predict(all.WithTokens(0, book_.waiting_tokens(), 0)) - decoding;
  const double left = 1 - absl::FDivDuration(prefill, kPrefillWithin * most);
  if (left <= 0) return most;
  return std::min(most, std::max({decoding / left, kPauseFactor * decoding, most / kShortShare}));
}

// If a step cannot hold all decodes, they take turns.
void StepFiller::ScheduleDecodes() {
  step_->prefill_tenant = book_.tenants().num_live() > 1 ? TenantWithPrompt() : nullptr;
  decodes_.clear();
  StepLoad all = step_->load;
  bool any_yields = false;
  for (Sequence* s : residency_.running()) {
    if (NumRemaining(*s) == 1 && !IsEnding(*s) && residency_.HasBlockForNextToken(*s)) {
      decodes_.push_back(s);
      all = all.WithTokens(s->num_computed, 1, NumSamples(*s, s->num_computed, 1));
      any_yields |= Yields(*s);
    }
  }
  decodes_yield_ = any_yields;
  const absl::Duration least = options_.target_step / kYieldedShare;
  if (all.tokens <= step_->max_tokens &&
      cost_.Predict(all) <= (any_yields ? least : options_.target_step)) {
    for (Sequence* s : decodes_) Take(*s, 1);
    step_->load = all;
    decodes_were_cut_ = false;
    return;
  }
  if (decodes_were_cut_) {
    std::ranges::sort(decodes_, {}, &Sequence::last_turn);
  }
  decodes_were_cut_ = false;
  if (any_yields) {
    std::ranges::stable_partition(decodes_, [&](const Sequence* s) { return !Yields(*s); });
  }
  for (Sequence* s : decodes_) {
    SetLimitFor(*s);
    if (Schedule(*s, 1)) continue;
    decodes_were_cut_ = true;
    break;
  }
  limit_ = options_.target_step;
}

// Siblings of a prefilled prompt need one token each, like the leader.
void StepFiller::AdmitSiblings() {
  while (!book_.waiting().empty()) {
    Sequence& s = *book_.waiting().front();
    if (!s.request->admitted || s.guaranteed || residency_.FindDonor(s, *step_) == nullptr) return;
    if (NumTokens(s) > s.request->prompt_tokens() + 1) return;
    if (TokensThatFit(s, NumTokens(s) - 1, 1) == 0 || !residency_.TryAdmit(s, *step_)) return;
    Schedule(s, 1);
  }
}

// Returns whether `waiting` is prefilled before `running` goes on with its prompt.
bool StepFiller::Precedes(const Sequence& waiting, const Sequence& running) const {
  return Priority(waiting) >= Priority(running) &&
         book_.tenants().HasDeficit(*waiting.request->tenant, *running.request->tenant);
}

// While another prompt is behind it, a prompt takes at most half of what is left, so that a short
// one is not held up by a long one; unless it precedes the one behind.
int StepFiller::ShareFor(const Sequence& s, const Sequence* behind) const {
  if (options_.whole_prompts) return NumRemaining(s);
  const int left = TokensThatFit(s, s.num_computed, options_.max_batch_tokens);
  const bool halves = behind != nullptr && !Precedes(s, *behind);
  return halves ? std::max(kMinChunk, (left + 1) / 2) : left;
}

// Running prompts come by priority, then by the virtual tokens of their tenant, then in preemption
// order. The queue follows, unless its head precedes a running prompt.
void StepFiller::SchedulePrompts() {
  const size_t first = step_->scheduled.size();
  const StepLoad decodes = step_->load;
  StepLoad pending;
  const auto count_pending = [&](const Sequence& s) {
    const int64_t cached = int64_t{s.num_shared} * options_.block_size;
    pending = pending.WithTokens(cached, NumTokens(s) - cached, 0);
  };
  prompts_.clear();
  for (Sequence* s : residency_.running()) {
    if (NumRemaining(*s) <= 1) continue;
    prompts_.push_back(s);
    count_pending(*s);
  }
  prompt_limit_ = PromptLimit(decodes, pending);
  if (book_.tenants().num_live() > 1) {
    std::ranges::stable_sort(prompts_, [](const Sequence* a, const Sequence* b) {
      if (Priority(*a) != Priority(*b)) return Priority(*a) > Priority(*b);
      return a->request->tenant->virtual_tokens < b->request->tenant->virtual_tokens;
    });
  }
  size_t next = 0;
  bool admits = true;
  for (;;) {
    Sequence* running = next < prompts_.size() ? prompts_[next] : nullptr;
    Sequence* waiting = admits && !book_.waiting().empty() ? book_.waiting().front() : nullptr;
    if (running != nullptr && (waiting == nullptr || !Precedes(*waiting, *running))) {
      ++next;
      SetLimitFor(*running);
      Sequence* behind = next < prompts_.size() ? prompts_[next] : waiting;
      Schedule(*running, ShareFor(*running, behind));
      continue;
    }
    if (waiting == nullptr) break;
    SetLimitFor(*waiting);
    const int least =
        options_.whole_prompts ? NumTokens(*waiting) : std::min(kMinChunk, NumTokens(*waiting));
    const int left = TokensThatFit(*waiting, 0, least);
    // Less than a chunk is worth it only beside decodes alone.
    admits = left > 0 && (left == least || step_->scheduled.size() == first) &&
             residency_.TryAdmit(*waiting, *step_);
    if (!admits) continue;
    count_pending(*waiting);
    prompt_limit_ = PromptLimit(decodes, pending);
    SetLimitFor(*waiting);
    const Sequence* behind = running;
    if (behind == nullptr && !book_.waiting().empty()) behind = book_.waiting().front();
    Schedule(*waiting, ShareFor(*waiting, behind));
  }
  WidenPrompts(first);
}

// Gives the tokens that nobody behind has taken to the first prompts that can use them.
void StepFiller::WidenPrompts(size_t first) {
  for (size_t i = first; i < step_->scheduled.size(); ++i) {
    Sequence& s = *step_->scheduled[i].sequence;
    int& count = step_->scheduled[i].num_tokens;
    SetLimitFor(s);
    const int begin = s.num_computed + count;
    const int more = TokensThatFit(s, begin,
                                   static_cast<int>(std::min<int64_t>(
                                       {NumTokens(s) - begin, options_.max_prefill_chunk - count,
                                        residency_.RoomAfter(s, begin)})));
    if (more <= 0) continue;
    count += more;
    book_.tenants().Charge(*s.request->tenant, more);
    residency_.Grow(s, begin + more);
    step_->load = step_->load.WithTokens(begin, more, NumSamples(s, begin, more));
  }
}

}  // namespace continuo::engine
