// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulates workers, a client and time for one StreamRelay, without threads: everything that
// happens is an event on a virtual clock, and every delay and fault comes from one seed.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "services/base/check.h"
#include "services/gateway/relay/stream_relay.h"
#include "services/protocol/error.h"
#include "tests/testing/fake_generation.h"
#include "tests/testing/manual_clock.h"

namespace continuo::gateway {

// Runs events in the order of their time.
class Simulation : public Timer {
 public:
  explicit Simulation(uint64_t seed) : random(seed) {}

  void After(absl::Duration delay, std::function<void()> callback) override {
    events_.emplace(std::pair(clock.Now() + std::max(delay, absl::ZeroDuration()), number_++),
                    std::move(callback));
  }
  // Runs until no event is left, or until that time.
  void Run(absl::Time until = absl::InfiniteFuture()) {
    while (!events_.empty() && events_.begin()->first.first <= until) {
      const auto event = events_.extract(events_.begin());
      if (event.key().first > clock.Now()) clock.Advance(event.key().first - clock.Now());
      event.mapped()();
    }
  }
  size_t num_due() const { return events_.size(); }
  int Draw(int end) { return std::uniform_int_distribution<int>(0, end - 1)(random); }
  absl::Duration Delay(absl::Duration max) { return max * (Draw(1000) / 1000.0); }

  ManualClock clock;
  std::mt19937_64 random;

 private:
  std::map<std::pair<absl::Time, uint64_t>, std::function<void()>> events_;
  uint64_t number_ = 0;
};

// A way in which a simulated call ends before its answer does.
struct Fault {
  enum class Kind {
    kCut,         // UNAVAILABLE as gRPC itself makes it
    kCancelled,   // CANCELLED that the relay has not caused
    kReset,       // INTERNAL as RST_STREAM gives it
    kEarlyOk,     // OK without a summary
    kDrain,       // UNAVAILABLE, reason DRAINING
    kGap,         // a response is left out
    kOverloaded,  // RESOURCE_EXHAUSTED
    kSlowReader,  // RESOURCE_EXHAUSTED, reason SLOW_READER
    kInvalid,     // INVALID_ARGUMENT
    kKill,        // the process dies with all its calls
    kHang,        // nothing more comes; after two seconds its WatchLoad counts as silent
    kLongCut,     // as kHang, and the worker is not heard of for a minute
    kHungEngine,  // nothing more comes; after two seconds its health tells
    kInexact,     // UNAVAILABLE, reason NO_WORKER: exact_only, and it has no fingerprint
  };
  Kind kind;
  int after_responses;
};

// Simulated workers behind a real Router.
class SimulatedFleet : public WorkerTransport {
 public:
  struct Try {
    std::string address;
    v1::GenerateRequest request;
    CallContext context;
    bool is_migration;
  };

  explicit SimulatedFleet(Simulation* simulation) : sim(simulation) {}

  void AddWorker(const std::string& address, FakeGeneration::Worker worker = {}) {
    worker.name = address;
    workers_[address] = {.worker = std::move(worker), .incarnation = next_incarnation_++};
    Publish();
  }
  // The worker leaves DNS.
  void RemoveWorker(const std::string& address) {
    workers_.erase(address);
    Publish();
  }
  void SetState(const std::string& address, WorkerState state, bool refused = false) {
    workers_[address].state = state;
    workers_[address].refused = refused;
    Publish();
  }
  // The process ends with all its calls; another one starts after a while, if wanted.
  void Kill(const std::string& address, std::optional<absl::Duration> restart_after);

  std::shared_ptr<WorkerCall> Start(std::shared_ptr<StreamRelay> relay, int attempt,
                                    const Lease& lease, const v1::GenerateRequest& request,
                                    const CallContext& context, bool is_migration) override;

  // The reports of all workers arrive, as at a WorkerPool several times a second.
  void Publish();

  Simulation* const sim;
  LoadView view;
  Router router{&LeastLoadedOfTwo, &view, &sim->clock, sim->random};
  // Asked at each call for its fault, if any.
  std::function<std::optional<Fault>(const Try&, int number)> faults;
  // Changes the responses of workers, if set.
  std::function<void(v1::GenerateResponse&)> edit;
  std::optional<absl::Duration> restart_after = absl::Milliseconds(300);
  absl::Duration response_delay = absl::Milliseconds(30);
  // With output.collect, workers tell when they accept; that counts as a response in Fault.
  bool tells_accepted = true;
  std::vector<Try> tries;
  int num_reads = 0;
  int num_live = 0, max_live = 0;  // calls that have neither ended nor been abandoned

