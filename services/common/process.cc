// SPDX-License-Identifier: Apache-2.0
#include "services/common/process.h"

#include <malloc.h>

#include <algorithm>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "services/common/log.h"

namespace continuo::common {
namespace {

// Blocks from this size on are mappings of their own; what is free at the end of an arena is given
// back from this size on.
constexpr int kMmapThreshold = 1 << 20, kTrimThreshold = 4 << 20;

}  // namespace

void PrepareProcess() {
#ifdef M_ARENA_MAX
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  mallopt(M_ARENA_MAX, std::max(2, cores / 2));
  // Buffers of messages come and go. By default glibc gives their pages back at once, each time,
  // and each page costs a fault when it is needed again.
  mallopt(M_MMAP_THRESHOLD, kMmapThreshold);
  mallopt(M_TRIM_THRESHOLD, kTrimThreshold);
#endif
  InstallGrpcLogSink();
  // Builds with ThreadSanitizer detect cycles of locks by themselves.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace continuo::common
