// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "continuo/v1/worker.pb.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/relay/relay_client.h"
#include "services/gateway/relay/relay_observer.h"
#include "services/gateway/relay/retry_budget.h"
#include "services/gateway/relay/stream_relay.h"
#include "services/gateway/routing/load_view.h"
#include "services/gateway/routing/policy.h"
#include "services/gateway/routing/router.h"
#include "services/gateway/routing/slow_workers.h"
#include "services/gateway/scaler/demand.h"
#include "services/gateway/workers/worker_record.h"
#include "services/simulate/event/event_loop.h"
#include "services/simulate/event/network.h"
#include "services/simulate/scaling/pod_set.h"
#include "services/simulate/worker/simulated_worker.h"
#include "services/simulate/worker/worker_stream.h"

namespace continuo::simulate {

struct GatewayOptions {
  gateway::Policy policy = &gateway::LeastLoadedOfTwo;
  gateway::AdmissionLimits admission;
  gateway::RelayOptions relay;
  gateway::WorkerVerdictOptions verdict;
  size_t subset_size = 200;  // 0: each gateway watches all workers
  // The model is one of --models: requests wait for its first worker.
  bool is_declared = false;
};

// The counts of one gateway so far.
struct GatewayTotals {
  std::map<std::string, uint64_t, std::less<>> migrations;  // by reason
  uint64_t stalls = 0;
  absl::Duration stall;
};

// A gateway whose admission, router, policy, relays, retry budget and verdicts on workers are the
// real ones; calls and reports come over the simulated network. It does what InferenceService and
// WorkerPool do around them. Not thread-safe.
class SimulatedGateway : public gateway::WorkerTransport, public gateway::RelayObserver {
 public:
  // Everything passed outlives the gateway. It is one of `num_gateways`, and watches its subset of
  // those of `workers` that `pods` lists.
  SimulatedGateway(int number, int num_gateways, const GatewayOptions& options, EventLoop* loop,
                   const Network* network,
                   const std::vector<std::unique_ptr<SimulatedWorker>>* workers, const PodSet* pods,
                   uint64_t seed);
  ~SimulatedGateway() override;
  SimulatedGateway(const SimulatedGateway&) = delete;
  SimulatedGateway& operator=(const SimulatedGateway&) = delete;

  // Checks and admits a request, as InferenceService::Open does. On success the caller calls Start
  // of the relay and keeps it until the client's Finish.
  absl::StatusOr<std::shared_ptr<gateway::StreamRelay>> Open(v1::GenerateRequest request,
                                                             const std::string& tenant,
                                                             const std::string& session,
                                                             absl::Time deadline,
                                                             gateway::RelayClient* client);

  // Other workers are listed than before.
  void OnListed();
  // What worker `number` tells has arrived: a load report, its health, the end of its connection.
  void OnReport(int number, const v1::WatchLoadResponse& report);
  void OnHealth(int number, bool not_serving);
  void OnConnectionEnd(int number);
  // The network to the worker works again. The streams go on, or are `reset` if that took too long.
  void OnHealed(int number, bool reset);

  // These implement WorkerTransport.
  std::shared_ptr<gateway::WorkerCall> Start(std::shared_ptr<gateway::StreamRelay> relay,
                                             int attempt, const gateway::Lease& lease,
                                             const v1::GenerateRequest& request,
                                             const gateway::CallContext& context,
                                             bool is_migration) override;
  // These implement RelayObserver.
  void OnBegun(const gateway::RelayLabels&, absl::Duration) override {}
  void OnFirstToken(const gateway::RelayLabels&, absl::Duration) override {}
  void OnTokens(const gateway::RelayLabels&, absl::Duration, int) override {}
  void OnMigration(const gateway::RelayLabels& labels, std::string_view reason) override;
  void OnStall(const gateway::RelayLabels& labels, absl::Duration stall) override;

  int number() const { return number_; }
  bool Watches(int worker) const { return watched(worker).record.has_value(); }
  MachineClock& clock() { return clock_; }
  // Checks that admission, router and open streams agree with the requests that are open here and
  // those of them that have no token yet. Internal says what does not.
  absl::Status CheckInvariants(int64_t num_open, int64_t queued_tokens) const;
  gateway::Router& router() { return router_; }
  gateway::Demand& demand() { return demand_; }
  const GatewayTotals& totals() const { return totals_; }

 private:
  // The gateway keeps this of the worker at an address.
  struct Watched {
    std::optional<gateway::WorkerRecord> record;  // nothing: it is not watched
    uint64_t number = 0;                          // of the record, for timers
    uint64_t connected = 0;  // the process that the connection leads to; 0 without one
  };

  const Watched& watched(int worker) const { return watched_[static_cast<size_t>(worker)]; }
  void CheckWorkers();
  // Forgets workers that are not listed and have no request, as WorkerPool does.
  void DropUnlisted();
  void Connect(int number);
  void PublishSoon();
  void Publish();

  const int number_;
  const GatewayOptions options_;
  EventLoop& loop_;
  const Network& network_;
  const std::vector<std::unique_ptr<SimulatedWorker>>& workers_;
  const PodSet& pods_;
  const int num_gateways_;
  MachineClock clock_;
  std::mt19937_64 random_;  // of ids and seeds
  std::mt19937_64 router_random_;
  gateway::LoadView view_;
  gateway::Router router_;
  gateway::Admission admission_;
  gateway::RetryBudget budget_;
  gateway::SlowWorkers slow_;
  gateway::Demand demand_;
  // By number of the worker.
  std::vector<Watched> watched_;
  bool knows_model_;
  struct OpenStream {
    std::weak_ptr<WorkerStream> stream;
    int worker;
  };
  std::map<uint64_t, OpenStream> streams_;  // by serial number
  uint64_t next_serial_ = 0;
  absl::flat_hash_map<std::string, size_t> by_address_;
  bool publish_due_ = false;
  bool changed_ = false;  // routing has to know of a change that is not published yet
  absl::Duration publish_time_ = -absl::InfiniteDuration();
  GatewayTotals totals_;
  // Timers of a gateway that is gone find this empty.
  std::shared_ptr<SimulatedGateway*> alive_;
};

}  // namespace continuo::simulate
