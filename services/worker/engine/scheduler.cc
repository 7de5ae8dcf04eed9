// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"
#include "services/worker/engine/rank.h"

namespace continuo {
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
      plan_(options.block_size, options.max_batch_tokens),
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
  wanted = static_cast<int>(std::min<int64_t>(wanted, MostRows() - load_.rows));
  const auto fits = [&](int rows) {
    return cost_.Predict(load_.WithRows(begin, rows, NumSamples(s, begin, rows))) <= limit_;
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
  TakeRows(s, rows);
  return true;
}

void Scheduler::TakeRows(Sequence& s, int rows) {
  chosen_.push_back({.sequence = &s, .rows = rows, .begin = s.num_computed});
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
  StepLoad all = load_;
  bool any_owes = false;
  for (Sequence* s : running_) {
    if (NumRemaining(*s) == 1 &&
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
    load_ = all;
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
  const size_t first = chosen_.size();
  const StepLoad decodes = load_;
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
    admits = left > 0 && (left == least || chosen_.size() == first) && TryAdmit(*waiting);
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
  for (size_t i = first; i < chosen_.size(); ++i) {
    Sequence* const s = chosen_[i].sequence;
    int& rows = chosen_[i].rows;
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
  PreemptForTenants();
  for (;;) {
    limit_ = prompt_limit_ = options_.target_step;
    ReserveNextRows();
    ChooseDecodes();
    AdmitSiblings();
    ChoosePrompts();
    if (!chosen_.empty() || running_.empty()) break;
    Preempt(*running_.back());  // prompts hold all blocks, and none can go on
  }
  CONTINUO_CHECK(!chosen_.empty() || idle());

  ChooseDrafts();

  int max_blocks = 0;
  for (const Chosen& c : chosen_) {
    max_blocks =
        std::max(max_blocks, BlocksFor(c.begin + c.rows + c.num_drafts, options_.block_size));
  }
  plan_.SetMaxBlocks(max_blocks);
  prompt_rows_ = 0;
  for (const Chosen& c : chosen_) {
    Sequence& s = *c.sequence;
    live_.Start(*s.request, now);
    s.last_turn = ++num_turns_;
    if (NumRemaining(s) > 1 || s.answer.empty()) prompt_rows_ += c.rows;
    plan_.Add(s, c.rows, std::span(drafts_).subspan(c.first_draft, c.num_drafts));
  }
  predicted_ = cost_.Predict(load_);
  TellQueuePositions(now);
  return plan_.plan();
}

absl::Status Scheduler::Commit(StepResult&& result, const Moment& now, absl::Duration measured) {
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

  for (const Chosen& c : chosen_) {
    c.sequence->num_computed += c.rows;
    PublishBlocks(*c.sequence);
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
    if (samples[k].draft >= 0) {
      // Counts where the row before it counts and has drawn that draft.
      const bool follows = s.finish == FinishReason::kNone &&
                           s.num_computed == samples[k].position &&
                           s.answer.back() == samples[k].draft;
      if (!follows) continue;
      ++s.num_computed;
    }
    ++drawn_tokens_;
    s.answer.push_back(result.token_ids[k]);
    if (s.seen_is_built) AddSeen(s.seen, result.token_ids[k]);
    live_.AddToken(s, result.token_ids[k], std::move(result.scores[k]), now);
    s.finish = WhyFinished(s.request->request, s.answer);
    if (s.finish == FinishReason::kNone) continue;
    live_.AddFinish(s, s.finish);
    finished_.push_back(&s);
  }
  metrics_.generated_tokens.fetch_add(drawn_tokens_, std::memory_order_relaxed);
  for (const Chosen& c : chosen_) {
    if (c.num_drafts > 0) SettleDrafts(c);
    Sequence* const s = c.sequence;
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
