// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/schedule/residency.h"

#include <algorithm>

#include "services/worker/engine/requests/preemption_order.h"

namespace continuo::engine {

Residency::Residency(const EngineOptions* options, RequestBook* book, EngineMetrics* metrics)
    : options_(*options),
      book_(*book),
      metrics_(*metrics),
      pool_(options->num_blocks, options->block_size, PrefixHash(options->hash_key)),
      states_(options->num_state_slots, options->num_blocks, options->block_size),
      admission_(options->num_blocks, options->block_size, options->expected_answer_tokens),
      block_tokens_(options->block_size) {}

int64_t Residency::pending_prompt_tokens() const {
  int64_t tokens = 0;
  for (const Sequence* s : running_) {
    const int remaining = NumRemaining(*s);
    if (remaining > 1) tokens += remaining;
  }
  return tokens;
}

int64_t Residency::unaccounted_blocks() const {
  int64_t held = 0;
  for (const Sequence* s : running_) held += static_cast<int64_t>(s->blocks.size());
  const int64_t lost = pool_.num_references() - held;
  return lost < 0 ? -lost : lost;
}

int64_t Residency::unaccounted_states() const {
  int64_t held = 0;
  for (const Sequence* s : running_) held += static_cast<int64_t>(s->states.size());
  const int64_t lost = states_.pool().num_references() - held;
  return lost < 0 ? -lost : lost;
}

bool Residency::IsBlocked(const Sequence& s) const {
  return num_running() >= max_running() || IsEnding(s) ||
         (blocked_ticket_ == s.queue_ticket && blocked_at_ == num_releases_ && !running_.empty());
}

// A sibling that was admitted in this very step does not count: it may itself wait for a copy.
const Sequence* Residency::FindDonor(const Sequence& s, const PlannedStep& step) const {
  if (states_.has_slots() &&
      (!states_.HasPrompt(*s.request) || NumTokens(s) <= s.request->prompt_tokens())) {
    return nullptr;
  }
  for (const Sequence& sibling : s.request->sequences) {
    if (sibling.state == SequenceState::kRunning && sibling.admitted_in != step.number &&
        sibling.num_computed >= s.request->prompt_tokens()) {
      return &sibling;
    }
  }
  return nullptr;
}

// References the blocks of the computed beginning of `s`. The last token is always computed: its
// logits are needed.
void Residency::AcquireKnown(Sequence& s, const Sequence* donor) {
  const LiveRequest& r = *s.request;
  if (!r.request.cache_bypass && !r.scores_prompt()) {
    pool_.AcquirePrefix(TokensOf(s), r.request.cache_salt, (NumTokens(s) - 1) / options_.block_size,
                        s.blocks);
    s.num_published = static_cast<int>(s.blocks.size());
  }
  if (donor == nullptr && states_.has_slots()) CutToSnapshot(s);
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

void Residency::CutToSnapshot(Sequence& s) {
  s.branch_at = static_cast<int>(s.blocks.size()) * options_.block_size;
  while (!s.blocks.empty() && !states_.CanBeginAt(s.blocks.back())) {
    pool_.Release(s.blocks.back());
    s.blocks.pop_back();
  }
  if (!s.blocks.empty()) states_.BeginAtBlock(s);
  s.num_published = s.num_shared = static_cast<int>(s.blocks.size());
  s.num_computed = s.num_shared * options_.block_size;
}

BlockId Residency::Allocate() {
  const BlockId block = pool_.Allocate();
  states_.OnAllocated(block);
  return block;
}

bool Residency::TryAdmit(Sequence& s, PlannedStep& step) {
  if (IsBlocked(s)) return false;
  LiveRequest& r = *s.request;
  const Sequence* donor = FindDonor(s, step);
  AcquireKnown(s, donor);
  if (!running_.empty() && !Fits(s)) {
    ReleaseBlocks(s);
    blocked_ticket_ = s.queue_ticket;
    blocked_at_ = num_releases_;
    return false;
  }
  const int known = std::min(r.prompt_tokens(), NumTokens(s) - 1);
  if (donor != nullptr && s.num_computed < known && pool_.num_free() > 0) {
    // The sibling keeps the block in which the prompt ends; `s` goes on in a copy.
    const BlockId copy = Allocate();
    step.plan.Copy(donor->blocks[s.blocks.size()], copy);
    s.blocks.push_back(copy);
    s.num_computed = known;
  }
  if (donor != nullptr && states_.has_slots()) {
    if (s.num_computed == r.prompt_tokens()) {
      states_.BeginAtPrompt(s);
    } else {
      CutToSnapshot(s);
    }
  }
  book_.Dequeue(s);
  if (book_.MarkAdmitted(r)) {
    r.cached_prompt_tokens = std::min(s.num_computed, r.prompt_tokens());
    if (!r.request.cache_bypass && !r.scores_prompt()) {
      metrics_.prefix_cache_queried_tokens.fetch_add(r.prompt_tokens(), std::memory_order_relaxed);
      metrics_.prefix_cache_hit_tokens.fetch_add(r.cached_prompt_tokens, std::memory_order_relaxed);
    }
  }
  s.admitted_in = step.number;
  JoinRunning(s);
  return true;
}

void Residency::JoinRunning(Sequence& s) {
  s.state = SequenceState::kRunning;
  // Reserve memory for an answer of the usual length, so that steps allocate nothing.
  const int have = static_cast<int>(s.answer.size());
  const int more =
      std::clamp(s.request->request.max_tokens - have, 0, options_.expected_answer_tokens);
  s.answer.reserve(have + more);
  s.blocks.reserve(BlocksFor(NumTokens(s) + more, options_.block_size));
  running_.insert(std::ranges::upper_bound(running_, &s, IsPreemptedAfter), &s);
  book_.OnRunning(s);
}

void Residency::LeaveRunning(Sequence& s) { running_.erase(std::ranges::find(running_, &s)); }

void Residency::ReleaseBlocks(Sequence& s) {
  // The last block goes first, so that the start of a prefix outlives its end.
  for (auto it = s.blocks.rbegin(); it != s.blocks.rend(); ++it) pool_.Release(*it);
  s.blocks.clear();
  states_.Release(s);
  s.num_computed = s.num_shared = s.num_published = 0;
  s.publishes = true;
  ++num_releases_;
}

void Residency::Preempt(Sequence& s, PlannedStep& step) {
  LeaveRunning(s);
  ReleaseBlocks(s);
  s.guaranteed = true;
  book_.Requeue(s);
  step.preempted.push_back(&s);
  LiveRequest& r = *s.request;
  r.last_step = step.number;
  ++r.num_preemptions;
  metrics_.preemptions.fetch_add(1, std::memory_order_relaxed);
}

void Residency::Remove(Sequence& s) {
  LeaveRunning(s);
  ReleaseBlocks(s);
}

bool Residency::Retire(Sequence& s, uint64_t last_step) {
  if (!s.answer.empty()) admission_.Record(static_cast<int>(s.answer.size()));
  LeaveRunning(s);
  const bool transferred = TransferBlocks(s, last_step);
  ReleaseBlocks(s);
  return transferred;
}

// Nothing is copied, and a prompt that the cache does not hold is not computed again.
bool Residency::TransferBlocks(Sequence& from, uint64_t last_step) {
  LiveRequest& r = *from.request;
  if (r.prefill_leader != nullptr) return false;
  for (Sequence& s : r.sequences) {
    const bool waits = s.state == SequenceState::kWaiting || s.state == SequenceState::kPending;
    // Only TryAdmit checks what was promised to guaranteed sequences.
    if (!waits || s.guaranteed || s.finish != FinishReason::kNone) continue;
    // Tokens of `s` in flight may be rolled back: it then samples from a row of its own.
    const int known = std::min({from.num_computed, r.prompt_tokens(), TokensOf(s).size() - 1});
    const int full = known / options_.block_size, rest = known % options_.block_size;
    // The last block may have been filled, and published, with the answer of `from`.
    const bool keeps_last = rest > 0 && pool_.references(from.blocks[full]) == 1 &&
                            !pool_.IsPublished(from.blocks[full]);
    const int kept = full + (keeps_last ? 1 : 0);
    const int computed = keeps_last ? known : full * options_.block_size;
    if (kept == 0 || (states_.has_slots() && !states_.BeginLike(s, from, computed))) return false;
    if (s.state == SequenceState::kWaiting) book_.Dequeue(s);
    s.blocks.assign(from.blocks.begin(), from.blocks.begin() + kept);
    from.blocks.erase(from.blocks.begin(), from.blocks.begin() + kept);
    s.num_computed = computed;
    s.num_shared = std::min(from.num_shared, full);
    s.num_published = std::min(from.num_published, full);
    s.publishes = from.publishes;
    s.admitted_in = last_step;
    JoinRunning(s);
    return true;
  }
  return false;
}

void Residency::Shrink(Sequence& s, int num_tokens) {
  const int need = BlocksFor(num_tokens, options_.block_size);
  while (static_cast<int>(s.blocks.size()) > need) {
    pool_.Release(s.blocks.back());
    s.blocks.pop_back();
    ++num_releases_;
  }
}

void Residency::ReserveNextTokens(PlannedStep& step) {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& s = *running_[i];
    if (!NeedsBlock(s)) continue;
    const bool decodes = NumRemaining(s) == 1;
    while (pool_.num_free() == 0) {
      Sequence& last = *running_.back();
      if (!decodes && !Outranks(s, last)) break;
      Preempt(last, step);
      if (&last == &s) return;
    }
    if (pool_.num_free() > 0) s.blocks.push_back(Allocate());
  }
}

bool Residency::CanReserveNextTokens() const {
  return std::ranges::count_if(running_, [this](const Sequence* s) { return NeedsBlock(*s); }) <=
         pool_.num_free();
}

void Residency::Publish(Sequence& s, int end) {
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
