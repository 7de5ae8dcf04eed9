// SPDX-License-Identifier: Apache-2.0
#include "services/common/process.h"

#include <malloc.h>

#include <algorithm>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "services/common/log.h"

namespace continuo::common {

void PrepareProcess() {
#ifdef M_ARENA_MAX
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  mallopt(M_ARENA_MAX, std::max(2, cores / 2));
#endif
  InstallGrpcLogSink();
  // Builds with ThreadSanitizer detect cycles of locks by themselves.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace continuo::common