 private:
  class Call;
  struct WorkerProcess {
    FakeGeneration::Worker worker;
    int incarnation = 0;
    WorkerState state = WorkerState::kServing;
    bool refused = false;
    std::set<std::shared_ptr<Call>> calls = {};
    absl::Duration report_time = {};
  };
  std::map<std::string, WorkerProcess> workers_;
  int next_incarnation_ = 1;
};

// One call to a simulated worker.
class SimulatedFleet::Call : public WorkerCall, public std::enable_shared_from_this<Call> {
 public:
  Call(SimulatedFleet* fleet, std::string address, std::shared_ptr<StreamRelay> relay, int attempt,
       const FakeGeneration& generation, std::optional<Fault> fault, bool collect)
      : fleet_(fleet),
        address_(std::move(address)),
        relay_(std::move(relay)),
        attempt_(attempt),
        generation_(generation),
        fault_(fault),
        will_tell_accepted_(collect && fleet->tells_accepted) {
    fleet_->max_live = std::max(fleet_->max_live, ++fleet_->num_live);
  }
  void StartRead() override {
    CONTINUO_CHECK(!reading_ && !closed_);
    reading_ = true;
    ++fleet_->num_reads;
    if (end_.has_value()) {
      Post([this] { End(*end_); });
    } else {
      Post([this] { Step(); });
    }
  }
  // Events that were on their way may still arrive.
  void Abandon() override {
    Close();
    fleet_->sim->After(fleet_->sim->Delay(fleet_->response_delay), [self = shared_from_this()] {
      if (self->will_tell_accepted_) self->relay_->OnAccepted(self->attempt_);
      if (std::optional<v1::GenerateResponse> late = self->generation_.Next()) {
        self->relay_->OnResponse(self->attempt_, *std::move(late));
      }
      self->relay_->OnWorkerEnd(self->attempt_, absl::CancelledError("abandoned"));
    });
  }
  // The process has exited.
  void Die() {
    end_ = absl::UnavailableError("Connection reset by peer");
    if (reading_) Post([this] { End(*end_); });
  }

 private:
  void Post(std::function<void()> f) {
    fleet_->sim->After(fleet_->sim->Delay(fleet_->response_delay),
                       [self = shared_from_this(), f = std::move(f)] {
                         if (!self->closed_) f();
                       });
  }
  void Step() {
    if (!reading_ || end_.has_value()) return;
    if (fault_.has_value() && num_sent_ == fault_->after_responses && Break()) return;
    if (!generation_.status().ok()) return End(generation_.status());
    if (std::exchange(will_tell_accepted_, false)) {
      ++num_sent_;
      Post([this] { Step(); });
      return relay_->OnAccepted(attempt_);
    }
    std::optional<v1::GenerateResponse> response = generation_.Next();
    if (!response.has_value()) return End(absl::OkStatus());
    if (fleet_->edit) fleet_->edit(*response);
    ++num_sent_;
    reading_ = false;
    relay_->OnResponse(attempt_, *std::move(response));
  }
  // True if nothing follows.
  bool Break() {
    switch (fault_->kind) {
      case Fault::Kind::kCut:
        End(absl::UnavailableError("Connection reset by peer"));
        return true;
      case Fault::Kind::kCancelled:
        End(absl::CancelledError("CANCELLED"));
        return true;
      case Fault::Kind::kReset:
        End(absl::InternalError("Received RST_STREAM with error code 2"));
        return true;
      case Fault::Kind::kEarlyOk:
        End(absl::OkStatus());
        return true;
      case Fault::Kind::kDrain:
        fleet_->SetState(address_, WorkerState::kDraining);
        fleet_->sim->After(absl::Milliseconds(500), [fleet = fleet_, address = address_] {
          fleet->SetState(address, WorkerState::kServing);
        });
        End(protocol::WithReason(absl::UnavailableError("draining"), protocol::kReasonDraining));
        return true;
      case Fault::Kind::kGap:
        generation_.Next();
        return false;
      case Fault::Kind::kOverloaded:
        End(protocol::WithReason(absl::ResourceExhaustedError("full"),
                                 protocol::kReasonOverloaded));
        return true;
      case Fault::Kind::kSlowReader:
        End(protocol::WithReason(absl::ResourceExhaustedError("not read"),
                                 protocol::kReasonSlowReader));
        return true;
      case Fault::Kind::kInexact:
        End(protocol::WithReason(absl::UnavailableError("exact_only"), protocol::kReasonNoWorker));
        return true;
      case Fault::Kind::kInvalid:
        End(absl::InvalidArgumentError("sampling.top_k: no"));
        return true;
      case Fault::Kind::kKill:
        fleet_->Kill(address_, fleet_->restart_after);
        return true;
      case Fault::Kind::kHang:
        Lose(WorkerState::kLost, absl::Seconds(1));
        return true;
      case Fault::Kind::kLongCut:
        Lose(WorkerState::kLost, absl::Minutes(1));
        return true;
      case Fault::Kind::kHungEngine:
        Lose(WorkerState::kHung, absl::InfiniteDuration());
        return true;
    }
    return false;
  }
  // Two seconds from now the worker is in `state`, for `time`.
  void Lose(WorkerState state, absl::Duration time) {
    fleet_->sim->After(absl::Seconds(2), [fleet = fleet_, address = address_, state, time] {
      fleet->SetState(address, state);
      fleet->router.WorkerLost(address, "");
      if (time == absl::InfiniteDuration()) return;
      fleet->sim->After(time,
                        [fleet, address] { fleet->SetState(address, WorkerState::kServing); });
    });
  }
  void End(const absl::Status& status) {
    Close();
    relay_->OnWorkerEnd(attempt_, status);
  }
  void Close() {
    if (std::exchange(closed_, true)) return;
    --fleet_->num_live;
    fleet_->workers_[address_].calls.erase(shared_from_this());
  }

