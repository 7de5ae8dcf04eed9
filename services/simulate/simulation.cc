// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/simulation.h"

#include <algorithm>
#include <utility>

#include "services/simulate/answer.h"

namespace continuo::simulate {
namespace {

// The fleet has been up for this long when the first request comes.
constexpr absl::Duration kWarmUp = absl::Seconds(1);
// Events between two calls of `go_on`.
constexpr uint64_t kEventsPerLook = 4096;

}  // namespace

Simulation::Simulation(const SimulationOptions& options, Load* load)
    : options_(options), load_(*load), network_(options.network_delay), random_(options.seed) {
  results_.workers = options_.workers;
  results_.gateways = options_.gateways;
  for (int i = 0; i < options_.workers; ++i) {
    workers_.push_back(std::make_unique<SimulatedWorker>(
        i, &options_.profile, &loop_, &network_, [this, i](const v1::WatchLoadResponse& report) {
          for (const auto& gateway : gateways_) {
            if (!network_.IsCut(gateway->number(), i)) gateway->OnReport(i, report);
          }
        }));
  }
  for (int i = 0; i < options_.gateways; ++i) {
    gateways_.push_back(std::make_unique<SimulatedGateway>(i, options_.gateway, &loop_, &network_,
                                                           &workers_, random_()));
  }
  // Workers start within one interval of reports.
  for (const auto& worker : workers_) {
    loop_.After(absl::Milliseconds(500) * (static_cast<double>(random_() >> 11) * 0x1p-53),
                [&worker] { worker->ReportNow(); });
  }
}

// What is still open holds relays, which hold leases of the gateways: it goes first.
Simulation::~Simulation() {
  std::vector<SimulatedClient*> open;
  for (const auto& [client, owned] : clients_) open.push_back(client);
  for (SimulatedClient* const client : open) client->Cancel();
  loop_.Clear();
  clients_.clear();
  ended_.clear();
  workers_.clear();
}

absl::StatusOr<Results> Simulation::Run(absl::FunctionRef<bool(const Results&)> go_on) {
  begin_ = last_end_ = loop_.Elapsed() + kWarmUp;
  loop_.After(kWarmUp, [this] {
    for (int i = 0; i < std::max(1, options_.concurrency); ++i) AwaitNext();
  });
  while (!load_is_over_ || num_open_ > 0) {
    loop_.RunNext();
    ended_.clear();
    if (!mistake_.ok()) return mistake_;
    if (loop_.num_run() % kEventsPerLook == 0) {
      results_.duration = loop_.Elapsed() - begin_;
      if (!go_on(results_)) return absl::CancelledError("interrupted");
    }
  }
  AddTotals();
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
  results_.sent += 1;
  num_open_ += 1;
}

void Simulation::Open(const PlannedRequest& planned) {
  v1::GenerateRequest request;
  request.set_model("simulated");
  const std::vector<uint32_t> ids = load_.PromptIds(planned);
  request.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  request.mutable_sampling()->set_seed(SeedOf(random_(), static_cast<int>(planned.output_tokens)));
  const bool ends_by_itself = options_.max_tokens > static_cast<int>(planned.output_tokens);
  request.mutable_stopping()->set_max_tokens(
      ends_by_itself ? static_cast<uint32_t>(options_.max_tokens) : planned.output_tokens);
  request.mutable_stopping()->set_ignore_eos(!ends_by_itself);
  request.set_priority(planned.priority);
  auto owned =
      std::make_unique<SimulatedClient>(planned, std::move(request), &loop_, network_.delay(),
                                        &results_, [this](SimulatedClient* c) { OnEnd(c); });
  SimulatedClient* const client = owned.get();
  clients_.emplace(client, std::move(owned));
  SimulatedGateway& gateway = *gateways_[random_() % gateways_.size()];
  auto relay = gateway.Open(client->request(), planned.tenant, planned.session,
                            loop_.Now() + options_.timeout, client);
  if (relay.ok()) {
    client->Begin(*std::move(relay));
  } else {
    client->OnRejected(relay.status());
  }
}

void Simulation::OnEnd(SimulatedClient* client) {
  last_end_ = loop_.Elapsed();
  num_open_ -= 1;
  if (mistake_.ok()) mistake_ = client->mistake();
  const auto at = clients_.find(client);
  ended_.push_back(std::move(at->second));
  clients_.erase(at);
  if (options_.concurrency > 0) AwaitNext();
}

void Simulation::AddTotals() {
  results_.duration = last_end_ - begin_;
  results_.events = loop_.num_run();
  const double seconds = std::max(1e-9, absl::ToDoubleSeconds(results_.duration));
  const double blocks = options_.profile.engine.num_blocks;
  for (const auto& worker : workers_) {
    const WorkerTotals totals = worker->totals();
    results_.steps += totals.steps;
    results_.preemptions += static_cast<uint64_t>(totals.preemptions);
    const double busy = absl::ToDoubleSeconds(totals.busy) / seconds;
    results_.busiest = std::max(results_.busiest, busy);
    results_.busy += busy / options_.workers;
    results_.kv_used += totals.used_block_seconds / seconds / blocks / options_.workers;
    results_.running += totals.running_seconds / seconds / options_.workers;
  }
}

}  // namespace continuo::simulate
