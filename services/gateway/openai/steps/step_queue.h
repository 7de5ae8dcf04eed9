// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "services/gateway/openai/steps/step_json.h"
#include "services/gateway/relay/step_feed.h"

namespace continuo::gateway::openai {

// The steps of one worker on their way to one watcher's connection. Bounded: beyond kMaxBytes of
// JSON the oldest steps are dropped and counted, so a slow reader loses steps rather than memory
// being lost to it. Thread-safe.
class StepQueue : public StepFeed::Watcher {
 public:
  static constexpr size_t kMaxBytes = 1 << 20;

  // What a connection has to know since the last Take.
  struct News {
    bool is_open = false;  // the worker has taken the watch, now or before
    // {"steps":[…],"dropped":n}, where n steps were lost since the last one; empty where there is
    // no step.
    std::string steps;
    std::optional<absl::Status> end;  // nothing follows
  };

  // `notify` is called from any thread when there is something to take.
  StepQueue(std::function<void()> notify, std::shared_ptr<const StepIds> ids)
      : ids_(std::move(ids)), notify_(std::move(notify)) {}

  void OnOpen() override;
  void OnSteps(const v1::WatchStepsResponse& response) override;
  // The first call counts. The gateway may end a watch before the worker does.
  void OnEnd(const absl::Status& status) override;

  News Take();
  // `notify` is not called any more once it returns.
  void Close();

 private:
  void Notify() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<const StepIds> ids_;
  absl::Mutex mutex_;
  std::function<void()> notify_ ABSL_GUARDED_BY(mutex_);  // Null after Close.
  bool is_open_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::string> steps_ ABSL_GUARDED_BY(mutex_);  // as JSON
  size_t num_bytes_ ABSL_GUARDED_BY(mutex_) = 0;           // of steps_
  uint64_t num_dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::gateway::openai
