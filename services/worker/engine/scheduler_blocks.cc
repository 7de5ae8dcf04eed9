// SPDX-License-Identifier: Apache-2.0
// Who holds blocks: admission, sharing, preemption, publishing.
#include <algorithm>

#include "services/worker/engine/rank.h"
#include "services/worker/engine/scheduler.h"

namespace continuo::engine {

void Scheduler::JoinRunning(Sequence& s) {
  s.state = SequenceState::kRunning;
  // Room for an answer of the usual length, so that steps allocate nothing.
  const int have = static_cast<int>(s.answer.size());
  const int more =
      std::clamp(s.request->request.max_tokens - have, 0, options_.expected_answer_tokens);
  s.answer.reserve(have + more);
  s.blocks.reserve(BlocksFor(NumTokens(s) + more, options_.block_size));
  running_.insert(std::ranges::upper_bound(running_, &s, RanksBefore), &s);
  if (s.num_computed < s.request->prompt_tokens()) {
    BecomeReader(s);
  } else if (s.request->reader == &s) {
    PromptRead(*s.request);
  }
}

void Scheduler::LeaveRunning(Sequence& s) { running_.erase(std::ranges::find(running_, &s)); }

void Scheduler::ReleaseBlocks(Sequence& s) {
  // Last block first, so that the start of a prefix outlives its end.
  for (auto it = s.blocks.rbegin(); it != s.blocks.rend(); ++it) pool_.Release(*it);
  s.blocks.clear();
  s.num_computed = s.num_shared = s.num_published = 0;
  s.publishes = true;
  ++num_releases_;
}

void Scheduler::Preempt(Sequence& s) {
  LeaveRunning(s);
  ReleaseBlocks(s);
  s.guaranteed = true;
  LiveRequest& r = *s.request;
  if (r.reader == nullptr || r.reader == &s) {
    Enqueue(s);
  } else {
    s.state = SequenceState::kPending;
  }
  next_->preempted.push_back(&s);
  r.last_step = step_;
  ++r.num_preemptions;
  metrics_.preemptions.fetch_add(1, std::memory_order_relaxed);
}

// A running sibling whose computed prompt `s` can share. One admitted in this step may itself wait
// for a copy.
const Sequence* Scheduler::FindDonor(const Sequence& s) const {
  for (const Sequence& sibling : s.request->sequences) {
    if (sibling.state == SequenceState::kRunning && sibling.admitted_in != step_ &&
        sibling.num_computed >= s.request->prompt_tokens()) {
      return &sibling;
    }
  }
  return nullptr;
}

// References what is already computed of the beginning of `s`; its last token never is: its logits
// are what we come for.
void Scheduler::AcquireKnown(Sequence& s, const Sequence* donor) {
  const LiveRequest& r = *s.request;
  if (!r.request.cache_bypass && !r.scores_prompt()) {
    pool_.AcquirePrefix(TokensOf(s), r.request.cache_salt, (NumTokens(s) - 1) / options_.block_size,
                        s.blocks);
    s.num_published = static_cast<int>(s.blocks.size());
  }
  if (donor != nullptr) {
    const int full = std::min(r.prompt_tokens(), NumTokens(s) - 1) / options_.block_size;
    for (int b = static_cast<int>(s.blocks.size()); b < full; ++b) {
      pool_.AddReference(donor->blocks[b]);
      s.blocks.push_back(donor->blocks[b]);
      if (b < donor->num_published) ++s.num_published;
    }
    s.publishes = donor->publishes;
  }
  s.num_shared = static_cast<int>(s.blocks.size());
  s.num_computed = s.num_shared * options_.block_size;
}

// Known not to find a place or memory until a running one gives some back.
bool Scheduler::IsBlocked(const Sequence& s) const {
  return num_running() >= options_.max_running || IsEnding(s) ||
         (blocked_ == &s && blocked_at_ == num_releases_ && !running_.empty());
}

bool Scheduler::TryAdmit(Sequence& s) {
  if (IsBlocked(s)) return false;
  LiveRequest& r = *s.request;
  const Sequence* donor = FindDonor(s);
  AcquireKnown(s, donor);
  if (!running_.empty() && !Fits(s)) {
    ReleaseBlocks(s);
    blocked_ = &s;
    blocked_at_ = num_releases_;
    return false;
  }
  const int known = std::min(r.prompt_tokens(), NumTokens(s) - 1);
  if (donor != nullptr && s.num_computed < known && pool_.num_free() > 0) {
    // The sibling keeps the block that the prompt ends in; this one continues in a copy.
    const BlockId copy = pool_.Allocate();
    next_->plan.Copy(donor->blocks[s.blocks.size()], copy);
    s.blocks.push_back(copy);
    s.num_computed = known;
  }
  Dequeue(s);
  if (!r.admitted) {
    CountAdmitted(r);
    r.cached_prompt_tokens = std::min(s.num_computed, r.prompt_tokens());
    if (!r.request.cache_bypass && !r.scores_prompt()) {
      metrics_.prefix_cache_queried_tokens.fetch_add(r.prompt_tokens(), std::memory_order_relaxed);
      metrics_.prefix_cache_hit_tokens.fetch_add(r.cached_prompt_tokens, std::memory_order_relaxed);
    }
  }
  s.admitted_in = step_;
  JoinRunning(s);
  return true;
}

// A waiting sequence of higher priority than running ones takes their place, where that helps.
void Scheduler::PreemptForArrivals() {
  if (waiting_.empty() || running_.empty()) return;
  const Sequence& s = *waiting_.front();
  if (Priority(*running_.back()) >= Priority(s)) return;
  for (Sequence* t : running_) t->may_yield = Priority(*t) < Priority(s);
  TakePlace(s);
}

// So does one whose tenant is owed much: it takes the places of the youngest of tenants that hold
// more than an equal share of the blocks or of the places. Each gives way once at most.
void Scheduler::PreemptForTenants() {
  if (waiting_.empty() || running_.empty() || tenants_.num_live() < 2) return;
  const Sequence& s = *waiting_.front();
  if (s.guaranteed || (unhelped_ == &s && unhelped_at_ == num_releases_)) return;
  if (!MarkYielding(s) || TakePlace(s)) return;
  unhelped_ = &s;
  unhelped_at_ = num_releases_;
}

// Whether the head of the queue may take another's place: more often than it does.
bool Scheduler::MayPreempt() {
  if (waiting_.empty() || running_.empty()) return false;
  const Sequence& s = *waiting_.front();
  if (Priority(*running_.back()) < Priority(s)) return true;
  if (tenants_.num_live() < 2 || s.guaranteed) return false;
  if (unhelped_ == &s && unhelped_at_ == num_releases_) return false;
  return std::ranges::any_of(running_, [&](const Sequence* t) {
    return tenants_.IsOwed(*s.request->tenant, *t->request->tenant);
  });
}

// Whether any running sequence may yield to `s`.
bool Scheduler::MarkYielding(const Sequence& s) {
  for (Sequence* t : running_) t->request->tenant->held = t->request->tenant->num_running = 0;
  for (Sequence* t : running_) {
    t->request->tenant->held += static_cast<int64_t>(t->blocks.size());
    ++t->request->tenant->num_running;
  }
  const int num_tenants = tenants_.num_live();
  bool any = false;
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    Sequence& t = **it;
    Tenant& tenant = *t.request->tenant;
    t.may_yield = !t.guaranteed && Priority(t) <= Priority(s) &&
                  tenants_.IsOwed(*s.request->tenant, tenant) &&
                  (tenant.held * num_tenants > pool_.num_blocks() ||
                   int64_t{tenant.num_running} * num_tenants > options_.max_running);
    if (!t.may_yield) continue;
    tenant.held -= static_cast<int64_t>(t.blocks.size());
    --tenant.num_running;
    any = true;
  }
  return any;
}

