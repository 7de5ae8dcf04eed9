// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/base/byte_budget.h"
#include "services/base/clock.h"
#include "services/worker/engine/engine.h"
#include "services/worker/server/lifetime/lifecycle.h"
#include "services/worker/server/lifetime/load_board.h"
#include "services/worker/server/lifetime/open_calls.h"
#include "services/worker/server/lifetime/request_registry.h"
#include "services/worker/server/session/convert.h"
#include "services/worker/server/session/served_model.h"
#include "services/worker/server/session/work_pool.h"

namespace continuo::common {
class SpanExporter;
}  // namespace continuo::common

namespace continuo::server {

// What is there once the model is loaded.
struct Serving {
  ServedModel model;
  engine::Engine* engine = nullptr;
};

// What the services of one worker share. Thread-safe. Members are made in the order in which they
// depend on each other.
class WorkerCore {
 public:
  // Prompts that wait for a thread to encode them, beyond which new ones are shed.
  static constexpr size_t kMaxWaitingPromptBytes = 64 << 20;
  // Requests of Tokenize and Detokenize that are being worked on, together. Some 2 s of work for
  // one thread.
  static constexpr size_t kMaxTextCallBytes = 4 << 20;

  struct Identity {
    std::string worker;      // name of this worker, for people and metrics
    std::string model_name;  // known before the model is loaded
    bool tls = false;
    absl::Duration drain_grace = absl::Seconds(5);
    // How long a call that was told to end may take before it is cut.
    absl::Duration end_patience = absl::Seconds(3);
    common::SpanExporter* spans = nullptr;  // none: nothing is traced; outlives the core
  };
  // `clock` outlives the core; `set_health` is called from any thread.
  WorkerCore(Identity identity, const Clock* clock, int text_threads,
             std::function<void(bool)> set_health);
  ~WorkerCore();

  // The model is loaded; `serving` stays valid until the core ends.
  void StartServing(Serving serving);
  // Null while the model is being loaded.
  const Serving* serving() const { return serving_.load(std::memory_order_acquire); }

  // Why nothing new is taken now: loading, or draining.
  absl::Status CheckServing() const;
  void CountRequest(absl::StatusCode code);
  uint64_t num_requests(absl::StatusCode code) const;

  uint64_t Random();
  engine::RequestId NextId() { return next_id_.fetch_add(1, std::memory_order_relaxed); }
  v1::WatchLoadResponse ReadLoad() const;

  const Identity& identity() const { return identity_; }
  const std::string& incarnation() const { return incarnation_; }
  const SaltKey& salt_key() const { return salt_key_; }
  const Clock& clock() const { return *clock_; }
  RequestRegistry& registry() { return registry_; }
  OpenCalls& open_calls() { return open_calls_; }
  Lifecycle& lifecycle() { return lifecycle_; }
  LoadBoard& load_board() { return load_board_; }
  // For what takes time with a prompt's length.
  WorkPool& text_pool() { return text_pool_; }
  // Of the unary calls among it.
  ByteBudget& text_budget() { return text_budget_; }
  // For what follows a step.
  WorkPool& delivery_pool() { return delivery_pool_; }

 private:
  const Identity identity_;
  const Clock* const clock_;
  struct RandomState;  // keeps a costly header out of this one
  const std::unique_ptr<RandomState> random_;
  const std::string incarnation_;
  const SaltKey salt_key_;
  std::atomic<engine::RequestId> next_id_ = 1;
  std::array<std::atomic<uint64_t>, 17> requests_by_code_ = {};

  std::unique_ptr<Serving> serving_owner_;
  std::atomic<const Serving*> serving_ = nullptr;
  RequestRegistry registry_;
  OpenCalls open_calls_;
  LoadBoard load_board_;
  Lifecycle lifecycle_;
  ByteBudget text_budget_{kMaxTextCallBytes};
  WorkPool text_pool_;
  WorkPool delivery_pool_;
};

}  // namespace continuo::server
