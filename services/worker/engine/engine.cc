// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/engine.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "services/base/status_macros.h"
#include "services/worker/engine/draft/drafter.h"
#include "services/worker/engine/estimate/calibration.h"
#include "services/worker/engine/rate_meter.h"
#include "services/worker/engine/requests/queue_quota.h"
#include "services/worker/engine/schedule/scheduler.h"

namespace continuo::engine {
namespace {

// Commands of other threads to the engine thread; it applies them in order.
struct SubmitCommand {
  Request request;
  RequestSink sink;
  absl::Duration submitted;
};
struct CancelCommand {
  RequestId id;
  absl::Status why;
};
struct FinishCommand {
  RequestId id;
  int index;
};
struct EndAllCommand {
  absl::Status why;
};
struct SnapshotCommand {
  CacheSalt salt;
  std::shared_ptr<KvEventLog::SnapshotBox> box;
};
using Command =
    std::variant<SubmitCommand, CancelCommand, FinishCommand, EndAllCommand, SnapshotCommand>;

constexpr absl::Duration kShortestHang = absl::Seconds(2);
constexpr int kHangFactor = 10;  // times the predicted step (exactness: hung-steps)

}  // namespace

struct Engine::Impl {
  Impl(const EngineOptions& options, model::Executor* executor, const Clock* clock,
       EngineMetrics* metrics)
      : options(options),
        executor(*executor),
        clock(*clock),
        metrics(*metrics),
        is_asynchronous(executor->IsAsynchronous()),
        scheduler(options, metrics),
        kv_event_log(clock->Now()),
        quota(options.max_queued_tokens) {
    load.total_blocks = options.num_blocks;
    load.total_states = options.num_state_slots;
    load.block_size = options.block_size;
    load.max_running = scheduler.max_running();
  }

