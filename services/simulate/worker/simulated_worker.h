// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "continuo/v1/worker.pb.h"
#include "services/gateway/relay/worker_call.h"
#include "services/simulate/event/event_loop.h"
#include "services/simulate/event/network.h"
#include "services/simulate/worker/worker_process.h"
#include "services/simulate/worker/worker_stream.h"
#include "services/worker/profile/worker_profile.h"

namespace continuo::simulate {

// The others hear this of a worker, after the network's delay. The events outlive the worker.
struct WorkerEvents {
  std::function<void(const v1::WatchLoadResponse&)> on_report;
  // The process has ended; called at once, and may be null.
  std::function<void()> on_down;
  // The process has ended, and with it the connections.
  std::function<void()> on_exit;
  std::function<void(bool not_serving)> on_health;
};

// The metrics of a worker that an autoscaler looks at, as Prometheus gets them.
struct WorkerGauges {
  double kv_occupancy = 0;  // continuo_kv_blocks_used / continuo_kv_blocks_total
  double waiting_tokens = 0;
  double token_seconds = 0;  // continuo_token_seconds_total
};

// A worker whose scheduler, KV blocks, queue quota and pace of reports are the real ones, while its
// device is a WorkerProfile. It makes the calls of Engine::Run in the same order; where the engine
// waits for the device, an event follows after the time that the step costs. Not thread-safe.
class SimulatedWorker {
 public:
  // Everything passed outlives the worker. It has a process if it `runs`.
  SimulatedWorker(int number, bool runs, const profile::WorkerProfile* profile, EventLoop* loop,
                  const Network* network, WorkerEvents events, const TestHooks* hooks);
  ~SimulatedWorker();

  // A call has arrived, with so much time left. The stream gets responses, and an end unless it is
  // abandoned.
  void Receive(std::shared_ptr<WorkerStream> stream, const v1::GenerateRequest& request,
               const gateway::CallContext& context, absl::Duration time_left, bool is_migration);
  // The caller of the stream has given up, and the worker has heard of it.
  void Cancel(const std::shared_ptr<WorkerStream>& stream);

  // Begins to report the load to all gateways.
  void ReportNow();
  // The load as it is now, as for a new watcher. Needs a process.
  v1::WatchLoadResponse MakeReport() const;

  // The process ends; its connections are reset. Does nothing without one.
  void Crash();
  // Another process starts. Does nothing if one runs.
  void Restart();
  // The device stands still for so long. If it `freezes`, the rest of the process does as well.
  void Hang(absl::Duration time, bool freezes);
  // From now on steps take so many times as long.
  void SetSlowness(double factor) { slowness_ = factor; }
  // The process takes no new calls, ends those that are left after `grace`, and exits with the
  // last.
  void Drain(absl::Duration grace);
  MachineClock& clock() { return clock_; }
  // Returns what a scrape gets; nothing if no process answers.
  std::optional<WorkerGauges> Gauges() const;

  // Calls the one of the WorkerProcess; OK without a process.
  absl::Status CheckInvariants();
  absl::Status CheckAtRest() const;
  // Numbers the processes from 1; the last one's.
  uint64_t process_number() const { return num_processes_; }
  bool is_running() const { return process_ != nullptr; }
  bool is_draining() const { return is_running() && process_->state == v1::WORKER_STATE_DRAINING; }

  int number() const { return number_; }
  const std::string& address() const { return address_; }
  const std::string& name() const { return name_; }
  WorkerTotals totals() const;

 private:
  void Turn();
  void BeginStep();
  void EndStep();
  void CheckFairness();
  void CheckHealth();
  void EndGrace();
  void ExitIfDrained();
  void Wake();
  void Deliver();
  // Sends what Deliver has given, after the network's delay.
  void Flush();
  void OnLoad();
  void AwaitReport();
  engine::Moment Now() const { return {clock_.Now(), clock_.Elapsed()}; }
  // Calls `method` after `delay`, unless the process has ended by then.
  void After(absl::Duration delay, void (SimulatedWorker::*method)());

  const int number_;
  const std::string address_, name_;
  const profile::WorkerProfile& profile_;
  EventLoop& loop_;
  const Network& network_;
  const WorkerEvents events_;
  const TestHooks& hooks_;
  MachineClock clock_;
  double slowness_ = 1;
  WorkerTotals past_;  // of processes that have ended
  uint64_t num_processes_ = 0;
  std::unique_ptr<WorkerProcess> process_;  // null: none runs
};

}  // namespace continuo::simulate
