// SPDX-License-Identifier: Apache-2.0
#include "services/base/watched_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace continuo {

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, uint64_t max_bytes) {
  std::error_code error;
  // Reading a pipe would block.
  if (!std::filesystem::is_regular_file(path, error) || error) {
    return absl::InvalidArgumentError("is not a file that can be read");
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", size, " bytes, the limit is ", max_bytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) {
    return absl::InvalidArgumentError("is not a file that can be read");
  }
  return text;
}

WatchedFile::WatchedFile(std::string path, uint64_t max_bytes, absl::Duration interval,
                         std::string seen,
                         std::function<void(const absl::StatusOr<std::string>&)> on_change)
    : path_(std::move(path)),
      max_bytes_(max_bytes),
      on_change_(std::move(on_change)),
      seen_(std::move(seen)) {
  watcher_ = std::thread([this, interval] {
    while (!stop_.WaitForNotificationWithTimeout(interval)) Look();
  });
}

WatchedFile::~WatchedFile() {
  stop_.Notify();
  watcher_.join();
}

void WatchedFile::Look() {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<std::string> text = ReadWholeFile(path_, max_bytes_);
  // The whole text is compared, because times and sizes can stay the same.
  if (text == seen_) return;
  seen_ = std::move(text);
  on_change_(seen_);
}

}  // namespace continuo