  SimulatedFleet* const fleet_;
  const std::string address_;
  const std::shared_ptr<StreamRelay> relay_;
  const int attempt_;
  FakeGeneration generation_;
  const std::optional<Fault> fault_;
  bool will_tell_accepted_;
  int num_sent_ = 0;
  bool reading_ = false, closed_ = false;
  std::optional<absl::Status> end_;
};

inline void SimulatedFleet::Kill(const std::string& address,
                                 std::optional<absl::Duration> restart) {
  const std::set<std::shared_ptr<Call>> calls = workers_[address].calls;
  for (const auto& call : calls) call->Die();
  SetState(address, WorkerState::kLost);
  sim->After(absl::Milliseconds(60), [this, address] {
    if (workers_[address].state == WorkerState::kLost) {
      SetState(address, WorkerState::kLost, /*refused=*/true);
    }
  });
  if (!restart.has_value()) return;
  sim->After(*restart, [this, address, incarnation = next_incarnation_++] {
    workers_[address].incarnation = incarnation;
    SetState(address, WorkerState::kServing);
  });
}

inline std::shared_ptr<WorkerCall> SimulatedFleet::Start(std::shared_ptr<StreamRelay> relay,
                                                         int attempt, const Lease& lease,
                                                         const v1::GenerateRequest& request,
                                                         const CallContext& context,
                                                         bool is_migration) {
  tries.push_back({lease.address(), request, context, is_migration});
  WorkerProcess& process = workers_[lease.address()];
  const std::optional<Fault> fault =
      faults ? faults(tries.back(), static_cast<int>(tries.size()) - 1) : std::nullopt;
  auto call = std::make_shared<Call>(this, lease.address(), std::move(relay), attempt,
                                     FakeGeneration(process.worker, request, context.request_id),
                                     fault, request.output().collect());
  if (process.state == WorkerState::kLost) call->Die();
  process.calls.insert(call);
  return call;
}

inline void SimulatedFleet::Publish() {
  LoadSnapshot snapshot;
  snapshot.discovery_complete = true;
  std::set<std::string> models;
  for (auto& [address, process] : workers_) {
    if (process.state != WorkerState::kLost) process.report_time = sim->clock.Elapsed();
    models.insert(process.worker.model);
    snapshot.workers.push_back(std::make_shared<const WorkerLoad>(WorkerLoad{
        .address = address,
        .worker = process.worker.name,
        .incarnation = std::to_string(process.incarnation),
        .model = process.worker.model,
        .fingerprint = process.worker.fingerprint,
        .tokenizer_fingerprint = process.worker.tokenizer_fingerprint,
        .state = process.state,
        .refused = process.refused,
        .report_time = process.report_time,
    }));
  }
  snapshot.known_models.assign(models.begin(), models.end());
  view.Set(std::move(snapshot));
  router.ViewChanged();
}

// A client that keeps its responses.
class SimulatedClient : public RelayClient {
 public:
  explicit SimulatedClient(Simulation* simulation) : sim_(simulation) {}

  void Write(const v1::GenerateResponse& response) override {
    CONTINUO_CHECK(!writing && !status.has_value());
    writing = true;
    responses.push_back(response);
    if (stalled) return;
    sim_->After(sim_->Delay(write_delay), [this] { Written(!gone); });
  }
  void Finish(const absl::Status& end, const RelayReport& r) override {
    CONTINUO_CHECK(!writing && !status.has_value());
    status = end;
    report = r;
    finish_time = sim_->clock.Now();
  }
  void WriteLast(const v1::GenerateResponse& response, const absl::Status& end,
                 const RelayReport& r) override {
    Finish(end, r);
    responses.push_back(response);
    ++num_last;
  }
  void OnGivenUp(const absl::Status& end, const RelayReport& r) override {
    given_up = end;
    report = r;
  }
  void Written(bool ok) {
    writing = false;
    relay->OnWritten(ok);
  }

