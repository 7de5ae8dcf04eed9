// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"

namespace continuo {
namespace {

// A prompt gets at least this many rows where it gets any, if there is room in the step at all.
constexpr int kMinChunk = 16;

int Priority(const Sequence& s) { return s.request->request.priority; }

// Whether `a` keeps its blocks where `b` has to give up its own, whoever came first.
bool Outranks(const Sequence& a, const Sequence& b) {
  if (Priority(a) != Priority(b)) return Priority(a) > Priority(b);
  return a.guaranteed && !b.guaranteed;
}

bool RanksBefore(const Sequence* a, const Sequence* b) {
  if (Outranks(*a, *b)) return true;
  if (Outranks(*b, *a)) return false;
  if (a->request->order != b->request->order) return a->request->order < b->request->order;
  return a->index < b->index;
}

int64_t TokensToRead(const LiveRequest& r) {
  int64_t tokens = r.prompt_tokens();
  for (const Sequence& s : r.sequences) tokens += static_cast<int64_t>(s.answer.size());
  return tokens;
}

}  // namespace

Scheduler::Scheduler(const EngineOptions& options, EngineMetrics* metrics)
    : options_(options),
      metrics_(*metrics),
      pool_(options.num_blocks, options.block_size, options.hash_key),
      live_(metrics),
      plan_(options.block_size),
      block_tokens_(options.block_size) {
  CONTINUO_CHECK(options.max_batch_tokens >= 1 && options.max_prefill_chunk >= 1 &&
                 options.max_running >= 1);
  UpdateGauges();
}

// ---- Where requests stand.

void Scheduler::Add(Request request, RequestSink sink, absl::Duration submitted,
                    const Moment& now) {
  LiveRequest* r = live_.Add(std::move(request), std::move(sink), submitted);
  if (r == nullptr) return;
  num_unfinished_ += r->num_unfinished;
  waiting_tokens_ += TokensToRead(*r);
  if (r->num_unfinished == 0) {
    live_.Start(*r, now);
    EndRequest(*r, absl::OkStatus(), now);
    return;
  }
  // The first one reads the prompt, the others share it.
  for (Sequence& s : r->sequences) {
    if (s.state == SequenceState::kFinished) continue;
    r->reader = &s;
    Enqueue(s);
    break;
  }
  if (r->request.want_progress) {
    int ahead = 0;
    for (const Sequence* s : waiting_) {
      if (s->request == r) break;
      ++ahead;
    }
    live_.AddProgress(*r, {.queue_position = ahead, .prompt_tokens = r->prompt_tokens()});
  }
}

void Scheduler::End(RequestId id, absl::Status why, const Moment& now) {
  if (LiveRequest* r = live_.Find(id)) EndRequest(*r, std::move(why), now);
}

void Scheduler::EndAll(const absl::Status& why, const Moment& now) {
  while (LiveRequest* r = live_.Any()) EndRequest(*r, why, now);
}

void Scheduler::FinishSequence(RequestId id, int index, const Moment& now) {
  LiveRequest* r = live_.Find(id);
  if (r == nullptr || index < 0 || index >= static_cast<int>(r->sequences.size())) return;
  Sequence& s = r->sequences[index];
  if (s.state != SequenceState::kFinished) {
    FinishOne(s, now);
  } else if (!r->started) {
    s.finish = FinishReason::kNone;  // an end that a continuation brought is no longer told
  }
}

void Scheduler::Expire(const Moment& now) {
  while (LiveRequest* r = live_.NextDue(now.wall)) {
    if (r->request.deadline < r->request.time_limit) {
      EndRequest(*r, absl::DeadlineExceededError("the deadline has passed"), now);
      continue;
    }
    live_.Start(*r, now);
    for (Sequence& s : r->sequences) {
      if (s.state != SequenceState::kFinished) live_.AddFinish(s, FinishReason::kTimeLimit);
    }
    EndRequest(*r, absl::OkStatus(), now);
  }
}

void Scheduler::Enqueue(Sequence& s) {
  CONTINUO_CHECK(s.state != SequenceState::kWaiting && s.blocks.empty());
  s.state = SequenceState::kWaiting;
  waiting_rows_ += NumTokens(s);
  waiting_.Insert(&s);
}

void Scheduler::Dequeue(Sequence& s) {
  waiting_.Erase(&s);
  waiting_rows_ -= NumTokens(s);
}

// Of a request's sequences that lack the prompt only one computes it; the others wait for that.
void Scheduler::BecomeReader(Sequence& s) {
  LiveRequest& r = *s.request;
  CONTINUO_CHECK(r.reader == nullptr || r.reader == &s);
  r.reader = &s;
  for (Sequence& sibling : r.sequences) {
    if (&sibling == &s || sibling.state != SequenceState::kWaiting) continue;
    Dequeue(sibling);
    sibling.state = SequenceState::kPending;
  }
}

void Scheduler::PromptRead(LiveRequest& r) {
  r.reader = nullptr;
  for (Sequence& s : r.sequences) {
    if (s.state == SequenceState::kPending && s.finish == FinishReason::kNone) Enqueue(s);
  }
}

void Scheduler::FinishOne(Sequence& s, const Moment& now) {
  LiveRequest& r = *s.request;
  const SequenceState was = std::exchange(s.state, SequenceState::kFinished);
  --r.num_unfinished;
  --num_unfinished_;
  if (was == SequenceState::kWaiting) Dequeue(s);
  const bool was_reader = r.reader == &s;
  if (was_reader) r.reader = nullptr;
  bool handed_over = false;
  if (was == SequenceState::kRunning) {
    if (!s.answer.empty()) lengths_.Record(static_cast<int>(s.answer.size()));
    LeaveRunning(s);
    handed_over = HandOver(s);
    ReleaseBlocks(s);
  }
  if (r.num_unfinished == 0) {
    live_.Start(r, now);
    EndRequest(r, absl::OkStatus(), now);
  } else if (was_reader && !handed_over) {
    for (Sequence& sibling : r.sequences) {
      if (sibling.state != SequenceState::kPending) continue;
      r.reader = &sibling;
      Enqueue(sibling);
      break;
    }
  }
}

// A sequence that ends leaves the prompt it holds to a sibling that waits for it. Nothing is
// copied, and a prompt without a place in the cache is not computed again.
bool Scheduler::HandOver(Sequence& from) {
  LiveRequest& r = *from.request;
  if (r.reader != nullptr) return false;
  for (Sequence& s : r.sequences) {
    const bool waits = s.state == SequenceState::kWaiting || s.state == SequenceState::kPending;
    // What was promised to a guaranteed one is checked where it is admitted.
    if (!waits || s.guaranteed || s.finish != FinishReason::kNone) continue;
    const int known = std::min({from.num_computed, r.prompt_tokens(), NumTokens(s) - 1});
    const int full = known / options_.block_size, rest = known % options_.block_size;
    // The last block may have been filled and published with the other's answer.
    const bool keeps_last = rest > 0 && pool_.references(from.blocks[full]) == 1 &&
                            !pool_.IsPublished(from.blocks[full]);
    const int kept = full + (keeps_last ? 1 : 0);
    if (kept == 0) return false;
    if (s.state == SequenceState::kWaiting) Dequeue(s);
    s.blocks.assign(from.blocks.begin(), from.blocks.begin() + kept);
    from.blocks.erase(from.blocks.begin(), from.blocks.begin() + kept);
    s.num_computed = keeps_last ? known : full * options_.block_size;
    s.num_shared = std::min(from.num_shared, full);
    s.num_published = std::min(from.num_published, full);
    s.publishes = from.publishes;
    s.admitted_in = step_;
    JoinRunning(s);
    return true;
  }
  return false;
}

void Scheduler::EndRequest(LiveRequest& r, absl::Status why, const Moment& now) {
  for (Sequence& s : r.sequences) {
    if (s.state == SequenceState::kRunning) {
      LeaveRunning(s);
      ReleaseBlocks(s);
    } else if (s.state == SequenceState::kWaiting) {
      Dequeue(s);
    }
    if (s.state != SequenceState::kFinished) --num_unfinished_;
    s.state = SequenceState::kFinished;
  }
  if (!r.admitted) waiting_tokens_ -= TokensToRead(r);
  live_.End(r, std::move(why), now);
}

void Scheduler::CountAdmitted(LiveRequest& r) {
  if (r.admitted) return;
  waiting_tokens_ -= TokensToRead(r);
  r.admitted = true;
}

int64_t Scheduler::pending_prompt_tokens() const {
  int64_t rows = waiting_rows_;
  for (const Sequence* s : running_) {
    const int remaining = NumRemaining(*s);
    if (remaining > 1) rows += remaining;
  }
  return rows;
}

// ---- Who holds blocks.

void Scheduler::JoinRunning(Sequence& s) {
  s.state = SequenceState::kRunning;
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
  preempted_.push_back(&s);
  metrics_.preemptions.fetch_add(1, std::memory_order_relaxed);
}

// Whether `s` can be admitted beside the running sequences of at least `min_priority`, taking the
// others as gone. What it already references counts as its own.
bool Scheduler::Fits(const Sequence& s, int min_priority) {
  const int64_t size = options_.block_size;
  const auto footprint = [&](const Sequence& t, int64_t shared_blocks) {
    const Request& request = t.request->request;
    const int64_t remaining =
        lengths_.ExpectedRemaining(static_cast<int64_t>(t.answer.size()), request.max_tokens);
    const int64_t at_end = NumTokens(t) + std::max<int64_t>(remaining - 1, 0);
    return Footprint{(at_end + size - 1) / size * size - remaining - shared_blocks * size,
                     remaining};
  };
  footprints_.clear();
  int64_t own = 0, promised = 0, freed = 0;
  for (const Sequence* t : running_) {
    const auto held = static_cast<int64_t>(t->blocks.size());
    own += held - t->num_shared;
    if (Priority(*t) < min_priority) {
      freed += held - t->num_shared;
      continue;
    }
    footprints_.push_back(footprint(*t, t->num_shared));
    if (t->guaranteed) {
      promised += BlocksFor(MostTokens(t->request->request), options_.block_size) - held;
    }
    if (t->request->reader != t) continue;
    const int prompt_blocks = t->request->prompt_tokens() / options_.block_size;
    for (const Sequence& sibling : t->request->sequences) {
      if (sibling.state == SequenceState::kPending) {
        footprints_.push_back(footprint(sibling, prompt_blocks));
      }
    }
  }
  const auto found = static_cast<int64_t>(s.blocks.size());
  if (s.guaranteed) {
    const int64_t most = BlocksFor(MostTokens(s.request->request), options_.block_size);
    if (promised + most - found > pool_.num_free() + freed) return false;
  }
  footprints_.push_back(footprint(s, found));
  if (s.request->reader == &s) {
    const int prompt_blocks = s.request->prompt_tokens() / options_.block_size;
    for (const Sequence& sibling : s.request->sequences) {
      if (sibling.state == SequenceState::kPending) {
        footprints_.push_back(footprint(sibling, prompt_blocks));
      }
    }
  }
  const int64_t shared = std::max<int64_t>(0, (pool_.num_used() - own) * size);
  return PeakTokens(shared, footprints_) <= pool_.num_blocks() * size;
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

bool Scheduler::TryAdmit(Sequence& s) {
  if (num_running() >= options_.max_running) return false;
  if (blocked_ == &s && blocked_at_ == num_releases_ && !running_.empty()) return false;
  LiveRequest& r = *s.request;
  const Sequence* donor = FindDonor(s);
  AcquireKnown(s, donor);
  if (!running_.empty() && !Fits(s, std::numeric_limits<int>::min())) {
    ReleaseBlocks(s);
    blocked_ = &s;
    blocked_at_ = num_releases_;
    return false;
  }
  const int known = std::min(r.prompt_tokens(), NumTokens(s) - 1);
  if (donor != nullptr && s.num_computed < known && pool_.num_free() > 0) {
    // The sibling keeps the block that the prompt ends in; this one continues in a copy.
    const BlockId copy = pool_.Allocate();
    plan_.Copy(donor->blocks[s.blocks.size()], copy);
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
  Sequence& s = *waiting_.front();
  const int priority = Priority(s);
  if (Priority(*running_.back()) >= priority) return;
  const auto fits_now = [&] {
    return running_.empty() ||
           (num_running() < options_.max_running && Fits(s, std::numeric_limits<int>::min()));
  };
  const auto keeps =
      std::ranges::count_if(running_, [&](const Sequence* t) { return Priority(*t) >= priority; });
  if (keeps >= options_.max_running || (keeps > 0 && !Fits(s, priority))) return;
  while (!fits_now() && Priority(*running_.back()) < priority) Preempt(*running_.back());
}

// Every running sequence gets room for its next row. What generates may take it from those that
// rank behind; what still reads its prompt, only from those that it outranks.
void Scheduler::ReserveNextRows() {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& s = *running_[i];
    if (static_cast<int>(s.blocks.size()) * options_.block_size > s.num_computed) continue;
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

void Scheduler::PublishBlocks(Sequence& s) {
  if (s.request->request.cache_bypass || !s.publishes) return;
  const int size = options_.block_size;
  const TokenRange tokens = TokensOf(s);
  while ((s.num_published + 1) * size <= s.num_computed) {
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

// ---- What runs in the step.

// How many of the `wanted` rows from `begin` on the step can still take: at least one in an empty
// step, however much that costs.
int Scheduler::RowsThatFit(const Sequence& s, int begin, int wanted) const {
  const int64_t most = std::min<int64_t>(options_.max_batch_tokens, cost_.max_rows());
  wanted = static_cast<int>(std::min<int64_t>(wanted, most - load_.rows));
  const auto fits = [&](int rows) {
    return cost_.Predict(load_.WithRows(begin, rows, NumSamples(s, begin, rows))) <=
           options_.target_step;
  };
  if (wanted <= 0) return 0;
  if (fits(wanted)) return wanted;
  int low = load_.rows == 0 ? 1 : 0, high = wanted;  // `high` does not fit
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

bool Scheduler::Choose(Sequence& s, int limit) {
  const int free = pool_.num_free(), held = static_cast<int>(s.blocks.size());
  const int64_t room = static_cast<int64_t>(held + free) * options_.block_size - s.num_computed;
  int rows = static_cast<int>(
      std::min<int64_t>({NumRemaining(s), options_.max_prefill_chunk, limit, room}));
  rows = RowsThatFit(s, s.num_computed, rows);
  if (rows <= 0) return false;
  const int need = BlocksFor(s.num_computed + rows, options_.block_size);
  while (static_cast<int>(s.blocks.size()) < need) s.blocks.push_back(pool_.Allocate());
  load_ = load_.WithRows(s.num_computed, rows, NumSamples(s, s.num_computed, rows));
  chosen_.push_back({&s, rows});
  return true;
}

// Sequences that generate come first; where a step cannot hold them all, they take turns.
void Scheduler::ChooseDecodes() {
  decodes_.clear();
  for (Sequence* s : running_) {
    if (NumRemaining(*s) == 1 &&
        static_cast<int>(s->blocks.size()) * options_.block_size > s->num_computed) {
      decodes_.push_back(s);
    }
  }
  if (decodes_were_cut_) {
    std::ranges::sort(decodes_, [](const Sequence* a, const Sequence* b) {
      return a->last_step != b->last_step ? a->last_step < b->last_step : RanksBefore(a, b);
    });
  }
  decodes_were_cut_ = false;
  for (Sequence* s : decodes_) {
    if (Choose(*s, 1)) continue;
    decodes_were_cut_ = true;
    return;
  }
}

// Siblings whose prompt has just been read need one row each, like the one that read it.
void Scheduler::AdmitSiblings() {
  while (!waiting_.empty()) {
    Sequence& s = *waiting_.front();
    if (!s.request->admitted || s.guaranteed || FindDonor(s) == nullptr) return;
    if (NumTokens(s) > s.request->prompt_tokens() + 1) return;
    if (RowsThatFit(s, NumTokens(s) - 1, 1) == 0 || !TryAdmit(s)) return;
    Choose(s, 1);
  }
}

// What is left is for prompts, in order of rank, then for those that wait. While others are behind
// it, a prompt takes at most half of what is left, so that a short one is not held up by a long
// one.
void Scheduler::ChoosePrompts() {
  const size_t first = chosen_.size();
  const auto half = [&](const Sequence& s, bool others) {
    const int left = RowsThatFit(s, s.num_computed, options_.max_batch_tokens);
    return others ? std::max(kMinChunk, (left + 1) / 2) : left;
  };
  int behind = 0;
  for (const Sequence* s : running_) behind += NumRemaining(*s) > 1;
  for (size_t i = 0; i < running_.size() && behind > 0; ++i) {
    Sequence& s = *running_[i];
    if (NumRemaining(s) == 1) continue;
    --behind;
    Choose(s, half(s, behind > 0 || !waiting_.empty()));
  }
  while (!waiting_.empty()) {
    Sequence& s = *waiting_.front();
    const int least = std::min(kMinChunk, NumTokens(s));
    if (RowsThatFit(s, 0, least) < least && !chosen_.empty()) break;
    if (!TryAdmit(s)) break;
    Choose(s, half(s, !waiting_.empty()));
  }
  // What nobody behind has taken.
  for (size_t i = first; i < chosen_.size(); ++i) {
    auto& [s, rows] = chosen_[i];
    const int begin = s->num_computed + rows;
    const auto held = static_cast<int64_t>(s->blocks.size());
    const int64_t room = (held + pool_.num_free()) * options_.block_size - begin;
    const int more = RowsThatFit(
        *s, begin,
        static_cast<int>(
            std::min<int64_t>({NumTokens(*s) - begin, options_.max_prefill_chunk - rows, room})));
    if (more <= 0) continue;
    rows += more;
    const int need = BlocksFor(begin + more, options_.block_size);
    while (static_cast<int>(s->blocks.size()) < need) s->blocks.push_back(pool_.Allocate());
    load_ = load_.WithRows(begin, more, NumSamples(*s, begin, more));
  }
}

const StepPlan& Scheduler::Schedule(const Moment& now) {
  ++step_;
  plan_.Clear();
  chosen_.clear();
  preempted_.clear();
  load_ = {};
  PreemptForArrivals();
  for (;;) {
    ReserveNextRows();
    ChooseDecodes();
    AdmitSiblings();
    ChoosePrompts();
    if (!chosen_.empty() || running_.empty()) break;
    Preempt(*running_.back());  // prompts hold all blocks, and none can go on
  }
  CONTINUO_CHECK(!chosen_.empty() || idle());

  int max_blocks = 0;
  for (const auto& [s, rows] : chosen_) {
    max_blocks = std::max(max_blocks, BlocksFor(s->num_computed + rows, options_.block_size));
  }
  plan_.SetMaxBlocks(max_blocks);
  prompt_rows_ = 0;
  for (const auto& [s, rows] : chosen_) {
    live_.Start(*s->request, now);
    s->last_step = step_;
    if (NumRemaining(*s) > 1 || s->answer.empty()) prompt_rows_ += rows;
    plan_.Add(*s, rows);
  }
  predicted_ = cost_.Predict(load_);
  return plan_.plan();
}

absl::Status Scheduler::Commit(StepResult result, const Moment& now, absl::Duration measured) {
  const auto samples = plan_.samples();
  if (result.token_ids.size() != samples.size() || result.scores.size() != samples.size()) {
    return absl::InternalError(absl::StrCat("a step with ", samples.size(), " samples gave ",
                                            result.token_ids.size(), " tokens and ",
                                            result.scores.size(), " scores"));
  }
  for (const int32_t id : result.token_ids) {
    if (id < 0 || id >= options_.vocab_size) {
      return absl::InternalError(
          absl::StrCat("a step gave token ", id, ", the vocabulary has ", options_.vocab_size));
    }
  }
  cost_.Observe(load_, measured);
  metrics_.step_seconds.Observe(absl::ToDoubleSeconds(measured));
  metrics_.step_rows.Observe(static_cast<double>(load_.rows));

  for (const auto& [s, rows] : chosen_) {
    s->num_computed += rows;
    PublishBlocks(*s);
  }
  finished_.clear();
  drawn_tokens_ = 0;
  for (size_t k = 0; k < samples.size(); ++k) {
    Sequence& s = *samples[k].sequence;
    if (samples[k].scores_prompt) {
      live_.AddScore(*s.request, std::move(result.scores[k]));
      ++s.request->num_scored;
      continue;
    }
    ++drawn_tokens_;
    s.answer.push_back(result.token_ids[k]);
    if (s.seen_is_built) AddSeen(s, result.token_ids[k]);
    live_.AddToken(s, result.token_ids[k], std::move(result.scores[k]), now);
    s.finish = WhyFinished(s.request->request, s.answer);
    if (s.finish == FinishReason::kNone) continue;
    live_.AddFinish(s, s.finish);
    finished_.push_back(&s);
  }
  metrics_.generated_tokens.fetch_add(drawn_tokens_, std::memory_order_relaxed);
  for (const auto& [s, rows] : chosen_) {
    LiveRequest& r = *s->request;
    if (r.reader != s) continue;
    if (r.request.want_progress && !r.has_token) {
      live_.AddProgress(r, {.prompt_tokens = r.prompt_tokens(),
                            .prompt_tokens_done = std::min(s->num_computed, r.prompt_tokens()),
                            .cached_prompt_tokens = r.cached_prompt_tokens});
    }
    if (s->num_computed < r.prompt_tokens()) continue;
    if (!std::exchange(r.prompt_counted, true)) {
      metrics_.prompt_tokens.fetch_add(r.prompt_tokens(), std::memory_order_relaxed);
    }
    if (r.request.max_tokens == 0) {
      for (Sequence& sibling : r.sequences) {
        if (sibling.state == SequenceState::kFinished) continue;
        sibling.finish = FinishReason::kLength;
        live_.AddFinish(sibling, sibling.finish);
        finished_.push_back(&sibling);
      }
    }
    PromptRead(r);
  }
  for (Sequence* s : finished_) FinishOne(*s, now);
  return absl::OkStatus();
}

void Scheduler::Deliver() {
  UpdateGauges();
  live_.Deliver();
}

void Scheduler::UpdateGauges() {
  constexpr auto relaxed = std::memory_order_relaxed;
  metrics_.running_requests.store(num_running(), relaxed);
  metrics_.waiting_requests.store(num_waiting(), relaxed);
  metrics_.waiting_prompt_tokens.store(waiting_tokens_, relaxed);
  metrics_.kv_blocks_used.store(pool_.num_used(), relaxed);
  metrics_.kv_blocks_cached.store(pool_.num_cached(), relaxed);
  metrics_.kv_blocks_total.store(pool_.num_blocks(), relaxed);
  metrics_.kv_blocks_unaccounted.store(unaccounted_blocks(), relaxed);
}

}  // namespace continuo
