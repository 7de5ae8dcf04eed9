// SPDX-License-Identifier: Apache-2.0
#include "services/worker/hub/hub_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "services/base/status_macros.h"
#include "services/worker/hub/hub_reference.h"

namespace continuo::hub {
namespace {

namespace fs = std::filesystem;

absl::Status CannotWrite(const fs::path& path, const std::error_code& error) {
  return absl::UnavailableError(
      absl::StrCat(path.string(), ": cannot be written: ", error.message(),
                   "; HF_HUB_CACHE names the folder that models are fetched to"));
}

}  // namespace

HubCache::HubCache(std::string root, const std::string& repository)
    : root_(std::move(root)),
      name_(absl::StrCat("models--", absl::StrReplaceAll(repository, {{"/", "--"}}))),
      folder_(absl::StrCat(root_, "/", name_)) {}

std::string HubCache::BlobPath(const std::string& digest) const {
  return absl::StrCat(folder_, "/blobs/", digest);
}
std::string HubCache::PartPath(const std::string& digest) const {
  return absl::StrCat(BlobPath(digest), ".incomplete");
}
std::string HubCache::SnapshotPath(const std::string& commit) const {
  return absl::StrCat(folder_, "/snapshots/", commit);
}

std::string HubCache::CommitOf(const std::string& revision) const {
  if (IsHexDigits(revision, kCommitDigits)) return revision;
  std::ifstream in(fs::path(folder_) / "refs" / revision, std::ios::binary);
  std::string commit(kCommitDigits, '\0');
  if (!in.read(commit.data(), kCommitDigits) || !IsHexDigits(commit, kCommitDigits)) return "";
  return commit;
}

bool HubCache::HasFile(const std::string& commit, const std::string& path) const {
  std::error_code ignored;
  return fs::is_regular_file(fs::path(SnapshotPath(commit)) / path, ignored);
}

HubCache::Lock::~Lock() { close(fd_); }

absl::StatusOr<int> HubCache::OpenLock(const std::string& digest) const {
  const fs::path path = fs::path(root_) / ".locks" / name_ / (digest + ".lock");
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) return CannotWrite(path.parent_path(), error);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return CannotWrite(path, std::error_code(errno, std::generic_category()));
  return fd;
}

absl::StatusOr<std::unique_ptr<HubCache::Lock>> HubCache::TryLock(const std::string& digest) const {
  ASSIGN_OR_RETURN(const int fd, OpenLock(digest));
  auto lock = std::make_unique<Lock>(fd);
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
  return nullptr;
}

absl::StatusOr<std::unique_ptr<HubCache::Lock>> HubCache::WaitForLock(
    const std::string& digest) const {
  ASSIGN_OR_RETURN(const int fd, OpenLock(digest));
  auto lock = std::make_unique<Lock>(fd);
  while (flock(fd, LOCK_EX) != 0) {
    if (errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("a lock in ", root_, ": ", std::strerror(errno)));
    }
  }
  return lock;
}

absl::Status HubCache::MakeFolders() const {
  const fs::path blobs = fs::path(folder_) / "blobs";
  std::error_code error;
  fs::create_directories(blobs, error);
  return error ? CannotWrite(blobs, error) : absl::OkStatus();
}

absl::Status HubCache::Link(const std::string& commit, const std::string& path,
                            const std::string& digest) const {
  const fs::path link = fs::path(SnapshotPath(commit)) / path;
  const fs::path target = fs::path(BlobPath(digest)).lexically_relative(link.parent_path());
  std::error_code error;
  fs::create_directories(link.parent_path(), error);
  if (error) return CannotWrite(link.parent_path(), error);
  if (fs::read_symlink(link, error) == target && !error) return absl::OkStatus();
  const fs::path temporary = absl::StrCat(link.string(), ".", getpid());
  fs::remove(temporary, error);
  fs::create_symlink(target, temporary, error);
  if (!error) fs::rename(temporary, link, error);
  return error ? CannotWrite(link, error) : absl::OkStatus();
}

absl::Status HubCache::WriteRef(const std::string& revision, const std::string& commit) const {
  if (IsHexDigits(revision, kCommitDigits)) return absl::OkStatus();
  const fs::path path = fs::path(folder_) / "refs" / revision;
  const fs::path temporary = absl::StrCat(path.string(), ".", getpid());
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) return CannotWrite(path.parent_path(), error);
  std::ofstream out(temporary, std::ios::binary);
  out << commit;
  out.close();
  if (!out) return CannotWrite(temporary, std::error_code(errno, std::generic_category()));
  fs::rename(temporary, path, error);
  return error ? CannotWrite(path, error) : absl::OkStatus();
}

std::optional<uint64_t> HubCache::FreeBytes() const {
  std::error_code error;
  const fs::space_info space = fs::space(fs::path(folder_) / "blobs", error);
  if (error) return std::nullopt;
  return space.available;
}

}  // namespace continuo::hub
