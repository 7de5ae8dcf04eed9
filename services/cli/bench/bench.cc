// SPDX-License-Identifier: Apache-2.0
#include "services/cli/bench/bench.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "services/base/status_macros.h"
#include "services/cli/bench/bench_report.h"
#include "services/cli/client/terminal.h"
#include "services/common/grpc/grpc_status.h"

namespace continuo::cli {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

class Call;

// The calls in flight and what became of the others. Thread-safe.
class Load {
 public:
  // Without a workload nothing can be started.
  Load(const BenchFlags& flags, const Workload* workload) : flags_(flags), workload_(workload) {}

  // One stub for each connection; calls take them in turn.
  absl::Status Connect();
  v1::InferenceService::Stub* stub(uint64_t index) { return stubs_[index % stubs_.size()].get(); }

  void Start(const PlannedRequest& request);
  // Takes the record of a call, which may be gone after this.
  void Finish(Call* call, RequestRecord record);

  // Cancels what is in flight and lets nothing new start.
  void Cancel();
  // Until fewer than `most` calls are in flight, or the time has come, or it was cancelled.
  void WaitForRoom(size_t most, Clock::time_point until);
  // Until that time, or it was cancelled.
  void WaitUntil(Clock::time_point until) { WaitForRoom(0, until); }

  size_t num_in_flight() const;
  size_t num_finished() const;
  uint64_t output_tokens() const { return output_tokens_.load(std::memory_order_relaxed); }
  bool cancelled() const;
  std::vector<RequestRecord> TakeRecords();
  // Between the first token of the flags.concurrency-th answer and that of the last one.
  SteadyState steady() const;

 private:
  friend class Call;
  struct Moment {
    Clock::time_point when;
    uint64_t output_tokens = 0;
  };
  void CountFirstToken(Clock::time_point now);

  const BenchFlags& flags_;
  const Workload* const workload_;
  std::vector<std::unique_ptr<v1::InferenceService::Stub>> stubs_;
  std::atomic<uint64_t> output_tokens_ = 0;  // As they come, for the progress bar.

  mutable absl::Mutex mutex_;
  std::map<Call*, std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
  std::vector<RequestRecord> records_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t num_begun_ ABSL_GUARDED_BY(mutex_) = 0;  // answers
  Moment full_ ABSL_GUARDED_BY(mutex_), last_begun_ ABSL_GUARDED_BY(mutex_);
};

// One request; its Load owns it until OnDone.
class Call : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Call(Load* load, const PlannedRequest& planned) : load_(load) {
    const BenchFlags& flags = load->flags_;
    request_.set_model(flags.model);
    const std::vector<uint32_t> ids = load->workload_->PromptIds(planned);
    request_.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
    request_.mutable_sampling()->set_temperature(static_cast<float>(flags.temperature));
    request_.mutable_sampling()->set_seed(flags.seed + planned.index);
    request_.mutable_stopping()->set_max_tokens(planned.output_tokens);
    request_.mutable_stopping()->set_ignore_eos(flags.ignore_eos);
    request_.mutable_cache()->set_bypass(flags.bypass_cache);
    record_.prompt_tokens = planned.prompt_tokens;
    AddMetadata(flags.connection, context_);
    if (flags.timeout != absl::InfiniteDuration()) {
      context_.set_deadline(absl::ToChronoTime(absl::Now() + flags.timeout));
    }
  }
  void Run(v1::InferenceService::Stub* stub) {
    start_ = last_ = Clock::now();
    stub->async()->Generate(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    size_t num_tokens = 0;
    for (const v1::Delta& delta : response_.deltas()) num_tokens += delta.token_ids_size();
    if (num_tokens > 0) CountTokens(num_tokens);
    if (response_.has_summary()) {
      record_.cached_prompt_tokens = response_.summary().usage().cached_prompt_tokens();
      record_.migrations = response_.summary().migrations();
    }
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override {
    record_.status = common::FromGrpcStatus(status);
    record_.duration = SecondsBetween(start_, Clock::now());
    load_->Finish(this, std::move(record_));
  }

 private:
  void CountTokens(size_t num_tokens) {
    const Clock::time_point now = Clock::now();
    if (record_.output_tokens == 0) {
      // What comes with the first token took no time of its own.
      record_.time_to_first_token = SecondsBetween(start_, now);
      load_->CountFirstToken(now);
      record_.inter_token.insert(record_.inter_token.end(), num_tokens - 1, 0.0f);
    } else {
      const double gap = SecondsBetween(last_, now) / static_cast<double>(num_tokens);
      record_.inter_token.insert(record_.inter_token.end(), num_tokens, static_cast<float>(gap));
    }
    last_ = now;
    record_.output_tokens += num_tokens;
    load_->output_tokens_.fetch_add(num_tokens, std::memory_order_relaxed);
  }

  Load* const load_;
  Clock::time_point start_, last_;
  grpc::ClientContext context_;
  v1::GenerateRequest request_;
  v1::GenerateResponse response_;
  RequestRecord record_;
};

absl::Status Load::Connect() {
  for (uint32_t i = 0; i < flags_.connections; ++i) {
    std::shared_ptr<grpc::Channel> channel;
    ASSIGN_OR_RETURN(channel, OpenChannel(flags_.connection, static_cast<int>(i)));
    stubs_.push_back(v1::InferenceService::NewStub(channel));
  }
  return absl::OkStatus();
}

void Load::Start(const PlannedRequest& request) {
  const auto call = std::make_shared<Call>(this, request);
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_) return;
    calls_[call.get()] = call;
  }
  call->Run(stub(request.index));
}

