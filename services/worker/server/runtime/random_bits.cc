// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/runtime/random_bits.h"

#include "absl/base/thread_annotations.h"
#include "absl/random/random.h"
#include "absl/synchronization/mutex.h"

namespace continuo::server {

struct RandomBits::State {
  absl::Mutex mutex;
  absl::BitGen bits ABSL_GUARDED_BY(mutex);
};

RandomBits::RandomBits() : state_(std::make_unique<State>()) {}

RandomBits::~RandomBits() = default;

uint64_t RandomBits::Next() {
  absl::MutexLock lock(&state_->mutex);
  return absl::Uniform<uint64_t>(state_->bits);
}

}  // namespace continuo::server
