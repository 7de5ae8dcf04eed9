// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"
#include "services/worker/engine/rank.h"

namespace continuo::engine {
namespace {

// A prompt gets at least this many rows where it gets any, if there is room in the step at all.
constexpr int kMinChunk = 16;

// Of a step in which the prompt of a tenant is read: what is left to tenants that owe it.
constexpr int kLeastPart = 8;

// Prompts are read within so many times `target_step` where steps that long can do it; shorter ones
// do where that is soon enough, but no step is held to less than so many times its decoding, nor to
// less than this part of `target_step`, which nobody notices.
constexpr double kReadWithin = 2, kPauseFactor = 1.5;
constexpr int kShortPart = 4;

// How many rows an absent tenant saves up, and how far apart tenants have to be for one to push
// another aside, both of the most that a step may have.
constexpr double kBurst = 4, kSlack = 0.125;

}  // namespace

Scheduler::Scheduler(const EngineOptions& options, EngineMetrics* metrics)
    : options_(options),
      metrics_(*metrics),
      pool_(options.num_blocks, options.block_size, PrefixHash(options.hash_key)),
      live_(metrics),
      admission_(options.num_blocks, options.block_size, options.expected_answer_tokens),
      tenants_(static_cast<int64_t>(kBurst * options.max_batch_tokens),
               static_cast<int64_t>(kSlack * options.max_batch_tokens)),
      steps_{PlannedStep{.plan = {options.block_size, options.max_batch_tokens}},
             PlannedStep{.plan = {options.block_size, options.max_batch_tokens}}},
      next_(&steps_[0]),
      block_tokens_(options.block_size) {
  CONTINUO_CHECK(options.max_batch_tokens >= 1 && options.max_prefill_chunk >= 1 &&
                 options.max_running >= 1);
  UpdateGauges();
}

int64_t Scheduler::MostRows() const {
  return std::min<int64_t>(options_.max_batch_tokens, cost_.max_rows());
}

// How many of the `wanted` rows from `begin` on the step can still take: at least one in an empty
// step, however much that costs.
int Scheduler::RowsThatFit(const Sequence& s, int begin, int wanted) const {
  wanted = static_cast<int>(std::min<int64_t>(wanted, MostRows() - next_->load.rows));
  const auto fits = [&](int rows) {
    return cost_.Predict(next_->load.WithRows(begin, rows, NumSamples(s, begin, rows))) <= limit_;
  };
  if (wanted <= 0) return 0;
  if (fits(wanted)) return wanted;
  int low = next_->load.rows == 0 ? 1 : 0, high = wanted;  // `high` does not fit
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
  next_->load = next_->load.WithRows(s.num_computed, rows, NumSamples(s, s.num_computed, rows));
  TakeRows(s, rows);
  return true;
}

void Scheduler::TakeRows(Sequence& s, int rows) {
  next_->chosen.push_back({.sequence = &s, .rows = rows, .begin = s.num_computed});
  tenants_.Charge(*s.request->tenant, rows);
}

// Whose prompt will be read next; null: nobody's.
const Tenant* Scheduler::TenantWithPrompt() {
  const Tenant* next = nullptr;
  if (!waiting_.empty() && !IsBlocked(*waiting_.front())) next = waiting_.front()->request->tenant;
  for (const Sequence* s : running_) {
    const Tenant* tenant = s->request->tenant;
    if (NumRemaining(*s) > 1 && (next == nullptr || tenant->served < next->served)) next = tenant;
  }
  return next;
}

bool Scheduler::Owes(const Sequence& s) const {
  return reading_ != nullptr && tenants_.IsOwed(*reading_, *s.request->tenant);
}

// While the prompt of a tenant that is owed much is read, those that owe it leave most of the step
// to it: what they add would delay its first token. prompt_limit_ is `target_step` until prompts
// are chosen.
void Scheduler::SetLimitFor(const Sequence& s) {
  limit_ = Owes(s) ? options_.target_step / kLeastPart : prompt_limit_;
}

// What decodes waits for the prompts beside it. With D of decoding in steps of L, what takes R by
// itself is read after R · L / (L - D): L is the least that reads all there is in time, and no less
// than what hardly anybody notices. `prompts`: all that caches leave of prompts under way, so that
// what was begun in long steps goes on in them. Of those that wait nobody knows what is cached.
absl::Duration Scheduler::PromptLimit(const StepLoad& decodes, const StepLoad& prompts) const {
  const absl::Duration most = options_.target_step;
  if (decodes.rows == 0 || reader_is_owed_) return most;
  const StepLoad all = {decodes.rows + prompts.rows, decodes.attention + prompts.attention,
                        decodes.samples};
  const absl::Duration decoding = cost_.Predict(decodes);
  const absl::Duration reading = cost_.Predict(all.WithRows(0, waiting_tokens_, 0)) - decoding;
  const double left = 1 - absl::FDivDuration(reading, kReadWithin * most);
  if (left <= 0) return most;
  return std::min(most, std::max({decoding / left, kPauseFactor * decoding, most / kShortPart}));
}

// Sequences that generate come first; where a step cannot hold them all, they take turns.
void Scheduler::ChooseDecodes() {
  reading_ = tenants_.num_live() > 1 ? TenantWithPrompt() : nullptr;
  decodes_.clear();
  StepLoad all = next_->load;
  bool any_owes = false;
  for (Sequence* s : running_) {
    if (NumRemaining(*s) == 1 && !IsEnding(*s) &&
        static_cast<int>(s->blocks.size()) * options_.block_size > s->num_computed) {
      decodes_.push_back(s);
      all = all.WithRows(s->num_computed, 1, NumSamples(*s, s->num_computed, 1));
      any_owes |= Owes(*s);
    }
  }
  reader_is_owed_ = any_owes;
  const absl::Duration least = options_.target_step / kLeastPart;
  if (all.rows <= MostRows() && cost_.Predict(all) <= (any_owes ? least : options_.target_step)) {
    for (Sequence* s : decodes_) TakeRows(*s, 1);
    next_->load = all;
    decodes_were_cut_ = false;
    return;
  }
  if (decodes_were_cut_) {
    std::ranges::sort(decodes_, {}, &Sequence::last_turn);
  }
  decodes_were_cut_ = false;
  if (any_owes) {
    std::ranges::stable_partition(decodes_, [&](const Sequence* s) { return !Owes(*s); });
  }
  for (Sequence* s : decodes_) {
    SetLimitFor(*s);
    if (Choose(*s, 1)) continue;
    decodes_were_cut_ = true;
    break;
  }
  limit_ = options_.target_step;
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

// Whether `waiting` reads before `running` goes on with its prompt.
bool Scheduler::Precedes(const Sequence& waiting, const Sequence& running) const {
  return Priority(waiting) >= Priority(running) &&
         tenants_.IsOwed(*waiting.request->tenant, *running.request->tenant);
}

// While another is behind it, a prompt takes at most half of what is left, so that a short one is
// not held up by a long one; unless its tenant is owed much by the one behind.
int Scheduler::ShareFor(const Sequence& s, const Sequence* behind) const {
  const int left = RowsThatFit(s, s.num_computed, options_.max_batch_tokens);
  const bool halves = behind != nullptr && !Precedes(s, *behind);
  return halves ? std::max(kMinChunk, (left + 1) / 2) : left;
}

// What is left is for prompts: of higher priority, then of the tenant that was served least, then
// in order of rank; after them for those that wait, unless their tenant is owed much.
void Scheduler::ChoosePrompts() {
  const size_t first = next_->chosen.size();
  const StepLoad decodes = next_->load;
  StepLoad unread;
  const auto count_unread = [&](const Sequence& s) {
    const int64_t cached = int64_t{s.num_shared} * options_.block_size;
    unread = unread.WithRows(cached, NumTokens(s) - cached, 0);
  };
  prompts_.clear();
  for (Sequence* s : running_) {
    if (NumRemaining(*s) <= 1) continue;
    prompts_.push_back(s);
    count_unread(*s);
  }
  prompt_limit_ = PromptLimit(decodes, unread);
  if (tenants_.num_live() > 1) {
    std::ranges::stable_sort(prompts_, [](const Sequence* a, const Sequence* b) {
      if (Priority(*a) != Priority(*b)) return Priority(*a) > Priority(*b);
      return a->request->tenant->served < b->request->tenant->served;
    });
  }
  size_t next = 0;
  bool admits = true;
  for (;;) {
    Sequence* running = next < prompts_.size() ? prompts_[next] : nullptr;
    Sequence* waiting = admits && !waiting_.empty() ? waiting_.front() : nullptr;
    if (running != nullptr && (waiting == nullptr || !Precedes(*waiting, *running))) {
      ++next;
      SetLimitFor(*running);
      Sequence* behind = next < prompts_.size() ? prompts_[next] : waiting;
      Choose(*running, ShareFor(*running, behind));
      continue;
    }
    if (waiting == nullptr) break;
    SetLimitFor(*waiting);
    const int least = std::min(kMinChunk, NumTokens(*waiting));
    const int left = RowsThatFit(*waiting, 0, least);
    // No crumbs for it beside another prompt; beside decodes alone, whatever there is.
    admits = left > 0 && (left == least || next_->chosen.size() == first) && TryAdmit(*waiting);
    if (!admits) continue;
    count_unread(*waiting);
    prompt_limit_ = PromptLimit(decodes, unread);
    SetLimitFor(*waiting);
    const Sequence* behind = running;
    if (behind == nullptr && !waiting_.empty()) behind = waiting_.front();
    Choose(*waiting, ShareFor(*waiting, behind));
  }
  WidenPrompts(first);
}

// What nobody behind has taken.
void Scheduler::WidenPrompts(size_t first) {
  for (size_t i = first; i < next_->chosen.size(); ++i) {
    Sequence* const s = next_->chosen[i].sequence;
    int& rows = next_->chosen[i].rows;
    SetLimitFor(*s);
    const int begin = s->num_computed + rows;
    const auto held = static_cast<int64_t>(s->blocks.size());
    const int64_t room = (held + pool_.num_free()) * options_.block_size - begin;
    const int more = RowsThatFit(
        *s, begin,
        static_cast<int>(
            std::min<int64_t>({NumTokens(*s) - begin, options_.max_prefill_chunk - rows, room})));
    if (more <= 0) continue;
    rows += more;
    tenants_.Charge(*s->request->tenant, more);
    const int need = BlocksFor(begin + more, options_.block_size);
    while (static_cast<int>(s->blocks.size()) < need) s->blocks.push_back(pool_.Allocate());
    next_->load = next_->load.WithRows(begin, more, NumSamples(*s, begin, more));
  }
}

// Devices read the keys and values of sequences of one row otherwise than those of more, where they
// come first. Keeps the order otherwise.
void Scheduler::PutSinglesFirst() {
  const auto has_more = [](const Chosen& c) { return c.rows + c.num_drafts > 1; };
  others_.clear();
  std::ranges::copy_if(next_->chosen, std::back_inserter(others_), has_more);
  std::erase_if(next_->chosen, has_more);
  next_->chosen.insert(next_->chosen.end(), others_.begin(), others_.end());
}

const model::StepPlan& Scheduler::Schedule(const Moment& now) {
  CONTINUO_CHECK(num_under_way() <= 1);
  const bool is_ahead = num_under_way() == 1;
  next_ = &StepOf(++step_);
  next_->plan.Clear();
  next_->chosen.clear();
  next_->preempted.clear();
  next_->load = {};
  if (!is_ahead) {
    PreemptForArrivals();
    PreemptForTenants();
  }
  for (;;) {
    limit_ = prompt_limit_ = options_.target_step;
    ReserveNextRows();
    ChooseDecodes();
    AdmitSiblings();
    ChoosePrompts();
    // What is under way may give blocks back.
    if (!next_->chosen.empty() || running_.empty() || is_ahead) break;
    Preempt(*running_.back());  // prompts hold all blocks, and none can go on
  }
  if (is_ahead && next_->chosen.empty()) {
    const model::StepPlan& none = next_->plan.plan();
    CONTINUO_CHECK(none.block_copies.empty());
    next_ = &StepOf(--step_);
    return none;
  }
  CONTINUO_CHECK(!next_->chosen.empty() || idle());

  ChooseDrafts(is_ahead);
  PutSinglesFirst();

  int max_blocks = 0;
  for (const Chosen& c : next_->chosen) {
    max_blocks =
        std::max(max_blocks, BlocksFor(c.begin + c.rows + c.num_drafts, options_.block_size));
  }
  next_->plan.SetMaxBlocks(max_blocks);
  next_->prompt_rows = 0;
  for (const Chosen& c : next_->chosen) {
    Sequence& s = *c.sequence;
    live_.Start(*s.request, now);
    s.request->last_step = step_;
    s.last_turn = ++num_turns_;
    if (NumRemaining(s) > 1 || NumAnswered(s) == 0) next_->prompt_rows += c.rows;
    next_->plan.Add(s, c.rows, std::span(drafts_).subspan(c.first_draft, c.num_drafts));
  }
  Presume();
  next_->predicted = cost_.Predict(next_->load);
  TellQueuePositions(now);
  return next_->plan.plan();
}

absl::Status Scheduler::Commit(model::StepResult&& result, const Moment& now,
                               absl::Duration measured) {
  CONTINUO_CHECK(num_under_way() > 0);
  const PlannedStep& step = StepOf(num_committed_ + 1);
  const auto samples = step.plan.samples();
  if (absl::Status status = Check(step, result); !status.ok()) return status;
  ++num_committed_;
  cost_.Observe(step.load, measured);
  metrics_.step_seconds.Observe(absl::ToDoubleSeconds(measured));
  metrics_.step_rows.Observe(static_cast<double>(step.load.rows));

  for (size_t k = 0; k < samples.size(); ++k) {
    if (result.token_ids[k] < 0) TakeBack(samples[k]);
  }
  for (const Chosen& c : step.chosen) {
    if (c.sequence->state == SequenceState::kRunning) PublishBlocks(*c.sequence, c.begin + c.rows);
  }
  finished_.clear();
  drawn_tokens_ = 0;
  for (size_t k = 0; k < samples.size(); ++k) {
    TakeSample(samples[k], result.token_ids[k], std::move(result.scores[k]), now);
  }
  metrics_.generated_tokens.fetch_add(drawn_tokens_, std::memory_order_relaxed);
  for (const Chosen& c : step.chosen) {
    if (c.sequence->state == SequenceState::kFinished) continue;
    if (c.num_drafts > 0) SettleDrafts(c);
    NotePrompt(c);
  }
  for (Sequence* s : finished_) FinishOne(*s, now);
  return absl::OkStatus();
}

absl::Status Scheduler::Check(const PlannedStep& step, const model::StepResult& result) const {
  const auto samples = step.plan.samples();
  if (result.token_ids.size() != samples.size() || result.scores.size() != samples.size()) {
    return absl::InternalError(absl::StrCat("a step with ", samples.size(), " samples gave ",
                                            result.token_ids.size(), " tokens and ",
                                            result.scores.size(), " scores"));
  }
  for (size_t k = 0; k < samples.size(); ++k) {
    const int32_t id = result.token_ids[k];
    const bool is_lost = id == -1 && num_under_way() > 1 && !samples[k].scores_prompt;
    if (!is_lost && (id < 0 || id >= options_.vocab_size)) {
      return absl::InternalError(
          absl::StrCat("a step gave token ", id, ", the vocabulary has ", options_.vocab_size));
    }
  }
  return absl::OkStatus();
}

void Scheduler::TakeSample(const PlannedSample& sample, int32_t token, model::TokenScore score,
                           const Moment& now) {
  Sequence& s = *sample.sequence;
  if (sample.scores_prompt) {
    // Also where the one that read it has ended: others go on from there.
    if (s.request->has_ended) return;
    live_.AddScore(*s.request, std::move(score));
    ++s.request->num_scored;
    return;
  }
  // It may have ended since, or gone another way.
  if (s.state == SequenceState::kFinished || sample.generation != s.generation) return;
  if (sample.draft >= 0) {
    // Counts where the row before it counts and has drawn that draft.
    const bool follows = s.finish == FinishReason::kNone && s.num_computed == sample.position &&
                         s.answer.back() == sample.draft;
    if (!follows) return;
    ++s.num_computed;
  } else {
    --s.num_presumed;
  }
  ++drawn_tokens_;
  s.draws_awaited = std::max(0, s.draws_awaited - 1);
  s.answer.push_back(token);
  if (s.seen_is_built) model::AddSeen(s.seen, token);
  live_.AddToken(s, token, std::move(score), now);
  s.finish = WhyFinished(s.request->request, s.answer);
  if (s.finish == FinishReason::kNone) return;
  live_.AddFinish(s, s.finish);
  finished_.push_back(&s);
}

// How far a prompt is, for the one that reads it for all.
void Scheduler::NotePrompt(const Chosen& chosen) {
  Sequence* const s = chosen.sequence;
  LiveRequest& r = *s->request;
  if (r.reader != s) return;
  const int done = std::min({chosen.begin + chosen.rows, s->num_computed, r.prompt_tokens()});
  if (r.request.want_progress && !r.has_token) {
    live_.AddProgress(r, {.prompt_tokens = r.prompt_tokens(),
                          .prompt_tokens_done = done,
                          .cached_prompt_tokens = r.cached_prompt_tokens});
  }
  if (done < r.prompt_tokens()) return;
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

void Scheduler::Deliver() {
  UpdateGauges();
  live_.Deliver(num_committed_);
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

}  // namespace continuo::engine
