// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "absl/time/time.h"
#include "continuo/v1/worker.pb.h"
#include "services/gateway/routing/load_view.h"

namespace continuo::gateway {

// The gateway's verdict on a worker, as one of its models sees it.
enum class Verdict {
  kLost,        // No watch is open, or the open one has not reported this model.
  kConnecting,  // A watch was opened and has not reported yet.
  kSilent,      // A watch is open and has reported nothing for max_silence.
  kLoading,     // It reports that it does not take requests yet.
  kServing,     // It reports SERVING, and nothing speaks against it.
  kSlow,        // It serves, but its steps take several times as long as those of its peers.
  kHung,        // It reports SERVING, while its health has said NOT_SERVING for hung_confirm.
  kDraining,    // It reports DRAINING, or it reports SERVING and is no longer listed.
};

// For logs: "lost", "connecting", "silent", "loading", "serving", "slow", "hung", "draining".
const char* VerdictName(Verdict verdict);

// The verdict in routing's terms: a worker that does not report is lost, a slow one still serves.
WorkerState RoutingState(Verdict verdict);

// The evidence on one model of a worker.
struct ModelEvidence {
  // The state in the model's last report; nothing where it has not reported since it was last lost
  // or silent.
  std::optional<v1::WorkerState> reported;
  bool listed = true;  // A resolver names the worker's address.
  bool slow = false;   // The judgement of SlowWorkers.
};

// The times after which a worker is silent or hung.
struct WorkerVerdictOptions {
  // A worker is silent when it has reported nothing for this long.
  absl::Duration max_silence = absl::Seconds(2);
  // A worker is hung when its health has contradicted its reports for hung_confirm, and a report
  // still said SERVING hung_report after the contradiction began, or tells the health itself. A
  // drain shows in the health a little before its report arrives; after loading, it is the other
  // way round.
  absl::Duration hung_confirm = absl::Milliseconds(400);
  absl::Duration hung_report = absl::Milliseconds(200);
};

// Judges one worker from its reports, its health and the time. A state machine without I/O and
// without a clock: times are of a clock that never goes back, passed in. Not thread-safe.
class WorkerVerdict {
 public:
  explicit WorkerVerdict(const WorkerVerdictOptions& options = {}) : options_(options) {}

  // A watch of its reports and its health is opened.
  void OnConnecting(absl::Duration now);
  // A report of any of its models arrived.
  void OnReport(absl::Duration now);
  // The reports of a model begin to say SERVING: its health may lag behind.
  void OnBeginServing(absl::Duration now) { contradiction_time_ = now; }
  // The health service answered; a worker without one, or whose health watch ended, counts as well.
  void OnHealth(bool not_serving, absl::Duration now);
  // The health as a report tells it. It fits the report's state, so none has to come after it.
  void OnReportedHealth(bool not_serving, absl::Duration now);
  // The watch ended.
  void OnEnd();

  // Time has passed. Returns kSilent or kHung where that is the verdict from now on.
  // `awake_time` is the moment since which this process has run without a pause: reports of before
  // may still be unread. `claims_serving` tells whether any model counts as ready or slow.
  // `silence_limit` is that of the whole fleet and counts where it is longer than max_silence.
  std::optional<Verdict> Check(absl::Duration now, absl::Duration awake_time, bool claims_serving,
                               absl::Duration silence_limit = absl::ZeroDuration());

  // A pure function of the evidence and of the events so far.
  Verdict Judge(const ModelEvidence& evidence) const;

  // The open watch has reported; also after it has gone silent.
  bool has_report() const { return has_report_; }
  // The open watch was opened or last reported at this time; nothing where none is open, or it is
  // silent.
  std::optional<absl::Duration> last_heard() const {
    if (connection_ != Connection::kConnecting && connection_ != Connection::kReporting) {
      return std::nullopt;
    }
    return last_report_time_;
  }

 private:
  enum class Connection { kClosed, kConnecting, kReporting, kSilent };
  enum class Health {
    kServing,
    kNotServing,
    kHung,  // Judged hung, until it says SERVING again.
  };

  const WorkerVerdictOptions options_;
  Connection connection_ = Connection::kClosed;
  bool has_report_ = false;
  Health health_ = Health::kServing;
  bool health_is_reported_ = false;  // It came with a report of the open watch.
  // The watch was opened or last reported at this time.
  absl::Duration last_report_time_;
  // At this time the health last began to say NOT_SERVING or a report last began to say SERVING.
  absl::Duration contradiction_time_;
};

}  // namespace continuo::gateway
