// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace continuo {

// Reads a whole regular file. INVALID_ARGUMENT says what is wrong, as the end of a sentence that
// begins with the file's name: "is not a file that can be read", or that it is larger than
// `max_bytes`. Thread-safe.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, uint64_t max_bytes);

// Follows the text of a small file, as a Secret's that is mounted. Has a thread. Thread-safe.
class WatchedFile {
 public:
  // `on_change` is called when the text, or the reason why there is none, is another one than at
  // the last look: on the watching thread, or in Look, one call at a time. `seen` is the text that
  // the caller has read already.
  WatchedFile(std::string path, uint64_t max_bytes, absl::Duration interval, std::string seen,
              std::function<void(const absl::StatusOr<std::string>& text)> on_change);
  // Ends the thread.
  ~WatchedFile();
  WatchedFile(const WatchedFile&) = delete;
  WatchedFile& operator=(const WatchedFile&) = delete;

  // Reads the file now.
  void Look();

 private:
  const std::string path_;
  const uint64_t max_bytes_;
  const std::function<void(const absl::StatusOr<std::string>&)> on_change_;
  absl::Mutex mutex_;  // Held during a Look.
  absl::StatusOr<std::string> seen_ ABSL_GUARDED_BY(mutex_);
  absl::Notification stop_;
  std::thread watcher_;
};

}  // namespace continuo
