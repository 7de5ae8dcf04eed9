// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/simulation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/simulate/worker/answer.h"

namespace continuo::simulate {
namespace {

// The fleet has been up for this long when the first request comes.
constexpr absl::Duration kWarmUp = absl::Seconds(1);
// Events between two calls of `go_on`.
constexpr uint64_t kEventsPerLook = 4096;

size_t NumPlaces(const SimulationOptions& options) {
  const int most = options.autoscaler.has_value() ? options.autoscaler->max_replicas : 0;
  return static_cast<size_t>(std::max(options.workers, most));
}

}  // namespace

Simulation::Simulation(const SimulationOptions& options, Load* load)
    : options_(options),
      load_(*load),
      network_(options.network_delay),
      random_(options.seed),
      num_mutes_(NumPlaces(options)),
      pods_(
          options.autoscaler.has_value() ? options.autoscaler->pods : PodSet::Options(), &workers_,
          &loop_, [this] { OnPods(); },
          [this] {
            for (const auto& gateway : gateways_) {
              if (gateway != nullptr) gateway->OnListed();
            }
          }),
      gateways_(static_cast<size_t>(options.gateways)) {
  results_.workers = options_.workers;
  results_.gateways = options_.gateways;
  options_.hooks.checks = options_.checks;
  const auto for_gateways = [this](int worker, auto tell) {
    for (const auto& gateway : gateways_) {
      if (gateway == nullptr || !gateway->Watches(worker)) continue;
      if (!network_.IsCut(gateway->number(), worker)) tell(*gateway);
    }
  };
  for (int i = 0; i < static_cast<int>(NumPlaces(options)); ++i) {
    const WorkerEvents events = {
        .on_report =
            [this, i, for_gateways](const v1::WatchLoadResponse& report) {
              if (num_mutes_[static_cast<size_t>(i)] > 0) return;
              for_gateways(i, [&](SimulatedGateway& g) { g.OnReport(i, report); });
            },
        .on_down = [this, i] { pods_.OnExit(i); },
        .on_exit =
            [i, for_gateways] {
              for_gateways(i, [&](SimulatedGateway& g) { g.OnConnectionEnd(i); });
            },
        .on_health =
            [i, for_gateways](bool not_serving) {
              for_gateways(i, [&](SimulatedGateway& g) { g.OnHealth(i, not_serving); });
            }};
    workers_.push_back(std::make_unique<SimulatedWorker>(
        i, i < options_.workers, &options_.profile, &loop_, &network_, events, &options_.hooks));
  }
  begin_ = last_end_ = loop_.Elapsed() + kWarmUp;
  pods_.Begin(options_.workers);
  if (options_.autoscaler.has_value()) {
    options_.gateway.is_declared = options_.autoscaler->min_replicas == 0;
  }
  for (int i = 0; i < options_.gateways; ++i) StartGateway(i);
  // Workers start within one interval of reports.
  for (const auto& worker : workers_) {
    if (!worker->is_running()) continue;
    loop_.After(absl::Milliseconds(500) * (static_cast<double>(random_() >> 11) * 0x1p-53),
                [&worker] {
                  if (worker->is_running()) worker->ReportNow();
                });
  }
  if (!options_.autoscaler.has_value()) return;
  const auto demands = [this] {
    std::vector<gateway::Demand*> demands;
    for (const auto& gateway : gateways_) {
      demands.push_back(gateway != nullptr ? &gateway->demand() : nullptr);
    }
    return demands;
  };
  autoscaler_.emplace(*options_.autoscaler, kModelName, &workers_, &pods_, demands, &loop_);
}

// Open requests hold relays, which hold leases of the gateways: they go first.
Simulation::~Simulation() {
  std::vector<SimulatedClient*> open;
  for (const auto& [index, client] : clients_) open.push_back(client.get());
  for (SimulatedClient* const client : open) client->Cancel();
  loop_.Clear();
  clients_.clear();
  ended_.clear();
  workers_.clear();
}

absl::StatusOr<Results> Simulation::Run(absl::FunctionRef<bool(const Results&)> go_on) {
  for (const Fault& fault : options_.faults) {
    loop_.After(kWarmUp + fault.at, [this, &fault] { Begin(fault); });
  }
  loop_.After(kWarmUp, [this] {
    past_pod_time_ = pods_.PodTime();
    for (const auto& worker : workers_) {
      past_serving_time_.push_back(pods_.ServingTime(worker->number()));
    }
    for (int i = 0; i < std::max(1, options_.concurrency); ++i) AwaitNext();
  });
  while (!load_is_over_ || num_open_ > 0) {
    loop_.RunNext();
    ended_.clear();
    if (!mistake_.ok()) return mistake_;
    if (options_.checks) RETURN_IF_ERROR(CheckInvariants());
    if (loop_.Elapsed() - last_cause_ > options_.patience && load_is_over_) {
      return absl::InternalError(
          absl::StrCat(num_open_, " requests have not ended, request ",
                       clients_.empty() ? 0 : clients_.begin()->second->planned().index));
    }
    if (loop_.num_run() % kEventsPerLook == 0) {
      results_.duration = loop_.Elapsed() - begin_;
      if (!go_on(results_)) return absl::CancelledError("interrupted");
    }
  }
  AddTotals();
  if (options_.checks) RETURN_IF_ERROR(CheckAtRest());
  return results_;
}

void Simulation::AwaitNext() {
  std::optional<PlannedRequest> planned = load_.Next();
  if (!planned.has_value()) {
    load_is_over_ = true;
    return;
  }
  if (options_.concurrency > 0) return Arrive(*planned);
  loop_.After(begin_ + planned->arrival - loop_.Elapsed(), [this, planned = *std::move(planned)] {
    Arrive(planned);
    AwaitNext();
  });
}

void Simulation::Arrive(const PlannedRequest& planned) {
  loop_.After(network_.delay(), [this, planned] { Open(planned); });
  last_cause_ = std::max(last_cause_, loop_.Elapsed());
  results_.sent += 1;
  num_open_ += 1;
}

void Simulation::Open(const PlannedRequest& planned) {
  v1::GenerateRequest request;
  request.set_model(kModelName);
  const std::vector<uint32_t> ids = load_.PromptIds(planned);
  request.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  request.mutable_sampling()->set_seed(SeedOf(random_(), static_cast<int>(planned.output_tokens)));
  const bool ends_by_itself = options_.max_tokens > static_cast<int>(planned.output_tokens);
  request.mutable_stopping()->set_max_tokens(
      ends_by_itself ? static_cast<uint32_t>(options_.max_tokens) : planned.output_tokens);
  request.mutable_stopping()->set_ignore_eos(!ends_by_itself);
  request.set_priority(planned.priority);
  auto owned = std::make_unique<SimulatedClient>(
      planned, std::move(request), &loop_, network_.delay(), options_.clients_reconnect, &results_,
      SimulatedClient::Callbacks{.reconnect =
                                     [this](SimulatedClient* client, absl::Duration delay) {
                                       loop_.After(delay,
                                                   [this, client, index = client->planned().index] {
                                                     const auto at = clients_.find(index);
                                                     if (at != clients_.end()) Connect(client);
                                                   });
                                     },
                                 .on_end = [this](SimulatedClient* client) { OnEnd(client); }});
  SimulatedClient* const client = owned.get();
  clients_.emplace(planned.index, std::move(owned));
  Connect(client);
}

void Simulation::Connect(SimulatedClient* client) {
  // Clients find a gateway that runs, if there is one.
  int number = static_cast<int>(random_() % gateways_.size());
  for (size_t i = 0; i < gateways_.size() && gateways_[static_cast<size_t>(number)] == nullptr;
       ++i) {
    number = (number + 1) % static_cast<int>(gateways_.size());
  }
  SimulatedGateway* const gateway = gateways_[static_cast<size_t>(number)].get();
  if (gateway == nullptr) return client->OnRejected(absl::UnavailableError("no gateway is there"));
  const PlannedRequest& planned = client->planned();
  const absl::Time deadline = gateway->clock().Now() + options_.timeout;
  auto relay = gateway->Open(client->request(), planned.tenant, planned.session, deadline, client);
  if (relay.ok()) {
    client->Begin(*std::move(relay), number);
  } else {
    client->OnRejected(relay.status());
  }
  if (options_.on_open) options_.on_open(*gateway);
}

void Simulation::OnEnd(SimulatedClient* client) {
  last_end_ = loop_.Elapsed();
  num_open_ -= 1;
  if (mistake_.ok()) mistake_ = client->mistake();
  const auto at = clients_.find(client->planned().index);
  ended_.push_back(std::move(at->second));
  clients_.erase(at);
  if (options_.concurrency > 0) AwaitNext();
}

void Simulation::StartGateway(int gateway) {
  gateways_[static_cast<size_t>(gateway)] =
      std::make_unique<SimulatedGateway>(gateway, options_.gateways, options_.gateway, &loop_,
                                         &network_, &workers_, &pods_, random_());
}

void Simulation::OnPods() {
  if (!options_.autoscaler.has_value()) return;
  // Before the first request it is that time.
  const absl::Duration time = std::max(absl::ZeroDuration(), loop_.Elapsed() - begin_);
  const ScalePoint point = {.time = time, .wanted = pods_.wanted(), .pods = pods_.Count()};
  std::vector<ScalePoint>& points = results_.scaling;
  if (!points.empty() && points.back().time == time) points.pop_back();
  points.push_back(point);
}

void Simulation::Restart(SimulatedWorker& worker) {
  if (pods_.IsServing(worker.number())) worker.Restart();
}

void Simulation::CrashGateway(int gateway) {
  std::vector<SimulatedClient*> lost;
  for (const auto& [index, client] : clients_) {
    if (client->gateway() == gateway) lost.push_back(client.get());
  }
  for (SimulatedClient* const client : lost) client->OnGatewayLost();
  gateways_[static_cast<size_t>(gateway)].reset();
}

void Simulation::Begin(const Fault& fault) {
  using Kind = Fault::Kind;
  ++results_.faults;
  last_cause_ = std::max(last_cause_, begin_ + EndOf(fault));
  SimulatedWorker& worker = *workers_[static_cast<size_t>(fault.worker)];
  const uint64_t process = worker.process_number();
  const auto later = [&](std::function<void()> callback) {
    loop_.After(fault.lasts, std::move(callback));
  };
  switch (fault.kind) {
    case Kind::kCrash:
      worker.Crash();
      return later([this, &worker] { Restart(worker); });
    case Kind::kHang:
    case Kind::kFreeze:
      return worker.Hang(fault.lasts, fault.kind == Kind::kFreeze);
    case Kind::kSlow:
      worker.SetSlowness(fault.factor);
      return later([&worker] { worker.SetSlowness(1); });
    case Kind::kDrain:
      worker.Drain(fault.lasts / 2);
      // It may not be through by then.
      return later([this, &worker, process] {
        if (worker.process_number() != process) return;
        worker.Crash();
        Restart(worker);
      });
    case Kind::kLostReports:
      ++num_mutes_[static_cast<size_t>(fault.worker)];
      return later([this, &fault] { --num_mutes_[static_cast<size_t>(fault.worker)]; });
    case Kind::kCut: {
      if (++num_cuts_[{fault.gateway, fault.worker}] == 1) {
        network_.SetCut(fault.gateway, fault.worker, true);
      }
      return later([this, &fault] {
        if (--num_cuts_[{fault.gateway, fault.worker}] > 0) return;
        network_.SetCut(fault.gateway, fault.worker, false);
        // TCP gives up after a while.
        const bool reset = fault.lasts > absl::Seconds(4);
        const auto& gateway = gateways_[static_cast<size_t>(fault.gateway)];
        if (gateway != nullptr && gateway->Watches(fault.worker)) {
          gateway->OnHealed(fault.worker, reset);
        }
      });
    }
    case Kind::kWorkerClock:
      return worker.clock().Jump(fault.lasts);
    case Kind::kGatewayClock: {
      const auto& gateway = gateways_[static_cast<size_t>(fault.gateway)];
      if (gateway != nullptr) gateway->clock().Jump(fault.lasts);
      return;
    }
    case Kind::kGatewayCrash:
      if (gateways_[static_cast<size_t>(fault.gateway)] == nullptr) return;
      CrashGateway(fault.gateway);
      return later([this, gateway = fault.gateway] { StartGateway(gateway); });
    case Kind::kClientGone:
      if (!clients_.empty()) clients_.begin()->second->Cancel();
      return;
  }
}

absl::Status Simulation::CheckInvariants() {
  RETURN_IF_ERROR(pods_.CheckInvariants());
  for (const auto& worker : workers_) RETURN_IF_ERROR(worker->CheckInvariants());
  std::vector<int64_t> open(gateways_.size()), queued(gateways_.size());
  for (const auto& [index, client] : clients_) {
    if (client->gateway() < 0) continue;
    const auto gateway = static_cast<size_t>(client->gateway());
    open[gateway] += 1;
    if (!client->has_progress()) queued[gateway] += client->planned().prompt_tokens;
  }
  for (const auto& gateway : gateways_) {
    if (gateway == nullptr) continue;
    const auto number = static_cast<size_t>(gateway->number());
    RETURN_IF_ERROR(gateway->CheckInvariants(open[number], queued[number]));
  }
  return absl::OkStatus();
}

// Waits first, since a call that was given up reaches its worker later.
absl::Status Simulation::CheckAtRest() {
  absl::Duration end = loop_.Elapsed();
  for (const Fault& fault : options_.faults) {
    end = std::max(end, begin_ + EndOf(fault));
  }
  loop_.RunUntil(end + absl::Seconds(10));
  RETURN_IF_ERROR(CheckInvariants());
  for (const auto& worker : workers_) RETURN_IF_ERROR(worker->CheckAtRest());
  return absl::OkStatus();
}

void Simulation::AddTotals() {
  results_.duration = last_end_ - begin_;
  results_.events = loop_.num_run();
  results_.worker_time = pods_.PodTime() - past_pod_time_;
  const double blocks = options_.profile.engine.num_blocks;
  double all_seconds = 0;
  for (const auto& worker : workers_) {
    const WorkerTotals totals = worker->totals();
    const absl::Duration there = pods_.ServingTime(worker->number()) -
                                 past_serving_time_[static_cast<size_t>(worker->number())];
    const double seconds = std::max(1e-9, absl::ToDoubleSeconds(there));
    all_seconds += seconds;
    results_.steps += totals.steps;
    results_.preemptions += static_cast<uint64_t>(totals.preemptions);
    const double busy = absl::ToDoubleSeconds(totals.busy);
    results_.busiest = std::max(results_.busiest, busy / seconds);
    results_.busy += busy;
    results_.kv_used += totals.used_block_seconds / blocks;
    results_.running += totals.running_seconds;
  }
  for (double* const sum : {&results_.busy, &results_.kv_used, &results_.running}) {
    *sum /= std::max(1e-9, all_seconds);
  }
}

}  // namespace continuo::simulate
