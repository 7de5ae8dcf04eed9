// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/runtime/worker_runtime.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/worker/server/runtime/load_report.h"

namespace continuo::server {
namespace {

WorkerIdentity WithIncarnation(WorkerIdentity identity, RandomBits& random) {
  const uint64_t high = random.Next();
  identity.incarnation = absl::StrFormat("%016x%016x", high, random.Next());
  return identity;
}

}  // namespace

WorkerRuntime::WorkerRuntime(WorkerIdentity given, const Clock* clock, absl::Duration end_patience,
                             int text_threads, std::function<void(bool)> set_health)
    : identity(WithIncarnation(std::move(given), random)),
      salt_key([this] { return random.Next(); }),
      open_calls(end_patience),
      load_board(
          [this] {
            return MakeLoadReport(identity, lifecycle.state(), lifecycle.hung(), serving.get());
          },
          clock),
      lifecycle(&open_calls, {.begin_drain = [this] { serving.get()->engine->BeginDrain(); },
                              .hung =
                                  [this] {
                                    // A drain may begin while the model still loads.
                                    const Serving* s = serving.get();
                                    return s != nullptr && s->engine->Hung();
                                  },
                              .running =
                                  [this] {
                                    const Serving* s = serving.get();
                                    return s == nullptr ? 0 : s->engine->Load().running;
                                  },
                              .set_health = std::move(set_health),
                              .state_changed = [this] { load_board.StateChanged(); }}),
      text_pool(text_threads),
      grammar_pool(text_threads),
      delivery_pool(1) {}

void WorkerRuntime::StartServing(Serving loaded) {
  serving.Set(std::move(loaded));
  lifecycle.StartServing();
}

}  // namespace continuo::server
