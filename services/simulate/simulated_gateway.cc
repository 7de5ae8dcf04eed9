// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/simulated_gateway.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/gateway/discovery/subset.h"
#include "services/gateway/relay/message_memory.h"
#include "services/gateway/requests/prompt_tokens.h"
#include "services/gateway/routing/route_hash.h"
#include "services/gateway/workers/silence.h"
#include "services/protocol/error.h"
#include "services/simulate/worker/answer.h"

namespace continuo::simulate {
namespace {

// Silence is looked for at this interval, which is WorkerPool's.
constexpr absl::Duration kCheckInterval = absl::Milliseconds(200);
// Load reports are published together if they come closer than this.
constexpr absl::Duration kPublishInterval = absl::Milliseconds(20);
// A worker that is no longer listed is kept for this long where it still reports.
constexpr absl::Duration kUnlistedWait = absl::Seconds(30);

std::string AddressOf(int gateway) { return absl::StrCat("gateway-", gateway, ":50050"); }

gateway::RouterOptions RouterOptionsOf(const GatewayOptions& options) {
  gateway::RouterOptions result;
  if (options.is_declared) result.declared_models = {kModelName};
  return result;
}

}  // namespace

SimulatedGateway::SimulatedGateway(int number, int num_gateways, const GatewayOptions& options,
                                   EventLoop* loop, const Network* network,
                                   const std::vector<std::unique_ptr<SimulatedWorker>>* workers,
                                   const PodSet* pods, uint64_t seed)
    : number_(number),
      options_(options),
      loop_(*loop),
      network_(*network),
      workers_(*workers),
      pods_(*pods),
      num_gateways_(num_gateways),
      clock_(loop),
      random_(seed),
      router_random_(random_()),
      router_(options.policy, &view_, &clock_, router_random_, RouterOptionsOf(options)),
      admission_(options.admission, &clock_),
      demand_(
          absl::StrCat(number, "-", absl::Hex(seed)),
          [this] { return admission_.counts_by_model(); }, &view_, &clock_),
      watched_(workers->size()),
      knows_model_(options.is_declared),
      alive_(std::make_shared<SimulatedGateway*>(this)) {
  for (const auto& worker : workers_) {
    by_address_.emplace(worker->address(), by_address_.size());
  }
  OnListed();
  if (options.is_declared) Publish();
  loop_.After(kCheckInterval, [alive = alive_] {
    if (*alive != nullptr) (*alive)->CheckWorkers();
  });
}

SimulatedGateway::~SimulatedGateway() { *alive_ = nullptr; }

absl::StatusOr<std::shared_ptr<gateway::StreamRelay>> SimulatedGateway::Open(
    v1::GenerateRequest request, const std::string& tenant, const std::string& session,
    absl::Time deadline, gateway::RelayClient* client) {
  gateway::RelayRequest result;
  const v1::GenerateResponse& received = request.continuation().received();
  result.context.tenant = tenant;
  result.context.request_id = received.has_accepted() ? received.accepted().request_id()
                                                      : absl::StrCat("req-", absl::Hex(random_()));
  result.context.deadline = deadline;
  result.prompt_tokens = gateway::EstimatePromptTokens(request);
  result.prefix_hash = gateway::PrefixHash(request, tenant);
  result.session_hash = gateway::SessionHash(session, tenant);
  gateway::AdmissionRequest asked = {
      .bytes = gateway::MemoryOf(request),
      .tokens = result.prompt_tokens,
      .tenant = tenant,
      .model = request.model(),
      .priority = request.priority(),
      .max_tokens = request.stopping().max_tokens(),
      .time_left = deadline - clock_.Now(),
      .is_cold = router_.IsCold(request.model()),
      .is_continuation = received.has_accepted() || received.deltas_size() > 0};
  absl::StatusOr<gateway::Admission::Ticket> ticket = admission_.Admit(asked);
  if (protocol::ReasonOf(ticket.status()) == protocol::kReasonOverloaded &&
      asked.time_left < absl::InfiniteDuration() &&
      router_.HasFree({.model = request.model(), .prompt_tokens = result.prompt_tokens})) {
    asked.has_free_worker = true;
    ticket = admission_.Admit(asked);
  }
  ASSIGN_OR_RETURN(result.ticket, std::move(ticket));
  result.request = std::move(request);
  result.seed = random_();
  result.context.call_id = absl::StrCat(absl::Hex(random_()));
  const gateway::RelayEnvironment environment = {.router = &router_,
                                                 .transport = this,
                                                 .timer = &loop_,
                                                 .clock = &clock_,
                                                 .observer = this,
                                                 .budget = &budget_,
                                                 .options = options_.relay};
  return std::make_shared<gateway::StreamRelay>(environment, std::move(result), client);
}

std::shared_ptr<gateway::WorkerCall> SimulatedGateway::Start(
    std::shared_ptr<gateway::StreamRelay> relay, int attempt, const gateway::Lease& lease,
    const v1::GenerateRequest& request, const gateway::CallContext& context, bool is_migration) {
  SimulatedWorker* const worker = workers_[by_address_.at(lease.address())].get();
  const uint64_t serial = next_serial_++;
  auto stream = std::make_shared<WorkerStream>(std::move(relay), attempt, number_, serial);
  streams_[serial] = {.stream = stream, .worker = worker->number()};
  stream->SetOnClosed([loop = &loop_, delay = network_.delay(), worker, serial, alive = alive_,
                       weak = std::weak_ptr<WorkerStream>(stream)](bool abandoned) {
    if (*alive != nullptr) (*alive)->streams_.erase(serial);
    if (!abandoned) return;
    // The stream lives as long as this is on its way.
    loop->After(delay, [worker, stream = weak.lock()] {
      if (stream != nullptr) worker->Cancel(stream);
    });
  });
  loop_.After(network_.delay(), [worker, stream, request, context, is_migration,
                                 time_left = context.deadline - clock_.Now()] {
    if (stream->is_open()) worker->Receive(stream, request, context, time_left, is_migration);
  });
  return stream;
}

void SimulatedGateway::OnMigration(const gateway::RelayLabels&, std::string_view reason) {
  const auto at = totals_.migrations.try_emplace(std::string(reason)).first;
  at->second += 1;
}

void SimulatedGateway::OnStall(const gateway::RelayLabels&, absl::Duration stall) {
  totals_.stalls += 1;
  totals_.stall += stall;
}

void SimulatedGateway::OnReport(int number, const v1::WatchLoadResponse& report) {
  // A process that is new here is heard once the connection leads to it.
  const auto index = static_cast<size_t>(number);
  Watched& worker = watched_[index];
  if (worker.connected != workers_[index]->process_number()) return;
  const gateway::ReportNews news = worker.record->OnReport(report, clock_.Elapsed(), &slow_);
  changed_ = changed_ || news.changed;
  if (news.urgent) {
    Publish();
  } else {
    PublishSoon();
  }
  if (news.replaced) router_.WorkerLost(workers_[index]->address(), report.incarnation());
}

void SimulatedGateway::OnHealth(int number, bool not_serving) {
  watched_[static_cast<size_t>(number)].record->OnHealth(not_serving, clock_.Elapsed());
}

void SimulatedGateway::OnConnectionEnd(int number) {
  Watched& watched = watched_[static_cast<size_t>(number)];
  watched.connected = 0;
  gateway::WorkerRecord& record = *watched.record;
  const bool refused = !record.has_report() && !workers_[static_cast<size_t>(number)]->is_running();
  changed_ = record.OnEnd(refused) || changed_;
  slow_.Forget(workers_[static_cast<size_t>(number)]->address());
  if (!record.listed()) {
    watched.record.reset();
    changed_ = true;
    return Publish();
  }
  Publish();
  loop_.After(record.NextReconnectDelay(absl::Milliseconds(50), absl::Seconds(1)),
              [alive = alive_, number, record_number = watched.number] {
                if (*alive == nullptr) return;
                const Watched& now = (*alive)->watched(number);
                if (now.record.has_value() && now.number == record_number) {
                  (*alive)->Connect(number);
                }
              });
}

void SimulatedGateway::OnListed() {
  std::vector<std::string> addresses, gateways;
  for (const auto& worker : workers_) {
    if (pods_.IsListed(worker->number())) addresses.push_back(worker->address());
  }
  for (int i = 0; i < num_gateways_; ++i) gateways.push_back(AddressOf(i));
  const std::vector<std::string> subset =
      gateway::SubsetOf(addresses, gateways, AddressOf(number_), options_.subset_size);
  const std::set<std::string> listed(subset.begin(), subset.end());
  for (const auto& worker : workers_) {
    Watched& watched = watched_[static_cast<size_t>(worker->number())];
    const bool is_listed = listed.contains(worker->address());
    if (watched.record.has_value()) {
      changed_ = watched.record->SetListed(is_listed, clock_.Elapsed()) || changed_;
    } else if (is_listed) {
      watched.record.emplace(worker->address(), options_.verdict, clock_.Elapsed());
      ++watched.number;
      Connect(worker->number());
    }
  }
  DropUnlisted();
  if (changed_) Publish();
}

void SimulatedGateway::DropUnlisted() {
  for (size_t i = 0; i < watched_.size(); ++i) {
    Watched& watched = watched_[i];
    if (!watched.record.has_value() || watched.record->listed()) continue;
    const absl::Duration unlisted = clock_.Elapsed() - watched.record->listed_time();
    const std::string& address = workers_[i]->address();
    if (watched.record->has_report() &&
        (unlisted < kUnlistedWait || router_.InFlight(address) > 0)) {
      continue;
    }
    watched.record.reset();
    watched.connected = 0;
    slow_.Forget(address);
    changed_ = true;
  }
}

void SimulatedGateway::Connect(int number) {
  Watched& watched = watched_[static_cast<size_t>(number)];
  watched.record->OnConnecting(clock_.Elapsed());
  loop_.After(2 * network_.delay(), [alive = alive_, number, record_number = watched.number] {
    if (*alive == nullptr || (*alive)->network_.IsCut((*alive)->number_, number)) return;
    Watched& connecting = (*alive)->watched_[static_cast<size_t>(number)];
    if (!connecting.record.has_value() || connecting.number != record_number) return;
    SimulatedWorker& worker = *(*alive)->workers_[static_cast<size_t>(number)];
    if (!worker.is_running()) return (*alive)->OnConnectionEnd(number);
    connecting.connected = worker.process_number();
    (*alive)->OnReport(number, worker.MakeReport());
  });
}

void SimulatedGateway::OnHealed(int number, bool reset) {
  std::vector<std::shared_ptr<WorkerStream>> streams;
  for (const auto& [serial, open] : streams_) {
    if (open.worker == number) streams.push_back(open.stream.lock());
  }
  for (const auto& stream : streams) {
    if (stream == nullptr) continue;
    if (!reset) {
      stream->Release();
      continue;
    }
    workers_[static_cast<size_t>(number)]->Cancel(stream);
    stream->Reset();
  }
  // The connection to a process that is gone, or that was being made, is made anew.
  const auto index = static_cast<size_t>(number);
  if (reset || watched_[index].connected != workers_[index]->process_number()) {
    OnConnectionEnd(number);
  }
}

absl::Status SimulatedGateway::CheckInvariants(int64_t num_open, int64_t queued_tokens) const {
  const gateway::Admission::Counts counts = admission_.counts();
  const auto differ = [&](const char* what, int64_t is, int64_t should) {
    return is == should ? absl::OkStatus()
                        : absl::InternalError(absl::StrCat("gateway ", number_, " counts ", is, " ",
                                                           what, ", there are ", should));
  };
  RETURN_IF_ERROR(differ("open requests", counts.open_requests, num_open));
  RETURN_IF_ERROR(differ("queued tokens", counts.queued_tokens, queued_tokens));
  int64_t leases = 0;
  for (const auto& worker : workers_) leases += router_.InFlight(worker->address());
  RETURN_IF_ERROR(differ("leases", leases, static_cast<int64_t>(streams_.size())));
  if (counts.open_requests > options_.admission.max_open_requests || counts.open_bytes < 0) {
    return absl::InternalError(absl::StrCat("gateway ", number_, " has ", counts.open_requests,
                                            " requests of ", counts.open_bytes, " bytes open"));
  }
  return absl::OkStatus();
}

void SimulatedGateway::PublishSoon() {
  if (publish_due_) return;
  const absl::Duration wait = publish_time_ + kPublishInterval - clock_.Elapsed();
  if (wait <= absl::ZeroDuration()) return Publish();
  publish_due_ = true;
  loop_.After(wait, [alive = alive_] {
    if (*alive != nullptr && (*alive)->publish_due_) (*alive)->Publish();
  });
}

void SimulatedGateway::Publish() {
  publish_due_ = false;
  publish_time_ = clock_.Elapsed();
  gateway::LoadSnapshot snapshot;
  snapshot.workers.reserve(watched_.size());
  snapshot.discovery_complete = true;
  for (const Watched& watched : watched_) {
    if (!watched.record.has_value()) continue;
    for (const auto& [name, model] : watched.record->models()) {
      snapshot.workers.push_back(model.load);
    }
    if (!watched.record->IsDiscovered(clock_.Elapsed(), absl::Seconds(30))) {
      snapshot.discovery_complete = false;
    }
  }
  // A model whose workers are gone stays known (ModelCatalog).
  knows_model_ = knows_model_ || !snapshot.workers.empty();
  if (knows_model_) snapshot.known_models = {kModelName};
  view_.Set(std::move(snapshot));
  if (std::exchange(changed_, false)) router_.ViewChanged();
}

void SimulatedGateway::CheckWorkers() {
  std::vector<absl::Duration> ages;
  for (const Watched& watched : watched_) {
    if (!watched.record.has_value()) continue;
    if (const auto heard = watched.record->last_heard()) ages.push_back(clock_.Elapsed() - *heard);
  }
  const absl::Duration limit = gateway::FleetSilenceLimit(std::move(ages));
  std::vector<int> lost;
  for (size_t i = 0; i < watched_.size(); ++i) {
    if (!watched_[i].record.has_value()) continue;
    const auto verdict =
        watched_[i].record->Check(clock_.Elapsed(), absl::ZeroDuration(), &changed_, limit);
    if (verdict.has_value()) lost.push_back(static_cast<int>(i));
  }
  DropUnlisted();
  if (changed_) Publish();
  for (const int number : lost) {
    router_.WorkerLost(workers_[static_cast<size_t>(number)]->address(), "");
  }
  loop_.After(kCheckInterval, [alive = alive_] {
    if (*alive != nullptr) (*alive)->CheckWorkers();
  });
}

}  // namespace continuo::simulate
