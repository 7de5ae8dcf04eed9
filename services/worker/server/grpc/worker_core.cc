// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/grpc/worker_core.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/random/random.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "services/protocol/error.h"

namespace continuo::server {

struct WorkerCore::RandomState {
  absl::Mutex mutex;
  absl::BitGen bits ABSL_GUARDED_BY(mutex);
};

WorkerCore::WorkerCore(Identity identity, const Clock* clock, int text_threads,
                       std::function<void(bool)> set_health)
    : identity_(std::move(identity)),
      clock_(clock),
      random_(std::make_unique<RandomState>()),
      incarnation_(absl::StrFormat("%016x%016x", Random(), Random())),
      salt_key_([this] { return Random(); }),
      open_calls_(identity_.end_patience),
      load_board_([this] { return ReadLoad(); }, clock),
      lifecycle_(&open_calls_, {.begin_drain = [this] { serving()->engine->BeginDrain(); },
                                .hung =
                                    [this] {
                                      // A drain may begin while the model still loads.
                                      const Serving* s = serving();
                                      return s != nullptr && s->engine->Hung();
                                    },
                                .running =
                                    [this] {
                                      const Serving* s = serving();
                                      return s == nullptr ? 0 : s->engine->Load().running;
                                    },
                                .set_health = std::move(set_health),
                                .state_changed = [this] { load_board_.StateChanged(); }}),
      text_pool_(text_threads),
      delivery_pool_(1) {}

WorkerCore::~WorkerCore() = default;

void WorkerCore::StartServing(Serving serving) {
  serving_owner_ = std::make_unique<Serving>(std::move(serving));
  serving_.store(serving_owner_.get(), std::memory_order_release);
  lifecycle_.StartServing();
}

absl::Status WorkerCore::CheckServing() const {
  switch (lifecycle_.state()) {
    case v1::WORKER_STATE_SERVING:
      return absl::OkStatus();
    case v1::WORKER_STATE_DRAINING:
      return DrainingError();
    default:
      return protocol::WithRetryInfo(absl::UnavailableError("the worker is loading its model"),
                                     absl::Seconds(1));
  }
}

void WorkerCore::CountRequest(absl::StatusCode code) {
  const auto index = static_cast<size_t>(code);
  if (index < requests_by_code_.size()) {
    requests_by_code_[index].fetch_add(1, std::memory_order_relaxed);
  }
}

uint64_t WorkerCore::num_requests(absl::StatusCode code) const {
  return requests_by_code_[static_cast<size_t>(code)].load(std::memory_order_relaxed);
}

uint64_t WorkerCore::Random() {
  absl::MutexLock lock(&random_->mutex);
  return absl::Uniform<uint64_t>(random_->bits);
}

v1::WatchLoadResponse WorkerCore::ReadLoad() const {
  v1::WatchLoadResponse load;
  load.set_worker(identity_.worker);
  load.set_incarnation(incarnation_);
  load.set_state(lifecycle_.state());
  load.set_model(identity_.model_name);
  const Serving* s = serving();
  if (s == nullptr) return load;
  load.set_fingerprint(s->model.fingerprint);
  load.set_tokenizer_fingerprint(s->model.tokenizer_fingerprint);
  const engine::EngineLoad e = s->engine->Load();
  load.set_running_requests(static_cast<uint32_t>(e.running));
  load.set_waiting_requests(static_cast<uint32_t>(e.waiting));
  load.set_pending_prompt_tokens(static_cast<uint64_t>(e.pending_prompt_tokens));
  load.set_used_kv_blocks(static_cast<uint32_t>(e.used_blocks));
  load.set_cached_kv_blocks(static_cast<uint32_t>(e.cached_blocks));
  load.set_total_kv_blocks(static_cast<uint32_t>(e.total_blocks));
  load.set_block_size_tokens(static_cast<uint32_t>(e.block_size));
  load.set_max_running_requests(static_cast<uint32_t>(e.max_running));
  load.set_steps(e.steps);
  load.set_prefill_tokens_per_second(e.prefill_tokens_per_second);
  load.set_decode_tokens_per_second(e.decode_tokens_per_second);
  return load;
}

}  // namespace continuo::server
