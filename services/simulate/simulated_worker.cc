// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/simulated_worker.h"

#include <algorithm>
#include <deque>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"
#include "services/protocol/error.h"
#include "services/protocol/proto_time.h"
#include "services/simulate/answer.h"
#include "services/worker/engine/estimate/calibration.h"
#include "services/worker/model/executor.h"

namespace continuo::simulate {
namespace {

// The intervals that gateways ask for (WorkerPoolOptions).
constexpr absl::Duration kMinReportInterval = absl::Milliseconds(100);
constexpr absl::Duration kMaxReportInterval = absl::Milliseconds(500);

engine::EngineOptions EngineOptionsOf(const WorkerProfile& profile) {
  engine::EngineOptions options = profile.engine;
  options.vocab_size = kVocabularySize;
  options.drafter = nullptr;
  return options;
}

// A prompt whose answers are being computed. A stream that comes back while its last call is still
// being ended has two.
struct Prompt {
  int num_tokens = 0, num_calls = 0;
};
using Prompts = absl::flat_hash_map<uint64_t, Prompt>;  // by seed

// The samples of a plan.
model::StepResult Sample(const model::StepPlan& plan, const Prompts& prompts) {
  model::StepResult result;
  result.token_ids.reserve(plan.sample_rows.size());
  for (size_t k = 0; k < plan.sample_rows.size(); ++k) {
    const model::SamplingParams& params = plan.sampling[k];
    const int place = plan.positions[plan.sample_rows[k]] + 1 - prompts.at(params.seed).num_tokens;
    result.token_ids.push_back(AnswerToken(params.seed, params.sequence_index, place));
  }
  result.scores.resize(result.token_ids.size());
  return result;
}

// Lets Calibrate measure the profile: the device of a clock of its own.
class ProfileExecutor : public model::Executor, public Clock {
 public:
  explicit ProfileExecutor(const StepTime* step) : step_(*step) {}

  absl::Time Now() const override { return absl::UnixEpoch() + elapsed_; }
  absl::Status Start(const model::StepPlan& plan, model::MaskFiller) override {
    elapsed_ += step_.Of(LoadOf(plan));
    return absl::OkStatus();
  }
  absl::StatusOr<model::StepResult> Finish() override { return model::StepResult(); }

 private:
  const StepTime& step_;
  absl::Duration elapsed_;
};

absl::Status ConnectionReset() { return absl::UnavailableError("Connection reset by peer"); }

}  // namespace

// Everything that ends with the process.
struct SimulatedWorker::Process {
  // One call of Generate: what its next response says.
  struct Call {
    std::shared_ptr<WorkerStream> stream;
    uint64_t seed = 0;
    v1::Accepted accepted;
    bool accepted_sent = false;
    uint64_t next_sequence = 0;
    uint32_t prompt_tokens = 0, completion_tokens = 0;
    std::string tenant;
  };
  struct Submitted {
    engine::Request request;
    absl::Duration time;
  };
  struct StepInFlight {
    absl::Duration begin, end;
    model::StepResult result;
  };
  // A message on its way to a gateway.
  struct Sent {
    std::shared_ptr<WorkerStream> stream;
    std::optional<v1::GenerateResponse> response;
    absl::Status end;  // without a response
  };

  Process(const engine::EngineOptions& options, const StepTime& step, uint64_t number)
      : incarnation(absl::StrCat(number)),
        scheduler(options, &metrics),
        quota(options.max_queued_tokens),
        pace(kMinReportInterval, kMaxReportInterval) {
    ProfileExecutor executor(&step);
    CONTINUO_CHECK(engine::Calibrate(options, executor, executor, scheduler.cost()).ok());
  }

  void OnEvent(engine::RequestId id, engine::RequestEvent event);

  const std::string incarnation;
  engine::EngineMetrics metrics;
  engine::Scheduler scheduler;
  engine::QueueQuota quota;
  engine::RateMeter prefilled, decoded;
  // Commands for the next turn: submitted requests, then cancelled ones.
  std::vector<Submitted> inbox;
  std::vector<engine::RequestId> cancelled;
  std::deque<StepInFlight> in_flight;  // oldest first
  absl::Duration last_step_end;
  bool is_busy = false;  // a turn or the end of a step is due

  engine::RequestId next_id = 1;
  absl::flat_hash_map<engine::RequestId, Call> calls;
  absl::flat_hash_map<const WorkerStream*, engine::RequestId> ids;
  Prompts prompts;
  std::vector<Sent> outbox;