  std::shared_ptr<StreamRelay> relay;
  std::vector<v1::GenerateResponse> responses;
  std::optional<absl::Status> status, given_up;
  RelayReport report;
  absl::Time finish_time;
  absl::Duration write_delay = absl::Milliseconds(20);
  int num_last = 0;  // calls of WriteLast
  bool writing = false;
  bool stalled = false;  // a slow reader: writes end only when the test calls Written
  bool gone = false;

 private:
  Simulation* const sim_;
};

// Counts its events.
class CountingObserver : public RelayObserver {
 public:
  void OnBegun(const RelayLabels& labels, absl::Duration) override {
    begun_pools.push_back(labels.pool);
  }
  void OnFirstToken(const RelayLabels& labels, absl::Duration) override {
    ++first_tokens;
    first_token_pools.push_back(labels.pool);
  }
  void OnTokens(const RelayLabels&, absl::Duration, int) override {}
  void OnMigration(const RelayLabels& labels, std::string_view reason) override {
    migrations.emplace_back(reason);
    left_pools.push_back(labels.pool);
  }
  void OnStall(const RelayLabels& labels, absl::Duration stall) override {
    stalls.push_back(stall);
    stalled_pools.push_back(labels.pool);
  }

  int first_tokens = 0;
  std::vector<std::string> migrations;
  std::vector<absl::Duration> stalls;
  std::vector<int> begun_pools, first_token_pools, left_pools, stalled_pools;
};

// One relay with everything around it.
struct RelayWorld {
  explicit RelayWorld(uint64_t seed, int num_workers = 3) : sim(seed), fleet(&sim), client(&sim) {
    for (int i = 0; i < num_workers; ++i) fleet.AddWorker("w" + std::to_string(i) + ":1");
  }
  // Starts relaying the request.
  void Start(v1::GenerateRequest request, absl::Duration timeout = absl::InfiniteDuration()) {
    Report();
    Open(std::move(request), &client, timeout);
    if (timeout != absl::InfiniteDuration()) {
      // gRPC cancels the server's side at the deadline.
      sim.After(timeout, [this] { client.relay->OnCancelled(); });
    }
    client.relay->Start();
  }
  // Makes the relay of a client without starting it.
  void Open(v1::GenerateRequest request, SimulatedClient* whose,
            absl::Duration timeout = absl::InfiniteDuration()) {
    RelayRequest relay_request;
    relay_request.request = std::move(request);
    relay_request.context.request_id = "id";
    relay_request.context.tenant = "default";
    relay_request.context.deadline = sim.clock.Now() + timeout;
    relay_request.prompt_tokens = 7;
    relay_request.seed = sim.random();
    relay_request.ticket = *admission.Admit({.bytes = 10, .tokens = 7});
    const RelayEnvironment environment = {.router = &fleet.router,
                                          .transport = &fleet,
                                          .timer = &sim,
                                          .clock = clock,
                                          .observer = &observer,
                                          .options = options};
    whose->relay = std::make_shared<StreamRelay>(environment, std::move(relay_request), whose);
  }
  void Run(v1::GenerateRequest request) {
    Start(std::move(request));
    sim.Run();
  }
  // Workers report for as long as the stream is open.
  void Report() {
    fleet.Publish();
    if (!client.status.has_value()) sim.After(absl::Milliseconds(250), [this] { Report(); });
  }
  int64_t InFlight() const {
    int64_t sum = 0;
    for (const auto& load : fleet.view.Get()->workers) sum += fleet.router.InFlight(load->address);
    return sum;
  }

  Simulation sim;
  const Clock* clock = &sim.clock;  // the relay's
  SimulatedFleet fleet;
  SimulatedClient client;
  CountingObserver observer;
  RelayOptions options;
  Admission admission{AdmissionLimits{}, &sim.clock};
};

inline v1::GenerateRequest Request(const std::string& text = "once", uint32_t max_tokens = 20) {
  v1::GenerateRequest request;
  request.set_text(text);
  request.mutable_stopping()->set_max_tokens(max_tokens);
  return request;
}

// Returns one of `faults` at each of the first calls, and none later.
inline auto FaultsAt(std::vector<Fault> faults) {
  return [faults](const SimulatedFleet::Try&, int number) {
    return number < static_cast<int>(faults.size()) ? std::optional(faults[number]) : std::nullopt;
  };
}

}  // namespace continuo::gateway