void Load::Finish(Call* call, RequestRecord record) {
  std::shared_ptr<Call> last;  // Goes after the mutex.
  absl::MutexLock lock(&mutex_);
  records_.push_back(std::move(record));
  last = std::move(calls_[call]);
  calls_.erase(call);
}

void Load::CountFirstToken(Clock::time_point now) {
  const Moment moment = {now, output_tokens()};
  absl::MutexLock lock(&mutex_);
  if (++num_begun_ == flags_.concurrency) full_ = moment;
  last_begun_ = moment;
}

SteadyState Load::steady() const {
  absl::MutexLock lock(&mutex_);
  if (num_begun_ <= flags_.concurrency || last_begun_.when <= full_.when) return {};
  return {.seconds = SecondsBetween(full_.when, last_begun_.when),
          .begun = num_begun_ - flags_.concurrency,
          .output_tokens = last_begun_.output_tokens - full_.output_tokens};
}

void Load::Cancel() {
  std::map<Call*, std::shared_ptr<Call>> calls;
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    calls = calls_;
  }
  // Not under the mutex: a cancelled call may call back from within.
  for (const auto& [call, owner] : calls) call->Cancel();
}

void Load::WaitForRoom(size_t most, Clock::time_point until) {
  absl::MutexLock lock(&mutex_);
  const auto ready = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return cancelled_ || calls_.size() < most;
  };
  mutex_.AwaitWithTimeout(absl::Condition(&ready), absl::FromChrono(until - Clock::now()));
}

size_t Load::num_in_flight() const {
  absl::MutexLock lock(&mutex_);
  return calls_.size();
}

size_t Load::num_finished() const {
  absl::MutexLock lock(&mutex_);
  return records_.size();
}

bool Load::cancelled() const {
  absl::MutexLock lock(&mutex_);
  return cancelled_;
}

std::vector<RequestRecord> Load::TakeRecords() {
  absl::MutexLock lock(&mutex_);
  return std::move(records_);
}

// Prints how far it is, on a terminal, at most ten times a second.
class Progress {
 public:
  Progress(const Console& console, const BenchFlags& flags, uint64_t requests)
      : console_(console), flags_(flags), requests_(requests) {}
  ~Progress() {
    if (shown_) console_.err << "\r\x1b[K" << std::flush;
  }
  void Show(const Load& load) {
    const Clock::time_point now = Clock::now();
    if (!console_.err_terminal || now < next_) return;
    next_ = now + std::chrono::milliseconds(100);
    shown_ = true;
    const double seconds = SecondsBetween(begin_, now);
    const auto finished = static_cast<double>(load.num_finished());
    double done = requests_ > 0 ? finished / static_cast<double>(requests_) : 0;
    if (flags_.duration != absl::InfiniteDuration()) {
      done = std::max(done, seconds / absl::ToDoubleSeconds(flags_.duration));
    }
    console_.err << "\r\x1b[K" << ProgressBar(done, 30) << "  " << finished << " done, "
                 << load.num_in_flight() << " in flight, "
                 << FormatCount(static_cast<double>(load.output_tokens()) / seconds) << " tokens/s"
                 << std::flush;
  }

 private:
  const Console& console_;
  const BenchFlags& flags_;
  const uint64_t requests_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point next_ = begin_ + std::chrono::milliseconds(100);
  bool shown_ = false;
};