  v1::WorkerState state = v1::WORKER_STATE_SERVING;
  server::WatchPace pace;
  engine::EngineLoad load;  // as of the last step
  uint64_t load_changes = 0, state_changes = 0;
  absl::Duration report_due = absl::InfiniteDuration();
  WorkerTotals totals;
};

SimulatedWorker::SimulatedWorker(int number, const WorkerProfile* profile, EventLoop* loop,
                                 const Network* network,
                                 std::function<void(const v1::WatchLoadResponse&)> report)
    : number_(number),
      address_(absl::StrCat("worker-", number, ":50051")),
      name_(absl::StrCat("worker-", number)),
      profile_(*profile),
      loop_(*loop),
      network_(*network),
      report_(std::move(report)),
      clock_(loop),
      process_(
          std::make_unique<Process>(EngineOptionsOf(*profile), profile->step, ++num_processes_)) {}

SimulatedWorker::~SimulatedWorker() = default;

void SimulatedWorker::After(absl::Duration delay, void (SimulatedWorker::*method)()) {
  loop_.After(delay, [this, method, number = num_processes_] {
    if (process_ != nullptr && number == num_processes_) (this->*method)();
  });
}

void SimulatedWorker::Receive(std::shared_ptr<WorkerStream> stream,
                              const v1::GenerateRequest& request,
                              const gateway::CallContext& context, bool is_migration) {
  const auto reject = [&](absl::Status status) {
    loop_.After(network_.delay(),
                [stream, status = std::move(status)] { stream->ArriveEnd(status); });
  };
  if (process_ == nullptr) return reject(ConnectionReset());
  Process& p = *process_;
  if (p.state != v1::WORKER_STATE_SERVING) {
    return reject(protocol::WithReason(absl::UnavailableError("the worker is draining"),
                                       protocol::kReasonDraining));
  }
  const v1::GenerateResponse& received = request.continuation().received();
  engine::Request r;
  r.id = p.next_id++;
  r.tenant = context.tenant;
  r.prompt.assign(request.token_ids().ids().begin(), request.token_ids().ids().end());
  r.num_sequences = std::max<int>(1, static_cast<int>(request.sampling().num_sequences()));
  r.max_tokens = static_cast<int>(request.stopping().max_tokens());
  r.sampling.seed = request.sampling().seed();
  if (!request.stopping().ignore_eos()) r.stop_ids = {kEndToken};
  r.priority = request.priority();
  r.is_migration = is_migration;
  r.deadline = context.deadline;
  r.cache_salt = {std::hash<std::string>()(context.tenant), 0};

  Process::Call call = {.stream = stream, .seed = r.sampling.seed, .tenant = context.tenant};
  call.prompt_tokens = static_cast<uint32_t>(r.prompt.size());
  if (received.has_accepted()) {
    call.accepted = received.accepted();
    call.accepted.set_migrations(call.accepted.migrations() + 1);
    call.next_sequence = received.sequence() + 1;
    r.received.resize(r.num_sequences);
  } else {
    call.accepted.set_request_id(context.request_id);
    call.accepted.set_seed(r.sampling.seed);
    call.accepted.set_model(request.model());
    call.accepted.set_fingerprint("simulated");
    call.accepted.set_tokenizer_fingerprint("simulated");
  }
  call.accepted.set_worker(name_);
  for (const v1::Delta& delta : received.deltas()) {
    engine::ReceivedSequence& sequence = r.received.at(delta.index());
    for (const uint32_t id : delta.token_ids()) {
      const int place = static_cast<int>(sequence.tokens.size());
      const int32_t expected = AnswerToken(r.sampling.seed, static_cast<int>(delta.index()), place);
      if (static_cast<int32_t>(id) != expected) {
        return reject(absl::InvalidArgumentError(
            absl::StrCat("the continuation has token ", id, " at ", place, " of sequence ",
                         delta.index(), ", which cannot follow")));
      }
      sequence.tokens.push_back(static_cast<int32_t>(id));
    }
    sequence.finished = delta.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
    call.completion_tokens += static_cast<uint32_t>(sequence.tokens.size());
  }

  // As Engine::Submit.
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
  p.quota.Add(r.tenant, cost);
  p.ids[stream.get()] = r.id;
  Prompt& prompt = p.prompts[r.sampling.seed];
  prompt.num_tokens = static_cast<int>(r.prompt.size());
  prompt.num_calls += 1;
  p.calls.emplace(r.id, std::move(call));
  p.inbox.push_back({.request = std::move(r), .time = clock_.Elapsed()});
  // An idle engine wakes up at once.
  if (!std::exchange(p.is_busy, true)) After(absl::ZeroDuration(), &SimulatedWorker::Turn);
}

void SimulatedWorker::Cancel(const WorkerStream* stream) {
  if (process_ == nullptr) return;
  const auto at = process_->ids.find(stream);
  if (at == process_->ids.end()) return;
  process_->cancelled.push_back(at->second);
  if (!std::exchange(process_->is_busy, true)) {
    After(absl::ZeroDuration(), &SimulatedWorker::Turn);
  }
}

// The order is that of Engine::Loop and RunStep.
void SimulatedWorker::Turn() {
  Process& p = *process_;
  const engine::Moment now = Now();
  for (Process::Submitted& submitted : std::exchange(p.inbox, {})) {
    const engine::RequestId id = submitted.request.id;
    p.scheduler.Add(
        std::move(submitted.request),
        [&p, id](engine::RequestEvent event) { p.OnEvent(id, std::move(event)); }, submitted.time,
        now);
  }
  for (const engine::RequestId id : std::exchange(p.cancelled, {})) {
    p.scheduler.End(id, absl::CancelledError("the client is gone"), now);
  }
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
  }
}

