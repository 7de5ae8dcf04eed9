// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/simulate/event/event_loop.h"
#include "services/simulate/event/network.h"
#include "services/simulate/faults.h"
#include "services/simulate/load.h"
#include "services/simulate/results.h"
#include "services/simulate/scaling/autoscaler.h"
#include "services/simulate/scaling/pod_set.h"
#include "services/simulate/simulated_client.h"
#include "services/simulate/simulated_gateway.h"
#include "services/simulate/worker/simulated_worker.h"
#include "services/worker/profile/worker_profile.h"

namespace continuo::simulate {

struct SimulationOptions {
  int workers = 1, gateways = 1;  // workers at the begin, where an autoscaler changes their number
  std::optional<AutoscalerOptions> autoscaler;
  profile::WorkerProfile profile;
  GatewayOptions gateway;
  // A message from a client to a gateway takes so long, and one from there to a worker.
  absl::Duration network_delay = absl::Microseconds(200);
  // Requests that are open at a time, in a closed loop; 0 sends them at their arrivals.
  int concurrency = 0;
  // The max_tokens that clients ask for. 0: the length of the answer, which then does not end by
  // itself.
  int max_tokens = 0;
  absl::Duration timeout = absl::InfiniteDuration();  // deadline of each request
  uint64_t seed = 0;

  std::vector<Fault> faults;       // by their time
  bool clients_reconnect = false;  // after the loss of a gateway, or of a stream that had begun
  // Invariants are checked after every event, and the state of rest at the end.
  bool checks = false;
  // The simulation fails if requests are open this long after the last arrival and fault.
  absl::Duration patience = absl::InfiniteDuration();
  TestHooks hooks;
  std::function<void(SimulatedGateway&)> on_open;  // called after each request; may be null
};

// A fleet on a virtual clock: the classes that decide in production, over simulated devices and a
// simulated network. Runs once. The results are a function of the options and the load. Not
// thread-safe.
class Simulation {
 public:
  // `load` outlives the simulation.
  Simulation(const SimulationOptions& options, Load* load);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // Runs until all requests have ended. `go_on` is asked now and then, with what there is so far;
  // false ends the simulation with CANCELLED. DATA_LOSS if an answer is not the expected one,
  // INTERNAL if an invariant is broken.
  absl::StatusOr<Results> Run(absl::FunctionRef<bool(const Results&)> go_on);

 private:
  void Arrive(const PlannedRequest& planned);
  void Open(const PlannedRequest& planned);
  // Takes the next request of the load and sends it at its time.
  void AwaitNext();
  void OnEnd(SimulatedClient* client);
  // Opens the client's call at a gateway that runs.
  void Connect(SimulatedClient* client);
  // The number of workers changes, or where they are.
  void OnPods();
  void Begin(const Fault& fault);
  // Another process starts in the worker's pod, if it still has one.
  void Restart(SimulatedWorker& worker);
  void CrashGateway(int gateway);
  void StartGateway(int gateway);
  absl::Status CheckInvariants();
  absl::Status CheckAtRest();
  void AddTotals();

  SimulationOptions options_;
  Load& load_;
  EventLoop loop_;
  Network network_;
  std::mt19937_64 random_;
  Results results_;
  absl::Duration begin_, last_end_;
  absl::Duration last_cause_;  // the last arrival or fault
  // They count cuts, by gateway and worker, and losses of reports, by worker.
  std::map<std::pair<int, int>, int> num_cuts_;
  std::vector<int> num_mutes_;
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;
  PodSet pods_;
  std::vector<std::unique_ptr<SimulatedGateway>> gateways_;
  std::optional<Autoscaler> autoscaler_;
  // The pod times when the first request comes.
  absl::Duration past_pod_time_;
  std::vector<absl::Duration> past_serving_time_;
  std::map<uint64_t, std::unique_ptr<SimulatedClient>> clients_;  // by index of the request
  std::vector<std::unique_ptr<SimulatedClient>> ended_;           // kept until the event is over
  bool load_is_over_ = false;
  uint64_t num_open_ = 0;  // requests that were sent and have not ended
  absl::Status mistake_;
};

}  // namespace continuo::simulate
