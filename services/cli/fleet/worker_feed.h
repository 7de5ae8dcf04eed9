// SPDX-License-Identifier: Apache-2.0
#pragma once

// Follows WatchLoad and WatchSteps of one worker. A stream that ends is opened again, so the worker
// may go away and come back.

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "continuo/v1/worker.grpc.pb.h"
#include "services/cli/client/connection.h"

namespace continuo::cli {

struct WorkerFeedOptions {
  Connection connection;  // The server is the worker.
  absl::Duration steps_interval = absl::Milliseconds(100);
  absl::Duration retry_delay = absl::Milliseconds(250);
};

// The receivers of a feed. They are called on its threads, one at a time.
struct WorkerFeedSinks {
  std::function<void(const v1::WatchStepsResponse&)> steps;
  std::function<void(const v1::WatchLoadResponse&)> load;  // Without it WatchLoad is not called.
  // A stream ended or could not be opened, for this reason. It is retried after retry_delay.
  std::function<void(const absl::Status&)> steps_lost, load_lost;
};

// Retrying cannot help: the address is not a worker's, or the key is not known there.
bool IsLasting(const absl::Status& status);

// One thread for each stream. Thread-safe.
class WorkerFeed {
 public:
  // INVALID_ARGUMENT where the TLS files cannot be used.
  static absl::StatusOr<std::unique_ptr<WorkerFeed>> Start(const WorkerFeedOptions& options,
                                                           WorkerFeedSinks sinks);
  // No sink is called after it returns.
  ~WorkerFeed();
  WorkerFeed(const WorkerFeed&) = delete;
  WorkerFeed& operator=(const WorkerFeed&) = delete;

 private:
  WorkerFeed(const WorkerFeedOptions& options, WorkerFeedSinks sinks)
      : options_(options), sinks_(std::move(sinks)) {}
  template <typename Response, typename Open>
  void Follow(Open open, const std::function<void(const Response&)>& take,
              const std::function<void(const absl::Status&)>& lost);

  const WorkerFeedOptions options_;
  const WorkerFeedSinks sinks_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  absl::Mutex sinks_mutex_;  // Held while a sink runs.
  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);  // In progress.
  std::vector<std::thread> threads_;
};

}  // namespace continuo::cli
