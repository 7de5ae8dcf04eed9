// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

#include "services/base/byte_budget.h"
#include "services/base/clock.h"
#include "services/worker/server/lifetime/lifecycle.h"
#include "services/worker/server/lifetime/load_board.h"
#include "services/worker/server/lifetime/open_calls.h"
#include "services/worker/server/lifetime/request_registry.h"
#include "services/worker/server/runtime/random_bits.h"
#include "services/worker/server/runtime/request_counters.h"
#include "services/worker/server/runtime/serving.h"
#include "services/worker/server/runtime/worker_identity.h"
#include "services/worker/server/session/convert.h"
#include "services/worker/server/session/work_pool.h"

namespace continuo::server {

// The state of one worker, owned by its WorkerServer, which passes each service the parts that it
// needs. Every part is thread-safe. The members stand in the order in which they depend on each
// other.
struct WorkerRuntime {
  // The largest number of bytes of the Tokenize and Detokenize requests in progress, about 2 s of
  // work for one thread.
  static constexpr size_t kMaxTextCallBytes = 4 << 20;

  // The incarnation of `identity` is chosen here. `end_patience` is how long a call that was told
  // to end may take before it is cut. `clock` outlives the state; `set_health` is called from any
  // thread.
  WorkerRuntime(WorkerIdentity identity, const Clock* clock, absl::Duration end_patience,
                int text_threads, std::function<void(bool)> set_health);

  // The model is loaded: calls are served from now on.
  void StartServing(Serving loaded);

  RandomBits random;
  const WorkerIdentity identity;
  const SaltKey salt_key;
  ServingSlot serving;
  RequestCounters counters;
  RequestRegistry registry;
  OpenCalls open_calls;
  LoadBoard load_board;
  Lifecycle lifecycle;
  ByteBudget text_budget{kMaxTextCallBytes};
  WorkPool text_pool;      // for work that takes time with a prompt's length
  WorkPool grammar_pool;   // for requests with a grammar, which may take seconds to compile
  WorkPool delivery_pool;  // for text work that follows a step
};

}  // namespace continuo::server