// Sends `requests` requests (0 is no limit), until the duration has passed, and waits for their
// ends. Returns how many were cut to the context.
uint64_t Drive(const BenchFlags& flags, bool open, uint64_t requests, Workload& workload,
               Load& load, Progress& progress) {
  constexpr auto kTick = std::chrono::milliseconds(100);
  const Clock::time_point begin = Clock::now();
  const bool timed = flags.duration != absl::InfiniteDuration();
  const Clock::time_point end =
      begin + (timed ? absl::ToChronoNanoseconds(flags.duration) : std::chrono::hours(24 * 365));
  uint64_t cut = 0;
  for (uint64_t sent = 0; requests == 0 || sent < requests; ++sent) {
    const PlannedRequest request = workload.Next();
    const Clock::time_point arrival = begin + absl::ToChronoNanoseconds(request.arrival);
    const auto due = [&] {
      return open ? Clock::now() >= arrival : load.num_in_flight() < flags.concurrency;
    };
    while (!due() && !load.cancelled() && Clock::now() < end) {
      progress.Show(load);
      const Clock::time_point tick = std::min(end, Clock::now() + kTick);
      if (open) {
        load.WaitUntil(std::min(tick, arrival));
      } else {
        load.WaitForRoom(flags.concurrency, tick);
      }
    }
    if (load.cancelled() || Clock::now() >= end) break;
    cut += request.cut;
    load.Start(request);
  }
  while (load.num_in_flight() > 0) {
    progress.Show(load);
    // Returns at once after a cancel, when the rest takes moments.
    load.WaitForRoom(1, Clock::now() + kTick);
  }
  return cut;
}

absl::StatusOr<v1::Model> GetModel(const BenchFlags& flags, v1::InferenceService::Stub* stub) {
  grpc::ClientContext context;
  AddMetadata(flags.connection, context);
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(10)));
  v1::GetModelRequest request;
  request.set_name(flags.model);
  v1::GetModelResponse response;
  RETURN_IF_ERROR(common::FromGrpcStatus(stub->GetModel(&context, request, &response)));
  if (response.model().vocabulary_size() == 0) {
    return absl::FailedPreconditionError("the server does not tell the vocabulary's size");
  }
  return response.model();
}

nlohmann::ordered_json ConfigJson(const BenchFlags& f, const v1::Model& model, bool open) {
  return {{"server", f.connection.server},
          {"model", model.name()},
          {"loop", open ? "open" : "closed"},
          {"concurrency", f.concurrency},
          {"rate", f.rate},
          {"trace", f.trace},
          {"trace_speed", f.trace_speed},
          {"prompt_tokens", f.prompt_tokens},
          {"output_tokens", f.output_tokens},
          {"shared_prefix_tokens", f.shared_prefix_tokens},
          {"num_prefixes", f.num_prefixes},
          {"seed", f.seed},
          {"temperature", f.temperature},
          {"ignore_eos", f.ignore_eos},
          {"bypass_cache", f.bypass_cache},
          {"connections", f.connections}};
}

absl::StatusOr<int> Run(const BenchFlags& flags, Interrupt& interrupt, const Console& console) {
  WorkloadOptions options;
  ASSIGN_OR_RETURN(options.prompt, LengthDistribution::Parse(flags.prompt_tokens));
  ASSIGN_OR_RETURN(options.output, LengthDistribution::Parse(flags.output_tokens));
  if (!flags.trace.empty()) {
    ASSIGN_OR_RETURN(options.trace, LoadTrace(flags.trace));
  }
  options.seed = flags.seed;
  options.rate = flags.rate;
  options.trace_speed = flags.trace_speed;
  options.shared_prefix_tokens = flags.shared_prefix_tokens;
  options.num_prefixes = flags.num_prefixes;
  const bool arrivals =
      flags.trace_arrivals && !options.trace.empty() && options.trace[0].arrival.has_value();
  const bool open = flags.rate > 0 || arrivals;
  const bool timed = flags.duration != absl::InfiniteDuration();
  const uint64_t requests = flags.requests.value_or(timed                   ? 0
                                                    : options.trace.empty() ? 100
                                                                            : options.trace.size());

  BenchFlags first = flags;
  first.connections = 1;
  Load probe(first, nullptr);
  RETURN_IF_ERROR(probe.Connect());
  v1::Model model;
  ASSIGN_OR_RETURN(model, GetModel(flags, probe.stub(0)));
  options.vocabulary_size = model.vocabulary_size();
  options.max_context_tokens = model.max_context_tokens();

  const auto drive = [&](const BenchFlags& with, bool is_open, uint64_t count, Workload& workload,
                         Load& load) {
    Interrupt::Scope scope(&interrupt, [&] { load.Cancel(); });
    Progress progress(console, with, count);
    return Drive(with, is_open, count, workload, load, progress);
  };
  if (flags.warmup > 0) {
    WorkloadOptions other = options;
    other.seed = ~options.seed;  // Not the prompts that are measured.
    Workload workload(other);
    Load load(flags, &workload);
    RETURN_IF_ERROR(load.Connect());
    BenchFlags untimed = flags;
    untimed.duration = absl::InfiniteDuration();
    drive(untimed, /*is_open=*/false, flags.warmup, workload, load);
    if (load.cancelled()) return 130;
  }

  Workload workload(options);
  Load load(flags, &workload);
  RETURN_IF_ERROR(load.Connect());
  const Clock::time_point begin = Clock::now();
  const uint64_t cut = drive(flags, open, requests, workload, load);
  BenchReport report = MakeReport(load.TakeRecords(), SecondsBetween(begin, Clock::now()));
  report.cut = cut;
  if (!open) report.steady = load.steady();
  if (!flags.json.empty()) {
    nlohmann::ordered_json json = ReportJson(report);
    json["config"] = ConfigJson(flags, model, open);
    if (flags.json == "-") {
      console.out << json.dump(2) << std::endl;
    } else {
      std::ofstream file(flags.json);
      file << json.dump(2) << std::endl;
      if (!file.good()) {
        return absl::UnavailableError(absl::StrCat("cannot write \"", flags.json, "\""));
      }
    }
  }
  if (flags.json != "-") console.out << FormatReport(report) << std::flush;
  if (load.cancelled()) return 130;
  return report.failed == 0 && report.ok > 0 ? 0 : 1;
}

}  // namespace

