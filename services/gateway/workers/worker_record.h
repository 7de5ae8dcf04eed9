// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "continuo/v1/worker.pb.h"
#include "services/gateway/routing/load_view.h"
#include "services/gateway/routing/slow_workers.h"
#include "services/gateway/workers/worker_verdict.h"

namespace continuo::gateway {

// The changes that one report brings.
struct ReportNews {
  bool changed = false;      // Routing has to know: a state or an identity differs.
  bool urgent = false;       // And at once, since a worker that it counts on has changed.
  bool replaced = false;     // Another process than before answers at the address.
  bool became_slow = false;  // The steps of the model have become slow.
  // Adapters that the process served and does not any more.
  std::vector<std::string> withdrawn = {};
};

// The record of one worker address: its pool, the loads that it reported, by model, and the verdict
// on each. Does no I/O; times are of Clock::Elapsed. Not thread-safe.
class WorkerRecord {
 public:
  struct Model {
    // The state in the last report. Empty: nothing was reported since the worker was last lost or
    // silent.
    std::optional<v1::WorkerState> reported;
    // The last report, with the state that the verdict gives it. Never null.
    std::shared_ptr<const WorkerLoad> load;
    std::string peers = {};  // Its group in SlowWorkers.
  };

  WorkerRecord(std::string address, const WorkerVerdictOptions& options, absl::Duration now)
      : address_(std::move(address)), first_time_(now), verdict_(options) {}

  // The pool that the address belongs to (PoolSpec), and that pool's weight. The loads have them
  // from the next report on.
  void SetPool(int pool, double weight);
  // A resolver names the address, or none does. A worker that is no longer listed drains at once;
  // one that is listed again serves from its next report on. Returns whether a load changed.
  bool SetListed(bool listed, absl::Duration now);

  // A watch is opened; nothing has been reported on it.
  void OnConnecting(absl::Duration now) { verdict_.OnConnecting(now); }
  // `slow` compares the steps of the worker with those of its peers.
  ReportNews OnReport(const v1::WatchLoadResponse& report, absl::Duration now, SlowWorkers* slow);
  // A hung worker that says SERVING again serves from its next report on.
  void OnHealth(bool not_serving, absl::Duration now) { verdict_.OnHealth(not_serving, now); }
  // The watch ended. `refused` tells that the port refused the connection, so no process listens
  // there. Returns whether a load changed.
  bool OnEnd(bool refused);
  // Time has passed. Returns kSilent or kHung where that is the verdict from now on, and adds to
  // `*changed` whether a load changed. For the others see WorkerVerdict::Check.
  std::optional<Verdict> Check(absl::Duration now, absl::Duration awake_time, bool* changed,
                               absl::Duration silence_limit = absl::ZeroDuration());

  // True at the first report of a process that says SERVING, and at the first one that names an
  // adapter: its models are to be queried.
  bool TakeModelQuery(const v1::WatchLoadResponse& report);
  // The query failed; the next report asks for it again.
  void OnModelQueryFailed(const std::string& incarnation);

  // The delay before the next watch is opened. It doubles, from min to max, with each watch that
  // ends without a report.
  absl::Duration NextReconnectDelay(absl::Duration min, absl::Duration max);

  // The worker has named its model, or it was attempted and `wait` has passed since it was added.
  bool IsDiscovered(absl::Duration now, absl::Duration wait) const {
    return reported_model_ || (attempted_ && now - first_time_ >= wait);
  }
  bool listed() const { return listed_; }
  // It was last known to be listed at this time.
  absl::Duration listed_time() const { return listed_time_; }
  // The open watch has reported.
  bool has_report() const { return verdict_.has_report(); }
  // The open watch was opened or last reported at this time; nothing where none is open, or it is
  // silent.
  std::optional<absl::Duration> last_heard() const { return verdict_.last_heard(); }
  // By name; "" while the worker cannot name its model yet.
  const std::map<std::string, Model>& models() const { return models_; }

 private:
  // Gives the adapters of a report the load of their model. Returns whether routing has to know.
  bool SetAdapters(const v1::WatchLoadResponse& report, const WorkerLoad& load,
                   std::vector<std::string>* withdrawn);
  // Gives each load the state of today's verdict. Returns whether one changed.
  bool Judge();
  // Nothing that was reported counts any more, until it is reported again.
  bool MarkLost(bool refused);

  const std::string address_;
  const absl::Duration first_time_;  // When the address was added.
  bool listed_ = true;
  absl::Duration listed_time_ = first_time_;
  int pool_ = 0;
  double pool_weight_ = 1;

  WorkerVerdict verdict_;
  bool reported_model_ = false;
  bool attempted_ = false;  // The worker has reported or failed once.
  int failures_ = 0;        // Watches in a row that ended without a report.
  std::string incarnation_;
  std::string queried_incarnation_;  // The process whose models were queried …
  std::set<std::string, std::less<>> queried_adapters_;  // … with these adapters.
  std::map<std::string, Model> models_;
};

}  // namespace continuo::gateway