// Preempts those that may yield, the last in rank first, until `s` fits; none if it would not fit
// without all of them. Whether it fits.
bool Scheduler::TakePlace(const Sequence& s) {
  const auto fits_now = [&] {
    return running_.empty() || (num_running() < options_.max_running && Fits(s));
  };
  const auto stays = [](const Sequence& t) { return !t.may_yield; };
  const auto num_staying =
      std::ranges::count_if(running_, [&](const Sequence* t) { return stays(*t); });
  if (num_staying >= options_.max_running || (num_staying > 0 && !FitsBeside(s, stays))) {
    return false;
  }
  while (!fits_now()) {
    const auto last = std::ranges::find_if(running_.rbegin(), running_.rend(),
                                           [](const Sequence* t) { return t->may_yield; });
    if (last == running_.rend()) return false;
    Preempt(**last);
  }
  return true;
}

// For its next row.
bool Scheduler::NeedsBlock(const Sequence& s) const {
  return !IsEnding(s) && static_cast<int>(s.blocks.size()) * options_.block_size <= s.num_computed;
}

// Every running sequence gets room for its next row. What generates may take it from those that
// rank behind; what still reads its prompt, only from those that it outranks.
void Scheduler::ReserveNextRows() {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& s = *running_[i];
    if (!NeedsBlock(s)) continue;
    const bool generates = NumRemaining(s) == 1;
    while (pool_.num_free() == 0) {
      Sequence& last = *running_.back();
      if (!generates && !Outranks(s, last)) break;
      Preempt(last);
      if (&last == &s) return;
    }
    if (pool_.num_free() > 0) s.blocks.push_back(pool_.Allocate());
  }
}

// Those of the first `end` tokens, all known, as far as these are still computed.
void Scheduler::PublishBlocks(Sequence& s, int end) {
  if (s.request->request.cache_bypass || !s.publishes) return;
  const int size = options_.block_size;
  const TokenRange tokens = TokensOf(s);
  end = std::min(end, s.num_computed);
  while ((s.num_published + 1) * size <= end) {
    const int b = s.num_published;
    for (int i = 0; i < size; ++i) block_tokens_[i] = tokens[b * size + i];
    s.blocks[b] = pool_.Publish(s.blocks[b], b == 0 ? kNoBlock : s.blocks[b - 1], block_tokens_,
                                s.request->request.cache_salt);
    if (!pool_.IsPublished(s.blocks[b])) {
      s.publishes = false;
      return;
    }
    ++s.num_published;
  }
}

}  // namespace continuo::engine
