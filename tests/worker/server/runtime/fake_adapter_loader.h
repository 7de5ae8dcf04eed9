// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "services/worker/server/runtime/adapter_loader.h"

namespace continuo::testing {

// A folder of adapters without files: each is a digest. Thread-safe.
class FakeAdapterFolder {
 public:
  explicit FakeAdapterFolder(size_t most) : most_(most) {}

  // An empty digest removes the adapter, one of "?" cannot be read, and one that begins with "!"
  // can be described alone.
  void Set(const std::string& path, const std::string& digest) {
    absl::MutexLock lock(&mutex_);
    if (digest.empty()) {
      digests_.erase(path);
    } else {
      digests_[path] = {digest, absl::StrCat(++stamp_)};
    }
  }
  // While it is closed, loads wait.
  void SetOpen(bool open) {
    absl::MutexLock lock(&mutex_);
    open_ = open;
  }
  int num_loads() const {
    absl::MutexLock lock(&mutex_);
    return num_loads_;
  }
  // How often somebody asked for room.
  int num_looks() const {
    absl::MutexLock lock(&mutex_);
    return num_looks_;
  }
  // Adapters whose memory is not free: somebody holds their leases, or a step reads them.
  size_t NumInMemory() const {
    absl::MutexLock lock(&mutex_);
    return Count();
  }
  // What a step holds that reads every adapter in memory.
  std::vector<std::shared_ptr<const int>> ReadInStep() const {
    absl::MutexLock lock(&mutex_);
    std::vector<std::shared_ptr<const int>> step;
    for (const auto& memory : memories_) {
      if (auto held = memory.lock(); held != nullptr) step.push_back(std::move(held));
    }
    return step;
  }

 private:
  friend class FakeAdapterLoader;
  struct Files {
    std::string digest, stamp;
  };
  size_t Count() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return static_cast<size_t>(
        std::ranges::count_if(memories_, [](const auto& memory) { return !memory.expired(); }));
  }

  const size_t most_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Files> digests_ ABSL_GUARDED_BY(mutex_);
  int stamp_ ABSL_GUARDED_BY(mutex_) = 0;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  int num_loads_ ABSL_GUARDED_BY(mutex_) = 0;
  int32_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_looks_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::weak_ptr<const int>> memories_ ABSL_GUARDED_BY(mutex_);
};

// Paths with a slash are not found by scans. The folder outlives the loader.
class FakeAdapterLoader : public server::AdapterLoader {
 public:
  FakeAdapterLoader(FakeAdapterFolder* folder, server::ServedModel base)
      : folder_(*folder), base_(std::move(base)) {}

  absl::StatusOr<std::vector<server::FoundAdapter>> Scan(size_t most) override {
    absl::MutexLock lock(&folder_.mutex_);
    std::vector<server::FoundAdapter> found;
    for (const auto& [path, files] : folder_.digests_) {
      if (path.find('/') == path.npos && found.size() < most) {
        found.push_back({path, path, files.stamp});
      }
    }
    return found;
  }
  absl::StatusOr<server::ServedModel> Describe(const std::string& name,
                                               const std::string& path) override {
    absl::MutexLock lock(&folder_.mutex_);
    return Make(name, path);
  }
  absl::StatusOr<server::ServedModel> Load(const std::string& name,
                                           const std::string& path) override {
    absl::MutexLock lock(&folder_.mutex_);
    ++folder_.num_loads_;
    folder_.mutex_.Await(absl::Condition(&folder_.open_));
    if (folder_.Count() >= folder_.most_) return absl::ResourceExhaustedError("no room");
    absl::StatusOr<server::ServedModel> model = Make(name, path);
    if (!model.ok()) return model;
    if (model->adapter_digest.starts_with("!")) {
      return absl::InvalidArgumentError(path + ": cannot be loaded");
    }
    const auto memory = std::make_shared<const int>(0);
    folder_.memories_.push_back(memory);
    model->adapter = folder_.next_id_++;
    model->adapter_lease = std::make_shared<const std::shared_ptr<const int>>(memory);
    return model;
  }
  bool HasRoom() override {
    absl::MutexLock lock(&folder_.mutex_);
    ++folder_.num_looks_;
    return folder_.Count() < folder_.most_;
  }

 private:
  absl::StatusOr<server::ServedModel> Make(const std::string& name, const std::string& path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(folder_.mutex_) {
    const auto at = folder_.digests_.find(path);
    if (at == folder_.digests_.end()) return absl::NotFoundError(path + ": no such folder");
    if (at->second.digest == "?") return absl::InvalidArgumentError(path + ": cannot be read");
    server::ServedModel model = base_;
    model.name = name;
    model.parent = base_.name;
    model.adapter_digest = at->second.digest;
    model.fingerprint = "F/" + at->second.digest;
    return model;
  }

  FakeAdapterFolder& folder_;
  const server::ServedModel base_;
};

}  // namespace continuo::testing
