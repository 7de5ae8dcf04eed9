// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/worker/simulated_worker.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"
#include "services/simulate/worker/answer.h"

namespace continuo::simulate {
namespace {

// A message that does not get through is sent again after this time.
constexpr absl::Duration kRetransmit = absl::Milliseconds(50);

// A step hangs after these limits, which are those of Engine::Hung.
constexpr absl::Duration kShortestHang = absl::Seconds(2);
constexpr int kHangFactor = 10;

absl::Status Draining() {
  return protocol::WithReason(absl::UnavailableError("the worker is draining"),
                              protocol::kReasonDraining);
}

absl::Status ConnectionReset() { return absl::UnavailableError("Connection reset by peer"); }

// A request's label holds its tenant and whether it was migrated. CheckFairness reads both from the
// records of steps.
constexpr char kMigrated = '+', kOwn = '-';
std::string LabelOf(const engine::Request& request) {
  return absl::StrCat(std::string(1, request.is_migration ? kMigrated : kOwn), request.tenant);
}

}  // namespace

SimulatedWorker::SimulatedWorker(int number, bool runs, const profile::WorkerProfile* profile,
                                 EventLoop* loop, const Network* network, WorkerEvents events,
                                 const TestHooks* hooks)
    : number_(number),
      address_(absl::StrCat("worker-", number, ":50051")),
      name_(absl::StrCat("worker-", number)),
      profile_(*profile),
      loop_(*loop),
      network_(*network),
      events_(std::move(events)),
      hooks_(*hooks),
      clock_(loop) {
  if (runs) process_ = std::make_unique<WorkerProcess>(profile, ++num_processes_, hooks);
}

SimulatedWorker::~SimulatedWorker() = default;

void SimulatedWorker::After(absl::Duration delay, void (SimulatedWorker::*method)()) {
  loop_.After(delay, [this, method, number = num_processes_] {
    if (process_ != nullptr && number == num_processes_) (this->*method)();
  });
}

void SimulatedWorker::Receive(std::shared_ptr<WorkerStream> stream,
                              const v1::GenerateRequest& request,
                              const gateway::CallContext& context, absl::Duration time_left,
                              bool is_migration) {
  const absl::Duration stuck = network_.IsCut(stream->gateway(), number_) ? kRetransmit
                               : process_ != nullptr ? process_->frozen_until - clock_.Elapsed()
                                                     : absl::ZeroDuration();
  if (stuck > absl::ZeroDuration()) {
    // The kernels have it until it gets through.
    loop_.After(stuck, [this, stream, request, context, time_left, is_migration] {
      if (stream->is_open()) Receive(stream, request, context, time_left, is_migration);
    });
    return;
  }
  const auto reject = [&](absl::Status status) {
    loop_.After(network_.delay(), [this, stream, status = std::move(status)] {
      if (network_.IsCut(stream->gateway(), number_)) stream->Hold();
      stream->ArriveEnd(status);
    });
  };
  if (process_ == nullptr) return reject(ConnectionReset());
  WorkerProcess& p = *process_;
  if (p.state != v1::WORKER_STATE_SERVING) return reject(Draining());
  auto prepared = p.Prepare(request, context);
  if (!prepared.ok()) return reject(prepared.status());
  auto& [r, call] = *prepared;
  call.stream = stream;
  r.is_migration = is_migration;
  r.label = LabelOf(r);
  r.deadline = clock_.Now() + time_left;
  call.accepted.set_worker(name_);

  // These checks are those of Engine::Submit.
  const int64_t most = engine::MostTokens(r);
  const int64_t capacity = int64_t{profile_.engine.num_blocks} * profile_.engine.block_size;
  if (most > capacity) {
    return reject(absl::InvalidArgumentError(absl::StrCat(
        "prompt and max_tokens need ", most, " tokens, the KV cache holds ", capacity)));
  }
  if (r.deadline <= clock_.Now()) {
    return reject(absl::DeadlineExceededError("the deadline has passed"));
  }
  const int64_t cost = engine::QueueCost(r);
  if (!r.is_migration) {
    if (const absl::Status fits = p.quota.Check(r.tenant, cost); !fits.ok()) {
      return reject(protocol::WithReason(fits, protocol::kReasonOverloaded));
    }
  }
  if (hooks_.request) hooks_.request(r);
  p.quota.Add(r.tenant, cost);
  if (p.calls.empty()) p.progress = clock_.Elapsed();
  p.ids[stream.get()] = r.id;
  WorkerProcess::Prompt& prompt = p.prompts[r.sampling.seed];
  prompt.num_tokens = static_cast<int>(r.prompt.size());
  prompt.num_calls += 1;
  p.calls.emplace(r.id, std::move(call));
  p.inbox.push_back({.request = std::move(r), .time = clock_.Elapsed()});
  Wake();
}

// An idle engine wakes up at once.
void SimulatedWorker::Wake() {
  process_->is_dirty = true;
  if (!std::exchange(process_->is_busy, true)) {
    After(absl::ZeroDuration(), &SimulatedWorker::Turn);
  }
}

void SimulatedWorker::Cancel(const std::shared_ptr<WorkerStream>& stream) {
  if (process_ == nullptr) return;
  if (network_.IsCut(stream->gateway(), number_)) {
    loop_.After(kRetransmit, [this, stream] { Cancel(stream); });
    return;
  }
  const auto at = process_->ids.find(stream.get());
  if (at == process_->ids.end()) return;
  process_->cancelled.push_back(at->second);
  Wake();
}

// The order is that of Engine::Loop and RunStep.
void SimulatedWorker::Turn() {
  WorkerProcess& p = *process_;
  if (p.frozen_until > clock_.Elapsed()) {
    return After(p.frozen_until - clock_.Elapsed(), &SimulatedWorker::Turn);
  }
  p.is_dirty = true;
  const engine::Moment now = Now();
  for (WorkerProcess::Submitted& submitted : std::exchange(p.inbox, {})) {
    const engine::RequestId id = submitted.request.id;
    p.scheduler.Add(
        std::move(submitted.request),
        [&p, id](engine::RequestEvent event) { p.OnEvent(id, std::move(event)); }, submitted.time,
        now);
  }
  for (const engine::RequestId id : std::exchange(p.cancelled, {})) {
    p.scheduler.End(id, absl::CancelledError("the client is gone"), now);
  }
  if (std::exchange(p.ends_all, false)) p.scheduler.EndAll(Draining(), now);
  p.scheduler.Expire(now);
  if (!profile_.is_asynchronous || p.scheduler.idle()) Deliver();
  if (!p.scheduler.idle() && p.in_flight.empty()) BeginStep();
  if (profile_.is_asynchronous && !p.in_flight.empty()) {
    if (p.scheduler.CanOverlap()) BeginStep();
    Deliver();
  }
  p.is_busy = !p.in_flight.empty();
  if (p.is_busy) {
    After(p.in_flight.front().end - now.elapsed, &SimulatedWorker::EndStep);
  } else {
    OnLoad();
    ExitIfDrained();
  }
}

void SimulatedWorker::BeginStep() {
  WorkerProcess& p = *process_;
  const int before = p.scheduler.num_steps_in_flight();
  const model::StepPlan& plan = p.scheduler.Schedule(Now());
  if (p.scheduler.num_steps_in_flight() == before) return;
  p.predicted = p.scheduler.predicted();
  if (plan.num_rows() > profile_.engine.max_batch_tokens) {
    p.fault = absl::InternalError(absl::StrCat("a step has ", plan.num_rows(), " tokens"));
  }
  const absl::Duration begin = p.in_flight.empty() ? clock_.Elapsed() : p.in_flight.back().end;
  p.in_flight.push_back({.begin = begin,
                         .end = begin + profile_.step.Of(profile::LoadOf(plan)) * slowness_,
                         .result = p.Sample(plan)});
  if (!profile_.is_asynchronous) Deliver();
}

void SimulatedWorker::EndStep() {
  WorkerProcess& p = *process_;
  const absl::Duration stands_still = std::max(p.hangs_until, p.frozen_until) - clock_.Elapsed();
  if (stands_still > absl::ZeroDuration()) {
    return After(stands_still, &SimulatedWorker::EndStep);
  }
  const engine::Moment now = Now();
  p.progress = now.elapsed;
  WorkerProcess::StepInFlight step = std::move(p.in_flight.front());
  p.in_flight.pop_front();
  const absl::Duration took = now.elapsed - step.begin;
  const absl::Status committed = p.scheduler.Commit(std::move(step.result), now, took);
  CONTINUO_CHECK(committed.ok());
  if (hooks_.checks) CheckFairness();
  if (!profile_.is_asynchronous || p.scheduler.idle()) Deliver();
  p.prefilled.Add(now.elapsed, p.scheduler.prompt_tokens());
  p.decoded.Add(now.elapsed, p.scheduler.sampled_tokens());
  const double seconds = absl::ToDoubleSeconds(took);
  p.totals.steps += 1;
  p.totals.busy += took;
  p.totals.used_block_seconds += seconds * p.scheduler.pool().num_used();
  p.totals.running_seconds += seconds * p.scheduler.num_running();
  p.totals.prompt_tokens += p.scheduler.prompt_tokens();
  p.totals.sampled_tokens += p.scheduler.sampled_tokens();
  OnLoad();
  Turn();
}

void SimulatedWorker::Deliver() {
  process_->scheduler.Deliver();
  Flush();
}

void SimulatedWorker::Flush() {
  if (process_->outbox.empty()) return;
  auto messages = std::make_shared<std::vector<WorkerProcess::Sent>>(std::move(process_->outbox));
  process_->outbox.clear();
  loop_.After(network_.delay(), [this, messages] {
    for (WorkerProcess::Sent& sent : *messages) {
      if (network_.IsCut(sent.stream->gateway(), number_)) sent.stream->Hold();
      if (sent.response.has_value()) {
        sent.stream->Arrive(*std::move(sent.response));
      } else {
        sent.stream->ArriveEnd(std::move(sent.end));
      }
    }
  });
}

// A step that ran before both waited does not count, so the tenants that wait are those of the last
// look.
void SimulatedWorker::CheckFairness() {
  WorkerProcess& p = *process_;
  engine::StepRecord record;
  p.scheduler.Describe(record);
  std::map<std::string, FairnessCheck::Tokens> tokens;
  for (const engine::StepRecord::SequenceRow& row : record.sequences) {
    FairnessCheck::Tokens& of_tenant = tokens[row.label.substr(1)];
    of_tenant.all += row.new_tokens;
    const bool decodes = row.new_tokens == 1 && row.cached_tokens >= row.prompt_tokens;
    if (row.label[0] == kMigrated && !decodes) of_tenant.migrated += row.new_tokens;
  }
  const absl::Status fair = p.fairness.OnStep(tokens, p.live, p.waiting);
  if (p.fault.ok()) p.fault = fair;
  p.live.clear();
  p.waiting.clear();
  for (const auto& [id, call] : p.calls) {
    p.live.insert(call.tenant);
    if (!call.accepted_sent) p.waiting.insert(call.tenant);
  }
}

void SimulatedWorker::Crash() {
  if (process_ == nullptr) return;
  past_ = totals();
  const std::unique_ptr<WorkerProcess> process = std::move(process_);
  std::vector<std::shared_ptr<WorkerStream>> streams;
  for (const auto& [id, call] : process->calls) streams.push_back(call.stream);
  // The order of a hash map differs from run to run.
  std::ranges::sort(streams, {}, [](const auto& stream) { return stream->serial(); });
  loop_.After(network_.delay(), [this, streams = std::move(streams)] {
    for (const auto& stream : streams) {
      if (network_.IsCut(stream->gateway(), number_)) stream->Hold();
      stream->ArriveEnd(ConnectionReset());
    }
    events_.on_exit();
  });
  if (events_.on_down) events_.on_down();
}

void SimulatedWorker::Restart() {
  if (process_ != nullptr) return;
  process_ = std::make_unique<WorkerProcess>(&profile_, ++num_processes_, &hooks_);
  ReportNow();
}

void SimulatedWorker::Hang(absl::Duration time, bool freezes) {
  if (process_ == nullptr) return;
  WorkerProcess& p = *process_;
  p.hangs_until = std::max(p.hangs_until, clock_.Elapsed() + time);
  if (freezes) p.frozen_until = std::max(p.frozen_until, clock_.Elapsed() + time);
  for (const absl::Duration look : {time + absl::Seconds(1), std::min(time, kShortestHang)}) {
    After(look, &SimulatedWorker::CheckHealth);
  }
}

// The thread of Lifecycle::Tick.
void SimulatedWorker::CheckHealth() {
  WorkerProcess& p = *process_;
  const absl::Duration now = clock_.Elapsed();
  const bool is_frozen = p.frozen_until > now;
  const bool hangs = !p.calls.empty() && p.totals.steps > 0 &&
                     now - p.progress > std::max(kShortestHang, kHangFactor * p.predicted);
  if (!is_frozen && hangs == p.is_healthy) {
    p.is_healthy = !hangs;
    loop_.After(network_.delay(), [this, hangs] { events_.on_health(hangs); });
  }
  // It looks again as long as it may change.
  if (hangs || p.hangs_until > now) After(absl::Milliseconds(50), &SimulatedWorker::CheckHealth);
}

void SimulatedWorker::Drain(absl::Duration grace) {
  if (process_ == nullptr || process_->state != v1::WORKER_STATE_SERVING) return;
  process_->state = v1::WORKER_STATE_DRAINING;
  ++process_->state_changes;
  AwaitReport();
  After(grace, &SimulatedWorker::EndGrace);
  Wake();
}

void SimulatedWorker::EndGrace() {
  process_->ends_all = true;
  Wake();
}

void SimulatedWorker::ExitIfDrained() {
  if (process_->state == v1::WORKER_STATE_DRAINING && process_->calls.empty() &&
      process_->inbox.empty()) {
    Crash();
  }
}

std::optional<WorkerGauges> SimulatedWorker::Gauges() const {
  if (process_ == nullptr || process_->frozen_until > clock_.Elapsed()) return std::nullopt;
  const engine::EngineMetrics& metrics = process_->metrics;
  return WorkerGauges{
      .kv_occupancy = static_cast<double>(metrics.kv_blocks_used.load()) /
                      static_cast<double>(std::max<int64_t>(1, metrics.kv_blocks_total.load())),
      .waiting_tokens = static_cast<double>(metrics.waiting_prompt_tokens.load()),
      .token_seconds = metrics.token_seconds.load()};
}

absl::Status SimulatedWorker::CheckInvariants() {
  return process_ == nullptr ? absl::OkStatus() : process_->CheckInvariants();
}

absl::Status SimulatedWorker::CheckAtRest() const {
  return process_ == nullptr ? absl::OkStatus() : process_->CheckAtRest();
}

void SimulatedWorker::OnLoad() {
  WorkerProcess& p = *process_;
  for (const auto& [tenant, cost] : p.scheduler.TakeLeftQueue()) p.quota.Remove(tenant, cost);
  engine::EngineLoad now = p.load;
  now.running = p.scheduler.num_running();
  now.waiting = p.scheduler.num_waiting();
  now.pending_prompt_tokens = p.scheduler.pending_prompt_tokens();
  now.used_blocks = p.scheduler.pool().num_used();
  now.cached_blocks = p.scheduler.pool().num_cached();
  now.steps = p.totals.steps;
  p.load_changes += now.running != p.load.running || now.waiting != p.load.waiting ||
                    now.pending_prompt_tokens != p.load.pending_prompt_tokens ||
                    now.used_blocks != p.load.used_blocks ||
                    now.cached_blocks != p.load.cached_blocks;
  p.load = now;
  AwaitReport();
}

void SimulatedWorker::AwaitReport() {
  WorkerProcess& p = *process_;
  const absl::Duration due =
      std::max(clock_.Elapsed(), p.pace.NextDue(p.load_changes, p.state_changes));
  if (due >= p.report_due) return;
  p.report_due = due;
  loop_.After(due - clock_.Elapsed(), [this, due, number = num_processes_] {
    if (process_ == nullptr || number != num_processes_ || process_->report_due != due) return;
    ReportNow();
  });
}

void SimulatedWorker::ReportNow() {
  WorkerProcess& p = *process_;
  if (p.frozen_until > clock_.Elapsed()) {
    p.report_due = p.frozen_until;
    return After(p.frozen_until - clock_.Elapsed(), &SimulatedWorker::ReportNow);
  }
  p.pace.Reported(clock_.Elapsed(), p.load_changes, p.state_changes);
  p.report_due = absl::InfiniteDuration();
  loop_.After(network_.delay(), [this, report = MakeReport()] { events_.on_report(report); });
  AwaitReport();
}

v1::WatchLoadResponse SimulatedWorker::MakeReport() const {
  const WorkerProcess& p = *process_;
  v1::WatchLoadResponse report;
  report.set_worker(name_);
  report.set_incarnation(p.incarnation);
  report.set_state(p.state);
  report.set_model(kModelName);
  report.set_fingerprint(kModelName);
  report.set_tokenizer_fingerprint(kModelName);
  int64_t inbox_tokens = 0;
  for (const WorkerProcess::Submitted& submitted : p.inbox) {
    inbox_tokens += engine::NumInputTokens(submitted.request);
  }
  report.set_running_requests(static_cast<uint32_t>(p.load.running));
  report.set_waiting_requests(static_cast<uint32_t>(p.load.waiting + p.inbox.size()));
  report.set_pending_prompt_tokens(
      static_cast<uint64_t>(p.load.pending_prompt_tokens + inbox_tokens));
  report.set_used_kv_blocks(static_cast<uint32_t>(p.load.used_blocks));
  report.set_cached_kv_blocks(static_cast<uint32_t>(p.load.cached_blocks));
  report.set_total_kv_blocks(static_cast<uint32_t>(profile_.engine.num_blocks));
  report.set_block_size_tokens(static_cast<uint32_t>(profile_.engine.block_size));
  report.set_max_running_requests(static_cast<uint32_t>(profile_.engine.max_running));
  report.set_steps(p.load.steps);
  report.set_prefill_tokens_per_second(static_cast<float>(p.prefilled.PerSecond(clock_.Elapsed())));
  report.set_decode_tokens_per_second(static_cast<float>(p.decoded.PerSecond(clock_.Elapsed())));
  return report;
}

WorkerTotals SimulatedWorker::totals() const {
  WorkerTotals sum = past_;
  if (process_ == nullptr) return sum;
  const WorkerTotals& now = process_->totals;
  sum.steps += now.steps;
  sum.busy += now.busy;
  sum.used_block_seconds += now.used_block_seconds;
  sum.running_seconds += now.running_seconds;
  sum.prompt_tokens += now.prompt_tokens;
  sum.sampled_tokens += now.sampled_tokens;
  sum.preemptions += static_cast<int64_t>(process_->metrics.preemptions.load());
  return sum;
}

}  // namespace continuo::simulate
