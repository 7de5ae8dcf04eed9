// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/engine.h"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "services/base/status_macros.h"
#include "services/worker/engine/calibration.h"
#include "services/worker/engine/queue_quota.h"
#include "services/worker/engine/rate_meter.h"
#include "services/worker/engine/scheduler.h"

namespace continuo::engine {
namespace {

// What other threads ask of the engine thread, in order.
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
using Command = std::variant<SubmitCommand, CancelCommand, FinishCommand, EndAllCommand>;

constexpr absl::Duration kShortestHang = absl::Seconds(2);
constexpr int kHangFactor = 10;  // times the predicted step (exactness: hung-steps)

}  // namespace

struct Engine::Impl {
  Impl(const EngineOptions& options, model::Executor* executor, const Clock* clock,
       EngineMetrics* metrics)
      : options(options),
        executor(*executor),
        clock(*clock),
        works_apart(executor->WorksApart()),
        scheduler(options, metrics),
        quota(options.max_queued_tokens) {
    load.total_blocks = options.num_blocks;
    load.block_size = options.block_size;
    load.max_running = options.max_running;
  }

  Moment Now() const { return {clock.Now(), clock.Elapsed()}; }
  void Post(Command command);
  void Apply(Command command, const Moment& now);
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return stopped || !inbox.empty(); }
  absl::Status BeginStep(const Moment& now);
  absl::Status RunStep(const Moment& now);
  absl::Status Loop();
  // Nothing is live or under way.
  bool IsIdle() const { return scheduler.idle() && scheduler.num_under_way() == 0; }
  void PublishLoad();
  void Shut(const absl::Status& why);
  EngineLoad LoadLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const EngineOptions options;
  model::Executor& executor;
  const Clock& clock;
  // Then the next step is planned, and events of the last one are handed out, while one runs.
  const bool works_apart;

  // Of the engine thread.
  Scheduler scheduler;
  struct BegunStep {
    Moment when;
    absl::Duration predicted;
  };
  std::array<BegunStep, 2> begun;  // the one under way longest, and the one behind it
  Moment last_step_end;
  EngineLoad told;  // to the load listener
  absl::AnyInvocable<void(const EngineLoad&)> load_listener;

  StepLog step_log;  // has its own lock
  mutable absl::Mutex mutex;
  std::vector<Command> inbox ABSL_GUARDED_BY(mutex);
  bool draining ABSL_GUARDED_BY(mutex) = false;
  bool stopped ABSL_GUARDED_BY(mutex) = false;
  bool closed ABSL_GUARDED_BY(mutex) = false;  // Run() has returned
  // Submitted and not taken in yet.
  int inbox_sequences ABSL_GUARDED_BY(mutex) = 0;
  int64_t inbox_tokens ABSL_GUARDED_BY(mutex) = 0;
  // As of the last step, but for the inbox and the rates.
  EngineLoad load ABSL_GUARDED_BY(mutex);
  QueueQuota quota ABSL_GUARDED_BY(mutex);  // of the inbox and of what the scheduler has waiting
  RateMeter prefilled ABSL_GUARDED_BY(mutex), decoded ABSL_GUARDED_BY(mutex);
  // When the engine last showed progress: a step ended, or work came while it had none.
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
  }
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
    for (const auto& [tenant, cost] : scheduler.TakeLeftQueue()) quota.Remove(tenant, cost);
    if (!load_listener) return;
    now = LoadLocked();
  }
  const bool changed = now.running != told.running || now.waiting != told.waiting ||
                       now.pending_prompt_tokens != told.pending_prompt_tokens ||
                       now.used_blocks != told.used_blocks ||
                       now.cached_blocks != told.cached_blocks;
  if (!changed) return;
  told = now;
  load_listener(now);
}

