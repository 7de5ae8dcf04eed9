// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "continuo/v1/worker.pb.h"

namespace continuo::gateway {

// A feed tells what the steps of workers run (WatchSteps), free of gRPC. Thread-safe.
class StepFeed {
 public:
  // Called from any thread, by one at a time.
  class Watcher {
   public:
    virtual ~Watcher() = default;
    // The worker has taken the watch. Not called where it never does.
    virtual void OnOpen() = 0;
    virtual void OnSteps(const v1::WatchStepsResponse& response) = 0;
    // Called once, as the last.
    virtual void OnEnd(const absl::Status& status) = 0;
  };
  // Ends a watch soon; OnEnd is called all the same. May be called at any time, more than once.
  using Cancel = std::function<void()>;

  virtual ~StepFeed() = default;
  // Watches the worker at an address of the LoadView, until it ends or Cancel is called. Responses
  // are read as they come, so the watcher bounds what it keeps.
  virtual Cancel Watch(const std::string& address, std::shared_ptr<Watcher> watcher) = 0;
};

}  // namespace continuo::gateway
