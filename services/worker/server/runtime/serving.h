// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "services/worker/engine/engine.h"
#include "services/worker/server/session/served_model.h"

namespace continuo::server {

// A loaded model and the engine that runs it.
struct Serving {
  ServedModel model;
  engine::Engine* engine = nullptr;
};

// The place where calls find the model once it is loaded. Thread-safe.
class ServingSlot {
 public:
  // Null while the model is being loaded. What it points to stays valid until the slot ends.
  const Serving* get() const { return serving_.load(std::memory_order_acquire); }

  // Called once.
  void Set(Serving serving) {
    owner_ = std::make_unique<Serving>(std::move(serving));
    serving_.store(owner_.get(), std::memory_order_release);
  }

 private:
  std::unique_ptr<Serving> owner_;
  std::atomic<const Serving*> serving_ = nullptr;
};

}  // namespace continuo::server