  Moment Now() const { return {clock.Now(), clock.Elapsed()}; }
  void Post(Command command);
  // Returns what is wrong with the request, whoever else waits.
  absl::Status Check(const Request& request, const Moment& now) const;
  // Returns why requests of so many tokens of one tenant may not wait. The caller enqueues them.
  absl::Status Admit(const std::string& tenant, int64_t cost, bool is_migration, const Moment& now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Enqueue(Request request, RequestSink sink, const Moment& now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Apply(Command command, const Moment& now);
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return stopped || !inbox.empty(); }
  absl::Status BeginStep(const Moment& now);
  void FillMask(std::span<uint32_t> mask);
  absl::Status RunStep(const Moment& now);
  absl::Status Loop();
  // No request is live and no step is in flight.
  bool IsIdle() const { return scheduler.idle() && scheduler.num_steps_in_flight() == 0; }
  void PublishLoad();
  void PublishKvEvents();
  void PutSnapshot(const SnapshotCommand& command, const Moment& now);
  void Shut(const absl::Status& why);
  EngineLoad LoadLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const EngineOptions options;
  model::Executor& executor;
  const Clock& clock;
  EngineMetrics& metrics;
  // The device works while this thread does something else. Then the next step is planned, and the
  // events of the last one are delivered, while a step runs.
  const bool is_asynchronous;

  // State of the engine thread:
  Scheduler scheduler;
  struct StepInFlight {
    Moment begin;
    absl::Duration predicted;
  };
  std::array<StepInFlight, 2> in_flight;  // oldest first
  Moment last_step_end;
  EngineLoad reported;  // to the load listener
  absl::AnyInvocable<void(const EngineLoad&)> load_listener;

  // These two are thread-safe.
  StepLog step_log;
  KvEventLog kv_event_log;
  mutable absl::Mutex mutex;
  std::vector<Command> inbox ABSL_GUARDED_BY(mutex);
  bool draining ABSL_GUARDED_BY(mutex) = false;
  bool stopped ABSL_GUARDED_BY(mutex) = false;
  bool closed ABSL_GUARDED_BY(mutex) = false;  // Run() has returned
  // Sequences and tokens of the requests in the inbox.
  int inbox_sequences ABSL_GUARDED_BY(mutex) = 0;
  int64_t inbox_tokens ABSL_GUARDED_BY(mutex) = 0;
  // State after the last step, without the inbox and the rates.
  EngineLoad load ABSL_GUARDED_BY(mutex);
  QueueQuota quota ABSL_GUARDED_BY(mutex);  // covers the inbox and the queue of the scheduler
  RateMeter prefilled ABSL_GUARDED_BY(mutex), decoded ABSL_GUARDED_BY(mutex);
  // The engine last showed progress at this time: a step ended, or work came while there was none.
  absl::Duration progress ABSL_GUARDED_BY(mutex);
  absl::Duration predicted ABSL_GUARDED_BY(mutex);
};

void Engine::Impl::Post(Command command) {
  absl::MutexLock lock(&mutex);
  if (!closed) inbox.push_back(std::move(command));
}

void Engine::Impl::Apply(Command command, const Moment& now) {
  if (auto* submit = std::get_if<SubmitCommand>(&command)) {
    scheduler.Add(std::move(submit->request), std::move(submit->sink), submit->submitted, now);
  } else if (auto* cancel = std::get_if<CancelCommand>(&command)) {
    scheduler.End(cancel->id, std::move(cancel->why), now);
  } else if (auto* finish = std::get_if<FinishCommand>(&command)) {
    scheduler.FinishSequence(finish->id, finish->index, now);
  } else if (auto* end_all = std::get_if<EndAllCommand>(&command)) {
    scheduler.EndAll(end_all->why, now);
  } else if (auto* snapshot = std::get_if<SnapshotCommand>(&command)) {
    PutSnapshot(*snapshot, now);
  }
}

// Batches that are added before have happened before.
void Engine::Impl::PutSnapshot(const SnapshotCommand& command, const Moment& now) {
  PublishKvEvents();
  if (!kv_event_log.recording()) {
    kv_event_log.StartRecording();
    scheduler.kv_events().Record();
  }
  KvSnapshot snapshot = scheduler.kv_events().Copy(command.salt);
  snapshot.number = kv_event_log.last_number();
  snapshot.time = now.wall;
  command.box->Put(std::move(snapshot));
}

void Engine::Impl::PublishKvEvents() {
  std::vector<KvEvent> events = scheduler.kv_events().Take();
  if (events.empty()) return;
  if (!kv_event_log.Add(std::move(events), clock.Now())) scheduler.kv_events().Stop();
}

EngineLoad Engine::Impl::LoadLocked() const {
  EngineLoad now = load;
  now.waiting += inbox_sequences;
  now.pending_prompt_tokens += inbox_tokens;
  const absl::Duration elapsed = clock.Elapsed();
  now.prefill_tokens_per_second = static_cast<float>(prefilled.PerSecond(elapsed));
  now.decode_tokens_per_second = static_cast<float>(decoded.PerSecond(elapsed));
  return now;
}

void Engine::Impl::PublishLoad() {
  EngineLoad now;
  {
    absl::MutexLock lock(&mutex);
    load.running = scheduler.num_running();
    load.waiting = scheduler.num_waiting();
    load.pending_prompt_tokens = scheduler.pending_prompt_tokens();
    load.used_blocks = scheduler.pool().num_used();
    load.cached_blocks = scheduler.pool().num_cached();
    load.used_states = scheduler.states().num_used();
    load.cached_states = scheduler.states().num_kept();
    for (const auto& [tenant, cost] : scheduler.TakeLeftQueue()) quota.Remove(tenant, cost);
    if (!load_listener) return;
    now = LoadLocked();
  }
  const bool changed =
      now.running != reported.running || now.waiting != reported.waiting ||
      now.pending_prompt_tokens != reported.pending_prompt_tokens ||
      now.used_blocks != reported.used_blocks || now.cached_blocks != reported.cached_blocks ||
      now.used_states != reported.used_states || now.cached_states != reported.cached_states;
  if (!changed) return;
  reported = now;
  load_listener(now);
}

absl::Status Engine::Impl::BeginStep(const Moment& now) {
  const int num_before = scheduler.num_steps_in_flight();
  // Schedule may run a draft model, and no step is in flight meanwhile: deliver before.
  const bool may_wait = options.drafter != nullptr && options.drafter->works_in_batches();
  if (is_asynchronous && num_before == 0 && may_wait) scheduler.Deliver();
  const model::StepPlan& plan = scheduler.Schedule(now);
  if (options.drafter != nullptr) RETURN_IF_ERROR(options.drafter->status());
  if (scheduler.num_steps_in_flight() == num_before) return absl::OkStatus();
  // The time that a drafter took is no part of the step.
  in_flight[static_cast<size_t>(num_before)] = {Now(), scheduler.predicted()};
  if (!is_asynchronous) scheduler.Deliver();
  {
    absl::MutexLock lock(&mutex);
    predicted = std::max(in_flight[0].predicted, scheduler.predicted());
  }
  return executor.Start(plan, [this](std::span<uint32_t> mask) { FillMask(mask); });
}

void Engine::Impl::FillMask(std::span<uint32_t> mask) {
  const absl::Duration begin = clock.Elapsed();
  scheduler.FillMask(mask);
  metrics.mask_seconds.Observe(absl::ToDoubleSeconds(clock.Elapsed() - begin));
}

absl::Status Engine::Impl::RunStep(const Moment& now) {
  if (scheduler.num_steps_in_flight() == 0) RETURN_IF_ERROR(BeginStep(now));
  if (is_asynchronous) {
    if (scheduler.CanOverlap()) RETURN_IF_ERROR(BeginStep(Now()));
    scheduler.Deliver();
  }
  ASSIGN_OR_RETURN(model::StepResult result, executor.Finish());
  const Moment end = Now();
  // An overlapped step starts when the step before it ends.
  const Moment begin = std::exchange(in_flight[0], in_flight[1]).begin;
  const Moment start = begin.elapsed < last_step_end.elapsed ? last_step_end : begin;
  const absl::Duration took = end.elapsed - start.elapsed;
  last_step_end = end;
  RETURN_IF_ERROR(scheduler.Commit(std::move(result), end, took));
  executor.Recycle(std::move(result));
  if (step_log.watched()) {
    StepRecord record;
    scheduler.Describe(record);
    record.start = start.wall;
    record.duration = took;
    step_log.Add(std::move(record));
  }
  if (!is_asynchronous || scheduler.idle()) scheduler.Deliver();
  absl::MutexLock lock(&mutex);
  progress = end.elapsed;
  ++load.steps;
  prefilled.Add(end.elapsed, scheduler.prompt_tokens());
  decoded.Add(end.elapsed, scheduler.sampled_tokens());
  return absl::OkStatus();
}

absl::Status Engine::Impl::Loop() {
  if (options.calibrate) {
    RETURN_IF_ERROR(Calibrate(options, executor, clock, scheduler.cost()));
  }
  std::vector<Command> commands;
  for (;;) {
    {
      absl::MutexLock lock(&mutex);
      // Without live requests there is no deadline to watch either.
      if (IsIdle()) mutex.Await(absl::Condition(this, &Impl::HasNews));
      if (stopped) break;
      commands.swap(inbox);
      load.waiting += std::exchange(inbox_sequences, 0);
      load.pending_prompt_tokens += std::exchange(inbox_tokens, 0);
    }
    const Moment now = Now();
    for (Command& command : commands) Apply(std::move(command), now);
    commands.clear();
    scheduler.Expire(now);
    if (!is_asynchronous || scheduler.idle()) scheduler.Deliver();
    if (!IsIdle()) RETURN_IF_ERROR(RunStep(now));
    PublishLoad();
    PublishKvEvents();
  }
  for (int n = scheduler.num_steps_in_flight(); n > 0; --n) {
    RETURN_IF_ERROR(executor.Finish().status());
  }
  return absl::OkStatus();
}

// Ends all requests, also those in the inbox.
void Engine::Impl::Shut(const absl::Status& why) {
  std::vector<Command> rest;
  {
    absl::MutexLock lock(&mutex);
    closed = true;
    rest.swap(inbox);
    inbox_sequences = 0;
    inbox_tokens = 0;
  }
  const Moment now = Now();
  for (Command& command : rest) Apply(std::move(command), now);
  scheduler.EndAll(why, now);
  scheduler.Deliver();
  PublishLoad();
}

Engine::Engine(const EngineOptions& options, model::Executor* executor, const Clock* clock,
               EngineMetrics* metrics)
    : impl_(std::make_unique<Impl>(options, executor, clock, metrics)) {}

Engine::~Engine() { impl_->Shut(absl::UnavailableError("the worker has stopped")); }

absl::Status Engine::Impl::Check(const Request& request, const Moment& now) const {
  const auto received = static_cast<int>(request.received.size());
  if (request.prompt.empty() || request.num_sequences < 1 ||
      (received != 0 && received != request.num_sequences)) {
    return absl::InvalidArgumentError(absl::StrCat("a request with ", request.prompt.size(),
                                                   " prompt tokens, ", request.num_sequences,
                                                   " sequences and ", received, " received"));
  }
  const auto constraints = static_cast<int>(request.constraints.size());
  if ((constraints != 0 && constraints != request.num_sequences) ||
      std::ranges::count(request.constraints, nullptr) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a request with ", request.num_sequences,
                                                   " sequences and ", constraints, " constraints"));
  }
  if (request.reads_state &&
      (request.num_sequences != 1 || request.max_tokens != 0 || request.num_prompt_logprobs >= 0)) {
    return absl::InvalidArgumentError("a request that reads a state generates and scores nothing");
  }
  if (options.whole_prompts ? !request.reads_state ||
                                  static_cast<int>(request.prompt.size()) > options.max_batch_tokens
                            : request.pooling != Pooling::kLast) {
    return absl::InvalidArgumentError(
        absl::StrCat("a request with ", request.prompt.size(), " prompt tokens for ",
                     options.whole_prompts ? "an encoder, which reads states of texts of at most "
                                           : "a decoder, which reads the last state; a step has ",
                     options.max_batch_tokens, " tokens"));
  }
  if (!request.token_types.empty() &&
      (!options.whole_prompts || request.token_types.size() != request.prompt.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("a request with ", request.prompt.size(), " prompt tokens and the parts of ",
                     request.token_types.size(),
                     options.whole_prompts ? "" : " for a decoder, which knows none"));
  }
  const int64_t most = MostTokens(request);
  const int64_t capacity = static_cast<int64_t>(options.num_blocks) * options.block_size;
  if (most > capacity) {
    return absl::InvalidArgumentError(absl::StrCat("prompt and max_tokens need ", most,
                                                   " tokens, the KV cache holds ", capacity));
  }
  if (request.deadline <= now.wall) {
    return absl::DeadlineExceededError("the deadline has passed");
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::Admit(const std::string& tenant, int64_t cost, bool is_migration,
                                 const Moment& now) {
  if (stopped || closed) return absl::UnavailableError("the worker has stopped");
  if (draining) return absl::UnavailableError("the worker is draining");
  if (!is_migration) RETURN_IF_ERROR(quota.Check(tenant, cost));
  if (load.running + load.waiting + inbox_sequences == 0) progress = now.elapsed;
  return absl::OkStatus();
}

void Engine::Impl::Enqueue(Request request, RequestSink sink, const Moment& now) {
  inbox_tokens += NumInputTokens(request);
  quota.Add(request.tenant, QueueCost(request));
  inbox_sequences += request.num_sequences;
  inbox.push_back(SubmitCommand{std::move(request), std::move(sink), now.elapsed});
}

absl::Status Engine::Submit(Request request, RequestSink sink) {
  const Moment now = impl_->Now();
  RETURN_IF_ERROR(impl_->Check(request, now));
  absl::MutexLock lock(&impl_->mutex);
  RETURN_IF_ERROR(impl_->Admit(request.tenant, QueueCost(request), request.is_migration, now));
  impl_->Enqueue(std::move(request), std::move(sink), now);
  return absl::OkStatus();
}

absl::Status Engine::SubmitAll(std::vector<std::pair<Request, RequestSink>> requests) {
  if (requests.empty()) return absl::OkStatus();
  const Moment now = impl_->Now();
  int64_t cost = 0;
  for (const auto& [request, sink] : requests) {
    RETURN_IF_ERROR(impl_->Check(request, now));
    cost += QueueCost(request);
  }
  const int64_t most = impl_->options.max_queued_tokens;
  if (requests.size() > 1 && cost > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("have ", cost, " tokens together, ", most, " may wait at a time"));
  }
  absl::MutexLock lock(&impl_->mutex);
  const Request& first = requests.front().first;
  RETURN_IF_ERROR(impl_->Admit(first.tenant, cost, first.is_migration, now));
  for (auto& [request, sink] : requests) {
    impl_->Enqueue(std::move(request), std::move(sink), now);
  }
  return absl::OkStatus();
}

void Engine::Cancel(RequestId id, absl::Status why) {
  impl_->Post(CancelCommand{id, std::move(why)});
}

void Engine::FinishSequence(RequestId id, int index) { impl_->Post(FinishCommand{id, index}); }

void Engine::BeginDrain() {
  absl::MutexLock lock(&impl_->mutex);
  impl_->draining = true;
}

void Engine::EndAll(absl::Status why) { impl_->Post(EndAllCommand{std::move(why)}); }

EngineLoad Engine::Load() const {
  absl::MutexLock lock(&impl_->mutex);
  return impl_->LoadLocked();
}

void Engine::SetLoadListener(absl::AnyInvocable<void(const EngineLoad&)> listener) {
  impl_->load_listener = std::move(listener);
}

StepLog& Engine::step_log() { return impl_->step_log; }

absl::StatusOr<std::unique_ptr<KvEventLog::Watch>> Engine::WatchKvEvents(const CacheSalt& salt) {
  auto box = std::make_shared<KvEventLog::SnapshotBox>();
  ASSIGN_OR_RETURN(std::unique_ptr<KvEventLog::Watch> watch, impl_->kv_event_log.Begin(box));
  impl_->Post(SnapshotCommand{salt, std::move(box)});
  return watch;
}

KvEventLog& Engine::kv_event_log() { return impl_->kv_event_log; }

bool Engine::Hung() const {
  absl::MutexLock lock(&impl_->mutex);
  if (impl_->closed || impl_->load.steps == 0) return false;
  if (impl_->load.running + impl_->load.waiting + impl_->inbox_sequences == 0) return false;
  return impl_->clock.Elapsed() - impl_->progress >
         std::max(kShortestHang, kHangFactor * impl_->predicted);
}

absl::Status Engine::Run() {
  const absl::Status status = impl_->Loop();
  impl_->Shut(status.ok() ? absl::UnavailableError("the worker has stopped")
                          : absl::UnavailableError("the worker has lost its device"));
  return status;
}

void Engine::Stop() {
  absl::MutexLock lock(&impl_->mutex);
  impl_->stopped = true;
}

}  // namespace continuo::engine
