// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/base/status_macros.h"
#include "services/worker/engine/engine.h"
#include "services/worker/server/runtime/served_adapters.h"
#include "services/worker/server/session/served_model.h"

namespace continuo::server {

// A loaded model and the engine that runs it.
struct Serving {
  ServedModel model;
  std::unique_ptr<ServedAdapters> adapters;
  engine::Engine* engine = nullptr;

  // The model, or its adapter, that a request names: the model itself also where the name is empty,
  // or none that is served, which the request's check tells. An adapter is described alone and
  // cannot run. The result lives as long as this.
  std::shared_ptr<const ServedModel> Find(std::string_view name) const {
    if (ServedAdapters::Adapter adapter = adapters->Find(name); adapter != nullptr) return adapter;
    return {std::shared_ptr<const void>(), &model};
  }
  // The same to run it. Null where the adapter has to be read first: then `done` is called, as
  // ServedAdapters::Acquire has it. `before_wait` is called before that; its errors are returned,
  // and nothing waits.
  absl::StatusOr<std::shared_ptr<const ServedModel>> Acquire(
      std::string_view name, uint64_t waiter, size_t bytes,
      absl::FunctionRef<absl::Status()> before_wait, ServedAdapters::Done done) const {
    ServedAdapters::Acquired found = adapters->TryAcquire(name);
    if (!found.is_unknown && found.adapter == nullptr) {
      RETURN_IF_ERROR(before_wait());
      found = adapters->Acquire(name, waiter, bytes, std::move(done));
    }
    if (!found.is_unknown) return std::move(found.adapter);
    return std::shared_ptr<const ServedModel>(std::shared_ptr<const void>(), &model);
  }
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
