// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/worker_connection.h"

#include <atomic>
#include <utility>

namespace continuo::gateway {

struct WorkerConnection::Shared {
  explicit Shared(Callbacks callbacks) : callbacks(std::move(callbacks)) {}

  void EndCall() {
    if (--num_open_calls == 0) callbacks.on_done();
  }

  const Callbacks callbacks;
  std::atomic<int> num_open_calls = 1;
  bool has_report = false;  // Used by the WatchLoad's callbacks alone.
};

WorkerConnection::WorkerConnection(const std::shared_ptr<WorkerChannel>& channel,
                                   const v1::WatchLoadRequest& request, Callbacks callbacks) {
  const auto shared = std::make_shared<Shared>(std::move(callbacks));
  health_ = std::make_shared<HealthWatch>(
      channel->channel, [shared](bool not_serving) { shared->callbacks.on_health(not_serving); },
      [shared] {
        shared->callbacks.on_health(/*not_serving=*/false);
        shared->EndCall();
      });
  load_ = std::make_shared<LoadWatch>(
      channel, request,
      [shared, health = health_](const v1::WatchLoadResponse& report) {
        if (!std::exchange(shared->has_report, true) &&
            report.health() == v1::WORKER_HEALTH_UNSPECIFIED) {
          ++shared->num_open_calls;
          health->Start(health);
        }
        shared->callbacks.on_report(report);
      },
      [shared, health = health_](const grpc::Status& status) {
        health->Cancel();
        shared->callbacks.on_end(status);
        shared->EndCall();
      });
}

void WorkerConnection::Start() { load_->Start(load_); }

void WorkerConnection::Cancel() {
  load_->Cancel();
  health_->Cancel();
}

}  // namespace continuo::gateway
