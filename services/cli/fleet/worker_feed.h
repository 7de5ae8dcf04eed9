// SPDX-License-Identifier: Apache-2.0
#pragma once

// The streams of one worker, WatchLoad and WatchSteps, for as long as somebody wants to see them:
// a stream that ends is opened again, so a worker may go away and come back.

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
  Connection connection;  // Its server is the worker.
  absl::Duration steps_interval = absl::Milliseconds(100);
  absl::Duration retry_delay = absl::Milliseconds(250);
};

// Called from threads of the feed, one at a time.
struct WorkerFeedSinks {
  std::function<void(const v1::WatchStepsResponse&)> steps;
  std::function<void(const v1::WatchLoadResponse&)> load;  // Empty: WatchLoad is not called.
  // Why a stream ended or could not be opened. It is tried again after the delay.
  std::function<void(const absl::Status&)> steps_lost, load_lost;
};

// Whether trying again cannot help: the address is no worker's, or the key is not known there.
bool IsLasting(const absl::Status& status);

class WorkerFeed {
 public:
  // An error where the channel cannot be made (TLS files).
  static absl::StatusOr<std::unique_ptr<WorkerFeed>> Start(const WorkerFeedOptions& options,
                                                           WorkerFeedSinks sinks);
  // Nothing is called any more when it returns.
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
  absl::Mutex sinks_mutex_;  // Held in a sink.
  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);  // In progress.
  std::vector<std::thread> threads_;
};

}  // namespace continuo::cli