void SimulatedWorker::BeginStep() {
  Process& p = *process_;
  const int before = p.scheduler.num_steps_in_flight();
  const model::StepPlan& plan = p.scheduler.Schedule(Now());
  if (p.scheduler.num_steps_in_flight() == before) return;
  const absl::Duration begin = p.in_flight.empty() ? clock_.Elapsed() : p.in_flight.back().end;
  p.in_flight.push_back({.begin = begin,
                         .end = begin + profile_.step.Of(LoadOf(plan)),
                         .result = Sample(plan, p.prompts)});
  if (!profile_.is_asynchronous) Deliver();
}

void SimulatedWorker::EndStep() {
  Process& p = *process_;
  const engine::Moment now = Now();
  Process::StepInFlight step = std::move(p.in_flight.front());
  p.in_flight.pop_front();
  const absl::Duration took = step.end - step.begin;
  const absl::Status committed = p.scheduler.Commit(std::move(step.result), now, took);
  CONTINUO_CHECK(committed.ok());
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
  auto messages = std::make_shared<std::vector<Process::Sent>>(std::move(process_->outbox));
  process_->outbox.clear();
  loop_.After(network_.delay(), [this, messages] {
    for (Process::Sent& sent : *messages) {
      if (network_.IsCut(sent.stream->gateway(), number_)) sent.stream->Hold();
      if (sent.response.has_value()) {
        sent.stream->Arrive(*std::move(sent.response));
      } else {
        sent.stream->ArriveEnd(std::move(sent.end));
      }
    }
  });
}

void SimulatedWorker::Process::OnEvent(engine::RequestId id, engine::RequestEvent event) {
  const auto at = calls.find(id);
  CONTINUO_CHECK(at != calls.end());
  Call& call = at->second;
  v1::GenerateResponse response;
  if (event.started && !std::exchange(call.accepted_sent, true)) {
    *response.mutable_accepted() = call.accepted;
  }
  for (const engine::SequenceDelta& delta : event.deltas) {
    v1::Delta& sent = *response.add_deltas();
    sent.set_index(static_cast<uint32_t>(delta.index));
    for (const int32_t token : delta.tokens) sent.add_token_ids(static_cast<uint32_t>(token));
    call.completion_tokens += static_cast<uint32_t>(delta.tokens.size());
    if (delta.finish != engine::FinishReason::kNone) {
      sent.set_finish_reason(delta.finish == engine::FinishReason::kStop
                                 ? v1::FINISH_REASON_STOP
                                 : v1::FINISH_REASON_LENGTH);
    }
  }
  const bool is_complete = event.ended.has_value() && event.ended->ok();
  if (is_complete) {
    v1::Summary& summary = *response.mutable_summary();
    summary.mutable_usage()->set_prompt_tokens(call.prompt_tokens);
    summary.mutable_usage()->set_cached_prompt_tokens(
        static_cast<uint32_t>(event.cached_prompt_tokens));
    summary.mutable_usage()->set_completion_tokens(call.completion_tokens);
    const engine::RequestTimings& timings = event.timings;
    *summary.mutable_timings()->mutable_queue_duration() = protocol::ToProto(timings.queue);
    *summary.mutable_timings()->mutable_prefill_duration() = protocol::ToProto(timings.prefill);
    *summary.mutable_timings()->mutable_total_duration() = protocol::ToProto(timings.total);
    summary.set_migrations(call.accepted.migrations());
  }
  if (response.has_accepted() || response.deltas_size() > 0 || is_complete) {
    response.set_sequence(call.next_sequence++);
    outbox.push_back({.stream = call.stream, .response = std::move(response)});
  }
  if (!event.ended.has_value()) return;
  outbox.push_back({.stream = call.stream, .end = *std::move(event.ended)});
  const auto prompt = prompts.find(call.seed);
  if (--prompt->second.num_calls == 0) prompts.erase(prompt);
  ids.erase(call.stream.get());
  calls.erase(at);
}

void SimulatedWorker::OnLoad() {
  Process& p = *process_;
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
  Process& p = *process_;
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
  Process& p = *process_;
  p.pace.Reported(clock_.Elapsed(), p.load_changes, p.state_changes);
  p.report_due = absl::InfiniteDuration();
  loop_.After(network_.delay(), [this, report = MakeReport()] { report_(report); });
  AwaitReport();
}

v1::WatchLoadResponse SimulatedWorker::MakeReport() const {
  const Process& p = *process_;
  v1::WatchLoadResponse report;
  report.set_worker(name_);
  report.set_incarnation(p.incarnation);
  report.set_state(p.state);
  report.set_model("simulated");
  report.set_fingerprint("simulated");
  report.set_tokenizer_fingerprint("simulated");
  int64_t inbox_tokens = 0;
  for (const Process::Submitted& submitted : p.inbox) {
    inbox_tokens += engine::TokensToRead(submitted.request);
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
