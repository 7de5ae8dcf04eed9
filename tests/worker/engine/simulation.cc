// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/engine/simulation.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/testing/next_token_mask.h"

namespace continuo::engine {

// The request, the received tokens and the expected answer of one client.
struct Simulation::Client {
  Request request;
  std::vector<std::vector<int32_t>> want;  // whole answers, without time limit or cancel
  std::vector<std::vector<int32_t>> got;   // received tokens included
  std::vector<FinishReason> finish;
  std::vector<bool> closed;  // no delta may follow
  std::vector<bool> edge_finished;
  int num_prompt_scores = 0;
  bool started = false, ended = false, cancelled = false, has_state = false;
};

namespace {

bool SameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

bool Equal(const model::TokenScore& a, const model::TokenScore& b) {
  return SameBits(a.logprob, b.logprob) &&
         std::ranges::equal(a.alternatives, b.alternatives, [](const auto& x, const auto& y) {
           return x.token_id == y.token_id && SameBits(x.logprob, y.logprob);
         });
}

FinishReason NaturalFinish(const Request& r, const std::vector<int32_t>& answer) {
  return EndOf(r, answer) == FinishReason::kStop ? FinishReason::kStop : FinishReason::kLength;
}

}  // namespace

Simulation::Simulation(uint32_t seed, SimulationTally* tally, SimulatedModel* model)
    : rng_(seed), tally_(*tally), model_(*model) {
  sizes_ = model_.Begin(rng_);
  vocab_size_ = model_.vocab_size();
  options_.vocab_size = vocab_size_;
  options_.block_size = Pick(1, 9);
  const int longest = sizes_.longest_prefix + sizes_.longest_tail + sizes_.longest_answer + 5;
  const int least = longest / options_.block_size + 2;  // enough for the longest request
  options_.num_blocks = Chance(30) ? least : Pick(least, 200 / options_.block_size + least);
  options_.max_batch_tokens = Chance(20) ? 1 : Pick(1, 60);
  if (sizes_.is_encoder) {
    options_.whole_prompts = options_.reads_states = true;
    options_.max_batch_tokens += sizes_.longest_prefix + sizes_.longest_tail + 1;
  }
  options_.max_prefill_chunk = Chance(50) ? 512 : Pick(1, 20);
  options_.max_running = Pick(1, 12);
  if (sizes_.has_states) options_.num_state_slots = Pick(2, 2 * options_.max_running + 20);
  options_.hash_key = {rng_(), rng_()};
  options_.expected_answer_tokens = Pick(1, 20);
  options_.target_step = absl::Milliseconds(Pick(5, 300));
  row_cost_ = absl::Microseconds(Pick(0, 20000));
  absl::StatusOr<std::unique_ptr<model::Executor>> executor = model_.MakeExecutor(options_, rng_);
  if (executor.ok()) {
    executor_ = *std::move(executor);
  } else {
    Fail(executor.status().ToString());
  }
  if (!sizes_.is_encoder && Chance(50)) {
    options_.max_drafts = Pick(1, 9);
    options_.drafter = model_.MakeDrafter(Pick(0, 100), rng_());
  }
  scheduler_ = std::make_unique<Scheduler>(options_, &metrics_);
  embeds_ = sizes_.embeds_percent > 0 && Chance(sizes_.embeds_percent);
  priorities_ = Chance(30);
  extremes_ = Chance(20);
  num_tenants_ = Chance(50) ? 1 : Pick(2, 5);
  for (int i = 0; i < 3; ++i) {
    prefixes_.emplace_back();
    for (int n = Pick(0, sizes_.longest_prefix); n > 0; --n) {
      prefixes_.back().push_back(PickToken());
    }
  }
  to_submit_ = Pick(1, sizes_.most_requests);
}

Simulation::~Simulation() = default;

void Simulation::Fail(const std::string& what) {
  if (failure_.empty()) failure_ = what;
}

Request Simulation::MakeRequest() {
  Request r;
  r.id = clients_.size() + 1;
  r.label = absl::StrCat(r.id);
  r.prompt = prefixes_[Pick(0, 2)];
  for (int n = Pick(r.prompt.empty() ? 1 : 0, sizes_.longest_tail); n > 0; --n) {
    r.prompt.push_back(PickToken());
  }
  r.max_tokens = Chance(5) ? 0 : Pick(1, sizes_.longest_answer);
  r.num_sequences = Chance(25) ? Pick(2, 6) : 1;
  r.sampling.temperature = Chance(50) ? 0.0f : 1.0f;
  r.sampling.seed = Pick(0, 3);
  if (Chance(20)) r.sampling.repetition_penalty = 1.5f;
  if (Chance(20)) r.sampling.frequency_penalty = 0.5f;
  if (Chance(20)) r.sampling.presence_penalty = 0.25f;
  if (Chance(10)) r.sampling.top_k = Pick(1, 40);
  if (Chance(10)) r.sampling.top_p = 0.9f;
  if (Chance(10)) r.sampling.min_p = 0.05f;
  if (Chance(sizes_.logprobs_percent)) r.sampling.num_logprobs = Pick(0, 2);
  if (Chance(10)) r.biases = {{.token_id = 1, .bias = 2}, {.token_id = 2, .bias = -1}};
  std::set<int32_t> stops;
  for (int n = Chance(60) ? Pick(1, 2) : 0; n > 0; --n) stops.insert(PickToken());
  r.stop_ids.assign(stops.begin(), stops.end());
  if (Chance(20)) r.min_tokens = Pick(0, r.max_tokens);
  if (Chance(15)) MakeBars(r);
  if (Chance(15)) {
    r.num_prompt_logprobs = Pick(0, 2);
    if (Chance(30)) r.prompt_logprobs_received = Pick(0, static_cast<int>(r.prompt.size()) - 1);
  }
  if (priorities_) r.priority = Pick(-1, 1);
  r.tenant = absl::StrCat(Pick(1, num_tenants_));
  r.is_migration = Chance(10);
  if (Chance(5)) r.deadline = clock_.Now() + absl::Milliseconds(Pick(1, 2000));
  if (Chance(5)) r.time_limit = clock_.Now() + absl::Milliseconds(Pick(0, 2000));
  r.cache_salt = {0, static_cast<uint64_t>(Chance(20) ? Pick(1, 2) : 0)};
  if (sizes_.num_adapters > 0 && Chance(75)) {
    // As the server salts the cache.
    r.adapter = Pick(0, sizes_.num_adapters - 1);
    r.cache_salt[0] = static_cast<uint64_t>(r.adapter) + 1;
    ++tally_.adapted;
  }
  r.cache_bypass = Chance(15);
  r.want_progress = Chance(10);
  if (embeds_) return MakeStateRead(std::move(r));
  if (extremes_) MakeExtreme(r);
  const bool is_constrained = Chance(25);
  const Script script = MakeScript();
  if (is_constrained) Constrain(r, script);
  if (Chance(20)) MakeContinuation(r);
  if (is_constrained && !r.received.empty()) Constrain(r, script);
  tally_.constrained += is_constrained;
  return r;
}

// Keeps what says when a request runs and what it may share.
Request Simulation::MakeStateRead(Request r) {
  const auto pooling = sizes_.is_encoder ? static_cast<Pooling>(Pick(0, 2)) : Pooling::kLast;
  std::vector<int32_t> token_types;
  if (sizes_.num_token_types > 1 && Chance(50)) {
    for (size_t i = 0; i < r.prompt.size(); ++i) {
      token_types.push_back(Pick(0, sizes_.num_token_types - 1));
    }
  }
  return {.id = r.id,
          .label = std::move(r.label),
          .tenant = std::move(r.tenant),
          .prompt = std::move(r.prompt),
          .token_types = std::move(token_types),
          .reads_state = true,
          .pooling = pooling,
          .adapter = r.adapter,
          .priority = r.priority,
          .is_migration = r.is_migration,
          .deadline = r.deadline,
          .cache_salt = r.cache_salt,
          .cache_bypass = r.cache_bypass,
          .want_progress = r.want_progress};
}

// Makes a script that always leaves a token, whatever the stop ids are.
Script Simulation::MakeScript() {
  const auto seed = static_cast<uint32_t>(Pick(0, 1 << 20));
  return Chance(50) ? RandomAutomaton(seed, Chance(50))
                    : AfterThought({0, 1}, RandomAutomaton(seed, false));
}

// Allows few tokens or bars some, which may leave none.
void Simulation::MakeBars(Request& r) {
  std::vector<int32_t> ids;
  for (int n = Pick(1, 12); n > 0; --n) ids.push_back(PickToken());
  if (Chance(50)) {
    r.allowed_mask.assign(static_cast<size_t>(options_.vocab_size + 31) / 32, 0);
    // One that does not end the answer, as the server demands.
    int32_t other = 0;
    while (std::ranges::binary_search(r.stop_ids, other)) ++other;
    ids.push_back(other);
    for (const int32_t id : ids) r.allowed_mask[id / 32] |= uint32_t{1} << (id % 32);
  }
  for (int n = Chance(70) ? Pick(1, 8) : 0; n > 0; --n) {
    std::vector<int32_t>& barred = r.barred.emplace_back();
    for (int length = Pick(1, 3); length > 0; --length) {
      barred.push_back(ids[static_cast<size_t>(Pick(0, static_cast<int>(ids.size()) - 1))]);
    }
  }
}

// Sets extreme values that the server lets through: it checks each field, but not all together.
void Simulation::MakeExtreme(Request& r) {
  if (Chance(20)) r.num_sequences = Pick(1, sizes_.widest);
  if (Chance(30)) {  // the longest answer that the pool holds
    const int capacity = options_.num_blocks * options_.block_size;
    r.max_tokens = capacity - static_cast<int>(r.prompt.size()) + 1;
    if (r.num_sequences > 6) r.num_sequences = 6;
    if (Chance(50)) r.min_tokens = r.max_tokens;
    ++tally_.longest;
  }
  if (r.num_sequences > 6) ++tally_.widely_forked;
  if (priorities_ && Chance(50)) {
    r.priority = Chance(50) ? std::numeric_limits<int>::min() : std::numeric_limits<int>::max();
  }
  const absl::Time times[] = {absl::InfinitePast(), clock_.Now() - absl::Seconds(1), clock_.Now()};
  if (Chance(10)) r.deadline = times[Pick(0, 2)];
  if (Chance(10)) r.time_limit = times[Pick(0, 2)];
  if (r.deadline <= clock_.Now() || r.time_limit <= clock_.Now()) ++tally_.late;
}

// Cuts the true answers at random places.
void Simulation::MakeContinuation(Request& r) {
  if (r.prompt_logprobs_received > 0) return;
  std::vector<ReceivedSequence> received(r.num_sequences);
  for (int i = 0; i < r.num_sequences; ++i) {
    std::vector<int32_t>& tokens = received[i].tokens;
    tokens = model_.Answer(r, i);
    if (Chance(20)) {
      received[i].finished = Chance(70);  // otherwise the tokens show it
    } else {
      tokens.resize(Pick(0, static_cast<int>(tokens.size())));
    }
  }
  r.received = std::move(received);
  ++tally_.continued;
}

void Simulation::Submit() {
  auto client = std::make_unique<Client>();
  Client& c = *client;
  c.request = MakeRequest();
  const int n = c.request.num_sequences;
  c.got.resize(n);
  c.finish.resize(n);
  c.closed.resize(n);
  c.edge_finished.resize(n);
  c.num_prompt_scores = c.request.prompt_logprobs_received;
  for (int i = 0; i < n; ++i) {
    c.want.push_back(model_.Answer(c.request, i));
    if (c.request.received.empty()) continue;
    c.got[i] = c.request.received[i].tokens;
    c.closed[i] = c.request.received[i].finished;
  }
  ++tally_.requests;
  tally_.forked += n - 1;
  clients_[c.request.id] = std::move(client);
  scheduler_->Add(
      c.request, [this, &c](RequestEvent event) { Receive(c, std::move(event)); }, clock_.Elapsed(),
      Now());
  scheduler_->Deliver();
}

void Simulation::Receive(Client& c, RequestEvent event) {
  const RequestId id = c.request.id;
  if (c.ended) Fail(absl::StrCat("request ", id, ": an event after the end"));
  if (event.started && c.started) Fail(absl::StrCat("request ", id, " started twice"));
  c.started |= event.started;
  if (!c.started && (!event.prompt_scores.empty() || !event.deltas.empty())) {
    Fail(absl::StrCat("request ", id, ": results before the start"));
  }
  if (event.progress &&
      (!c.request.want_progress ||
       event.progress->prompt_tokens != static_cast<int>(c.request.prompt.size()))) {
    Fail(absl::StrCat("request ", id, ": wrong progress"));
  }
  for (const model::TokenScore& score : event.prompt_scores) {
    if (c.num_prompt_scores + 1 >= static_cast<int>(c.request.prompt.size()) ||
        !Equal(score, model_.PromptScore(c.request, c.num_prompt_scores))) {
      Fail(absl::StrCat("request ", id, ": wrong prompt score ", c.num_prompt_scores));
      return;
    }
    ++c.num_prompt_scores;
    ++tally_.prompt_scores;
  }
  if (!event.state.empty()) {
    const std::vector<float> want = model_.State(c.request);
    if (!c.request.reads_state || c.has_state || !std::ranges::equal(event.state, want, SameBits)) {
      Fail(absl::StrCat("request ", id, ": a wrong state"));
    }
    c.has_state = true;
    ++tally_.states;
  }
  for (SequenceDelta& delta : event.deltas) ReceiveDelta(c, delta);
  if (!event.ended) return;
  c.ended = true;
  CheckEnd(c, event);
}

void Simulation::ReceiveDelta(Client& c, SequenceDelta& delta) {
  const std::string name = absl::StrCat("request ", c.request.id, ".", delta.index);
  if (c.closed[delta.index]) Fail(absl::StrCat(name, ": a delta after the end"));
  const size_t scores = c.request.sampling.num_logprobs < 0 ? 0 : delta.tokens.size();
  if (delta.scores.size() != scores) Fail(absl::StrCat(name, ": ", scores, " scores expected"));
  std::vector<int32_t>& got = c.got[delta.index];
  for (size_t i = 0; i < delta.tokens.size(); ++i) {
    const size_t at = got.size();
    got.push_back(delta.tokens[i]);
    ++tally_.tokens;
    tally_.scores += delta.scores.empty() ? 0 : 1;
    // CheckEnd reports wrong tokens.
    if (at >= c.want[delta.index].size() || delta.tokens[i] != c.want[delta.index][at]) continue;
    if (!delta.scores.empty() &&
        !Equal(delta.scores[i], model_.AnswerScore(c.request, delta.index, static_cast<int>(at)))) {
      Fail(absl::StrCat(name, ": wrong score ", at));
    }
  }
  if (delta.finish != FinishReason::kNone) {
    c.finish[delta.index] = delta.finish;
    c.closed[delta.index] = true;
  }
}

void Simulation::CheckEnd(Client& c, const RequestEvent& event) {
  const std::string name = absl::StrCat("request ", c.request.id);
  for (int i = 0; i < c.request.num_sequences; ++i) {
    if (c.got[i].size() > c.want[i].size() ||
        !std::equal(c.got[i].begin(), c.got[i].end(), c.want[i].begin())) {
      Fail(absl::StrCat(name, ".", i, ": the text differs"));
    }
  }
  for (int i = 0; i < c.request.num_sequences; ++i) CheckConstraint(c, i);
  if (event.ended->code() == absl::StatusCode::kCancelled && c.cancelled) return;
  if (event.ended->code() == absl::StatusCode::kDeadlineExceeded) {
    ++tally_.timed_out;
    if (clock_.Now() < c.request.deadline) Fail(absl::StrCat(name, ": early deadline"));
    return;
  }
  if (!event.ended->ok()) Fail(absl::StrCat(name, ": ", event.ended->ToString()));
  bool limited = false, edge = false;
  for (int i = 0; i < c.request.num_sequences; ++i) {
    edge |= c.edge_finished[i];
    limited |= c.finish[i] == FinishReason::kTimeLimit;
    if (c.finish[i] == FinishReason::kTimeLimit) {
      if (clock_.Now() < c.request.time_limit) Fail(absl::StrCat(name, ": early time limit"));
      continue;
    }
    if (c.edge_finished[i]) continue;
    const bool was_finished = !c.request.received.empty() && c.request.received[i].finished;
    if (c.got[i] != c.want[i] ||
        (!was_finished && c.finish[i] != NaturalFinish(c.request, c.want[i]))) {
      Fail(absl::StrCat(name, ".", i, ": the answer is not whole"));
    }
  }
  if (c.request.reads_state && !c.has_state && !edge) {
    Fail(absl::StrCat(name, ": the state is missing"));
  }
  tally_.time_limited += limited;
  tally_.edge_finished += edge;
  const bool all_received = std::ranges::all_of(c.request.received, &ReceivedSequence::finished) &&
                            !c.request.received.empty();
  if (c.request.num_prompt_logprobs >= 0 && !limited && !edge && !all_received &&
      std::ranges::none_of(c.want, [](const auto& w) { return w.empty(); }) &&
      c.request.received.empty() &&
      c.num_prompt_scores + 1 != static_cast<int>(c.request.prompt.size())) {
    Fail(absl::StrCat(name, ": prompt scores are missing"));
  }
}

// Checks that a constraint has accepted what was delivered, but for a stop id at the end, and no
// draft.
void Simulation::CheckConstraint(const Client& c, int index) {
  if (c.request.constraints.empty()) return;
  std::vector<int32_t> said = c.got[static_cast<size_t>(index)];
  const bool stopped = !said.empty() && std::ranges::binary_search(c.request.stop_ids, said.back());
  if (stopped) said.pop_back();
  tally_.must_end += !stopped && c.finish[static_cast<size_t>(index)] == FinishReason::kStop;
  if (ConstraintOf(c.request, index).accepted() == said) return;
  Fail(absl::StrCat("request ", c.request.id, ".", index, ": its constraint is out of step"));
}

void Simulation::Disturb() {
  while (to_submit_ > 0 && Chance(60)) {
    --to_submit_;
    Submit();
  }
  if (clients_.empty()) return;
  Client& c = *clients_[Pick(1, static_cast<int>(clients_.size()))];
  if (Chance(3)) {
    if (!c.ended) {
      c.cancelled = true;
      ++tally_.cancelled;
    }
    scheduler_->End(c.request.id, absl::CancelledError("the client left"), Now());
  } else if (Chance(5)) {
    const int index = Pick(0, c.request.num_sequences - 1);
    scheduler_->FinishSequence(c.request.id, index, Now());
    if (!c.closed[index]) c.edge_finished[index] = c.closed[index] = true;
  }
  scheduler_->Expire(Now());
  scheduler_->Deliver();
}

void Simulation::Begin() {
  const int num_before = scheduler_->num_steps_in_flight();
  const model::StepPlan& plan = scheduler_->Schedule(Now());
  if (const absl::Status status = scheduler_->CheckInvariants(); !status.ok()) {
    Fail(absl::StrCat("after Schedule: ", status.ToString()));
  }
  if (scheduler_->num_steps_in_flight() == num_before) {
    if (num_before == 0 || plan.num_rows() > 0) Fail("a plan is no step");
    return;
  }
  scheduler_->Deliver();
  if (plan.num_rows() > options_.max_batch_tokens) Fail("too many rows");
  if (plan.num_seqs() > options_.max_running) Fail("too many sequences");
  const bool is_one_text = sizes_.is_encoder && plan.num_seqs() == 1;
  if (plan.num_rows() > 1 && !is_one_text && scheduler_->predicted() > options_.target_step) {
    Fail("a step of several rows is predicted to take too long");
  }
  for (size_t i = 0; sizes_.is_encoder && i < plan.sequence_ids.size(); ++i) {
    if (plan.query_begin[i + 1] - plan.query_begin[i] != plan.kv_len[i]) Fail("a part of a text");
  }
  ++tally_.steps;
  tally_.overlapped += num_before;
  tally_.rows += plan.num_rows();
  tally_.copies += static_cast<int64_t>(plan.block_copies.size());
  if (sizes_.has_states) {
    ++tally_.state_steps;
    tally_.state_copies += static_cast<int64_t>(plan.block_copies.size());
  }
  tally_.masked += std::ranges::count_if(plan.sampling, &model::SamplingParams::masked);
  begun_.emplace_back(clock_.Elapsed(), absl::Milliseconds(2) + plan.num_rows() * row_cost_);
  const absl::Status status =
      executor_->Start(plan, [this](std::span<uint32_t> mask) { scheduler_->FillMask(mask); });
  if (!status.ok()) Fail(status.ToString());
}

void Simulation::Step() {
  if (scheduler_->num_steps_in_flight() == 0) Begin();
  if (executor_->IsAsynchronous() && Chance(80)) {
    if (Chance(30)) Disturb();
    if (scheduler_->CanOverlap()) Begin();
  }
  if (!failure_.empty()) return;
  absl::StatusOr<model::StepResult> result = executor_->Finish();
  if (!result.ok()) return Fail(result.status().ToString());
  tally_.lost += std::ranges::count_if(result->token_ids, [](int32_t id) { return id < 0; });
  const auto [begin, takes] = begun_.front();
  begun_.pop_front();
  clock_.Advance(takes);
  const absl::Status committed =
      scheduler_->Commit(*std::move(result), Now(), clock_.Elapsed() - begin);
  if (!committed.ok()) return Fail(committed.ToString());
  StepRecord record;
  scheduler_->Describe(record);
  for (const StepRecord::SequenceRow& row : record.sequences) {
    if (!row.preempted) continue;
    ++tally_.preemptions;
    // The guarantee holds for answers up to twice as long as those before, not for extreme ones.
    if (++preempted_[{row.label, row.index}] > 1 && !priorities_ && !extremes_) {
      Fail(absl::StrCat("request ", row.label, ".", row.index, " is preempted twice"));
    }
  }
  scheduler_->Deliver();
  if (const absl::Status status = scheduler_->CheckInvariants(); !status.ok()) {
    Fail(absl::StrCat("after Commit: ", status.ToString()));
  }
}

std::string Simulation::Run() {
  const auto is_idle = [&] { return scheduler_->idle() && scheduler_->num_steps_in_flight() == 0; };
  for (int step = 0; failure_.empty() && (to_submit_ > 0 || !is_idle()); ++step) {
    if (step > 20000) Fail("it does not end");
    Disturb();
    if (!is_idle()) Step();
  }
  if (!failure_.empty()) return failure_;
  for (const auto& [id, client] : clients_) {
    if (!client->ended) return absl::StrCat("request ", id, " never ended");
  }
  if (scheduler_->pool().num_used() != 0) return "blocks are leaked";
  if (metrics_.running_requests != 0 || metrics_.waiting_requests != 0 ||
      metrics_.waiting_prompt_tokens != 0) {
    return "gauges are not 0 at the end";
  }
  tally_.drafts += static_cast<int64_t>(metrics_.draft_tokens.load());
  tally_.right_drafts += static_cast<int64_t>(metrics_.accepted_draft_tokens.load());
  const auto hit_tokens = static_cast<int64_t>(metrics_.prefix_cache_hit_tokens.load());
  tally_.hit_tokens += hit_tokens;
  if (sizes_.has_states) tally_.state_hit_tokens += hit_tokens;
  return "";
}

}  // namespace continuo::engine