absl::Status Engine::Impl::BeginStep(const Moment& now) {
  const int num_before = scheduler.num_under_way();
  // A drafter may take its time, and nothing runs meanwhile.
  const bool may_wait = options.drafter != nullptr && options.drafter->works_in_batches();
  if (works_apart && num_before == 0 && may_wait) scheduler.Deliver();
  const model::StepPlan& plan = scheduler.Schedule(now);
  if (scheduler.num_under_way() == num_before) return absl::OkStatus();
  // What a drafter took is no part of the step.
  begun[static_cast<size_t>(num_before)] = {Now(), scheduler.predicted()};
  if (!works_apart) scheduler.Deliver();
  {
    absl::MutexLock lock(&mutex);
    predicted = std::max(begun[0].predicted, scheduler.predicted());
  }
  return executor.Start(plan, [this](std::span<uint32_t> mask) { scheduler.FillMask(mask); });
}

absl::Status Engine::Impl::RunStep(const Moment& now) {
  if (scheduler.num_under_way() == 0) RETURN_IF_ERROR(BeginStep(now));
  if (works_apart) {
    if (scheduler.MayGoAhead()) RETURN_IF_ERROR(BeginStep(Now()));
    scheduler.Deliver();
  }
  ASSIGN_OR_RETURN(model::StepResult result, executor.Finish());
  const Moment end = Now();
  // A step that began behind another one starts when that ends.
  const Moment began = std::exchange(begun[0], begun[1]).when;
  const Moment start = began.elapsed < last_step_end.elapsed ? last_step_end : began;
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
  if (!works_apart || scheduler.idle()) scheduler.Deliver();
  absl::MutexLock lock(&mutex);
  progress = end.elapsed;
  ++load.steps;
  prefilled.Add(end.elapsed, scheduler.prompt_rows());
  decoded.Add(end.elapsed, scheduler.drawn_tokens());
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
      // While nothing is live there is no deadline to watch either.
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
    if (!works_apart || scheduler.idle()) scheduler.Deliver();
    if (!IsIdle()) RETURN_IF_ERROR(RunStep(now));
    PublishLoad();
  }
  for (int n = scheduler.num_under_way(); n > 0; --n) {
    RETURN_IF_ERROR(executor.Finish().status());
  }
  return absl::OkStatus();
}

// Ends everything: what runs, what waits and what was never taken in.
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

absl::Status Engine::Submit(Request request, RequestSink sink) {
  const auto received = static_cast<int>(request.received.size());
  if (request.prompt.empty() || request.num_sequences < 1 ||
      (received != 0 && received != request.num_sequences)) {
    return absl::InvalidArgumentError(absl::StrCat("a request with ", request.prompt.size(),
                                                   " prompt tokens, ", request.num_sequences,
                                                   " sequences and ", received, " received"));
  }
  const int64_t most = MostTokens(request);
  const int64_t capacity =
      static_cast<int64_t>(impl_->options.num_blocks) * impl_->options.block_size;
  if (most > capacity) {
    return absl::InvalidArgumentError(absl::StrCat("prompt and max_tokens need ", most,
                                                   " tokens, the KV cache holds ", capacity));
  }
  const Moment now = impl_->Now();
  if (request.deadline <= now.wall) {
    return absl::DeadlineExceededError("the deadline has passed");
  }
  const int64_t cost = QueueCost(request);

  absl::MutexLock lock(&impl_->mutex);
  if (impl_->stopped || impl_->closed) return absl::UnavailableError("the worker has stopped");
  if (impl_->draining) return absl::UnavailableError("the worker is draining");
  if (!request.is_move) RETURN_IF_ERROR(impl_->quota.Check(request.tenant, cost));
  if (impl_->load.running + impl_->load.waiting + impl_->inbox_sequences == 0) {
    impl_->progress = now.elapsed;
  }
  impl_->inbox_tokens += TokensToRead(request);
  impl_->quota.Add(request.tenant, cost);
  impl_->inbox_sequences += request.num_sequences;
  impl_->inbox.push_back(SubmitCommand{std::move(request), std::move(sink), now.elapsed});
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
