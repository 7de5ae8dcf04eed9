// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "continuo/v1/worker.pb.h"
#include "services/gateway/relay/worker_call.h"
#include "services/simulate/event_loop.h"
#include "services/simulate/network.h"
#include "services/simulate/worker_profile.h"
#include "services/simulate/worker_stream.h"
#include "services/worker/engine/rate_meter.h"
#include "services/worker/engine/requests/queue_quota.h"
#include "services/worker/engine/schedule/scheduler.h"
#include "services/worker/engine/types/metrics.h"
#include "services/worker/server/lifetime/load_board.h"

namespace continuo::simulate {

// The work of one worker so far.
struct WorkerTotals {
  uint64_t steps = 0;
  absl::Duration busy;            // in steps
  double used_block_seconds = 0;  // KV blocks in use, by the time of the steps
  double running_seconds = 0;     // running sequences, the same way
  int64_t prompt_tokens = 0, sampled_tokens = 0;
  int64_t preemptions = 0;
};

// A worker whose scheduler, KV blocks, queue quota and pace of reports are the real ones, while its
// device is a WorkerProfile. It makes the calls of Engine::Run in the same order; where the engine
// waits for the device, an event follows after the time that the step costs. Not thread-safe.
class SimulatedWorker {
 public:
  // Everything passed outlives the worker. `report` gets each load report as it leaves the worker.
  SimulatedWorker(int number, const WorkerProfile* profile, EventLoop* loop, const Network* network,
                  std::function<void(const v1::WatchLoadResponse&)> report);
  ~SimulatedWorker();

  // A call has arrived. The stream gets responses, and an end unless it is abandoned.
  void Receive(std::shared_ptr<WorkerStream> stream, const v1::GenerateRequest& request,
               const gateway::CallContext& context, bool is_migration);
  // The caller of the stream has given up, and the worker has heard of it.
  void Cancel(const WorkerStream* stream);

  // Makes a load report now, as to a new watcher.
  void ReportNow();

  int number() const { return number_; }
  const std::string& address() const { return address_; }
  const std::string& name() const { return name_; }
  WorkerTotals totals() const;

 private:
  struct Process;

  void Turn();
  void BeginStep();
  void EndStep();
  void Deliver();
  // Sends what Deliver has given, after the network's delay.
  void Flush();
  void OnLoad();
  void AwaitReport();
  v1::WatchLoadResponse MakeReport() const;
  engine::Moment Now() const { return {clock_.Now(), clock_.Elapsed()}; }
  // Calls `method` after `delay`, unless the process has ended by then.
  void After(absl::Duration delay, void (SimulatedWorker::*method)());

  const int number_;
  const std::string address_, name_;
  const WorkerProfile& profile_;
  EventLoop& loop_;
  const Network& network_;
  const std::function<void(const v1::WatchLoadResponse&)> report_;
  MachineClock clock_;
  WorkerTotals past_;  // of processes that have ended
  uint64_t num_processes_ = 0;
  std::unique_ptr<Process> process_;  // null: none runs
};

}  // namespace continuo::simulate