void AddBenchFlags(common::Flags& flags, BenchFlags* v) {
  AddConnectionFlags(flags, &v->connection);
  flags.Text("model", &v->model, "name of the model, where several are served");
  flags.Integer("concurrency", &v->concurrency, 1u, 100'000u,
                "closed loop: requests in flight at any time");
  flags.Number("rate", &v->rate, 0, 1e6,
               "open loop: requests a second, at random times (Poisson), however many are in "
               "flight; 0 is a closed loop");
  flags.Integer("requests", &v->requests, uint64_t{1}, uint64_t{1} << 40,
                "how many requests; else until --duration, once through the trace, or 100");
  flags.Duration("duration", &v->duration, absl::Milliseconds(1), absl::InfiniteDuration(),
                 "no new requests after this; those in flight may end");
  flags.Integer("warmup", &v->warmup, 0u, 1'000'000u, "requests before it, which are not counted");
  flags.Text("prompt_tokens", &v->prompt_tokens,
             "lengths of prompts: N, uniform:MIN:MAX or exponential:MEAN");
  flags.Text("output_tokens", &v->output_tokens, "lengths of answers, as above");
  flags.Text(
      "trace", &v->trace,
      "CSV or JSON lines with prompt and output tokens, and perhaps arrivals, to use instead");
  flags.Switch("trace_arrivals", &v->trace_arrivals,
               "send at the trace's times, unless --rate is given");
  flags.Number("trace_speed", &v->trace_speed, 1e-6, 1e6,
               "how many times faster than the trace's times");
  flags.Integer("shared_prefix_tokens", &v->shared_prefix_tokens, 0u, 1u << 24,
                "added in front of every prompt, the same for all");
  flags.Integer("num_prefixes", &v->num_prefixes, 1u, 1u << 24, "different ones of these");
  flags.Integer("seed", &v->seed, uint64_t{0}, std::numeric_limits<uint64_t>::max(),
                "of prompts, lengths, arrivals and sampling");
  flags.Number("temperature", &v->temperature, 0, 100, "of the sampling");
  flags.Switch("ignore_eos", &v->ignore_eos, "generate the whole length");
  flags.Switch("bypass_cache", &v->bypass_cache, "neither use nor fill the prefix cache");
  flags.Integer("connections", &v->connections, 1u, 1000u, "TCP connections to share the load");
  flags.Duration("timeout", &v->timeout, absl::Milliseconds(1), absl::InfiniteDuration(),
                 "deadline of each request");
  flags.Text("json", &v->json, "file for the report as JSON; - prints it instead of the table");
  flags.Footer(
      "Prompts are random token ids of the model's vocabulary, drawn from the seed. The time "
      "between tokens is the gap between responses, divided among the tokens that came together. "
      "A request that was refused for overload (RESOURCE_EXHAUSTED) counts as shed. Exit code: 0, "
      "1 where a request failed or none ended well, 2 for bad usage, 130 when interrupted.");
}

int RunBench(const BenchFlags& flags, Interrupt& interrupt, const Console& console) {
  const absl::StatusOr<int> code = Run(flags, interrupt, console);
  if (code.ok()) return *code;
  console.err << "continuo bench: " << DescribeError(code.status()) << std::endl;
  return absl::IsInvalidArgument(code.status()) ? 2 : 1;
}

}  // namespace continuo::cli
