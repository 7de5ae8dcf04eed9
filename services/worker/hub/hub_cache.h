// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace continuo::hub {

// A model's part of a cache in the layout that Hugging Face's programs share:
//   models--org--name/blobs/DIGEST          contents
//   models--org--name/snapshots/COMMIT/…    links to them, by the files' paths
//   models--org--name/refs/REVISION         the commit of a branch or tag
//   .locks/models--org--name/DIGEST.lock    held by whoever writes the blob
// Several processes may use it at once. Not thread-safe.
class HubCache {
 public:
  // `root` is HF_HUB_CACHE; `repository` is "org/name".
  HubCache(std::string root, const std::string& repository);

  const std::string& folder() const { return folder_; }
  std::string BlobPath(const std::string& digest) const;
  // Where a blob lies until it is whole.
  std::string PartPath(const std::string& digest) const;
  std::string SnapshotPath(const std::string& commit) const;

  // The commit of a revision that was fetched before; a commit is its own. Empty: none.
  std::string CommitOf(const std::string& revision) const;
  bool HasFile(const std::string& commit, const std::string& path) const;

  // Holds a blob's lock until it is destroyed. Waits for another process; `on_wait` is called once
  // before. Unavailable where the folder cannot be written.
  class Lock {
   public:
    explicit Lock(int fd) : fd_(fd) {}
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    const int fd_;
  };
  template <typename OnWait>
  absl::StatusOr<std::unique_ptr<Lock>> LockBlob(const std::string& digest, OnWait on_wait) const {
    absl::StatusOr<std::unique_ptr<Lock>> lock = TryLock(digest);
    if (!lock.ok() || *lock != nullptr) return lock;
    on_wait();
    return WaitForLock(digest);
  }

  // Makes the folders that blobs are written to.
  absl::Status MakeFolders() const;
  // Puts a blob into a snapshot. From one moment to the next, so that nobody sees half of it.
  absl::Status Link(const std::string& commit, const std::string& path,
                    const std::string& digest) const;
  // Remembers the commit of a revision.
  absl::Status WriteRef(const std::string& revision, const std::string& commit) const;
  // Bytes that are free where blobs lie; no value where that is not known.
  std::optional<uint64_t> FreeBytes() const;

 private:
  // Null where another process has it.
  absl::StatusOr<std::unique_ptr<Lock>> TryLock(const std::string& digest) const;
  absl::StatusOr<std::unique_ptr<Lock>> WaitForLock(const std::string& digest) const;
  absl::StatusOr<int> OpenLock(const std::string& digest) const;

  std::string root_, name_, folder_;
};

}  // namespace continuo::hub
