// SPDX-License-Identifier: Apache-2.0
#include "services/base/confined_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/base/status_macros.h"

namespace continuo {
namespace {

absl::Status FileError(const std::string& path, int code) {
  const std::string why = absl::StrCat(path, ": ", std::strerror(code));
  if (code == ENOENT || code == ENOTDIR) return absl::NotFoundError(why);
  return absl::InvalidArgumentError(why);
}

// A file descriptor that is closed with it.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Opens a file by its path without links: one that has become a link meanwhile is an error.
absl::StatusOr<Descriptor> OpenResolved(const std::string& root, const std::string& path,
                                        const std::string& shown) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;
  Descriptor at(open(root.c_str(), kFlags | O_DIRECTORY));
  if (at.get() < 0) return FileError(shown, errno);
  const std::vector<std::string> parts =
      absl::StrSplit(path.substr(root.size()), '/', absl::SkipEmpty());
  for (size_t i = 0; i < parts.size(); ++i) {
    const int kind = i + 1 < parts.size() ? O_DIRECTORY : 0;
    Descriptor next(openat(at.get(), parts[i].c_str(), kFlags | kind));
    if (next.get() < 0) return FileError(shown, errno);
    at = std::move(next);
  }
  return at;
}

absl::StatusOr<struct stat> RegularFile(const Descriptor& file, const std::string& shown) {
  struct stat info = {};
  if (fstat(file.get(), &info) != 0) return FileError(shown, errno);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(shown, ": not a file"));
  }
  return info;
}

}  // namespace

absl::StatusOr<ConfinedFolder> ConfinedFolder::Open(const std::string& path) {
  std::error_code error;
  const std::filesystem::path resolved = std::filesystem::canonical(path, error);
  if (error) return FileError(path, error.value());
  if (!std::filesystem::is_directory(resolved, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a folder"));
  }
  return ConfinedFolder(resolved.string());
}

std::string ConfinedFolder::Shown(const std::string& path) const {
  const std::string front = path_ == "/" ? path_ : absl::StrCat(path_, "/");
  return path.starts_with(front) ? path.substr(front.size()) : path;
}

absl::StatusOr<std::string> ConfinedFolder::Resolve(const std::string& path) const {
  if (path.find('\0') != path.npos) {
    return absl::InvalidArgumentError("a path has a zero byte");
  }
  std::error_code error;
  // An absolute path replaces the folder's.
  const std::filesystem::path joined = std::filesystem::path(path_) / path;
  // What is not there may not tell about the outside either.
  const std::filesystem::path nearest = std::filesystem::weakly_canonical(joined, error);
  if (error) return FileError(Shown(path), error.value());
  const std::string text = nearest.string();
  const bool is_below = text == path_ || path_ == "/" ||
                        (text.starts_with(path_) && text.substr(path_.size()).starts_with("/"));
  if (!is_below) {
    return absl::PermissionDeniedError(absl::StrCat(Shown(path), ": leads out of the folder"));
  }
  const std::filesystem::path resolved = std::filesystem::canonical(joined, error);
  if (error) return FileError(Shown(path), error.value());
  // It may have become another one in between.
  if (resolved != nearest) {
    return absl::PermissionDeniedError(absl::StrCat(Shown(path), ": has changed"));
  }
  return text;
}

absl::StatusOr<std::string> ConfinedFolder::ReadFile(const std::string& path,
                                                     int64_t max_bytes) const {
  ASSIGN_OR_RETURN(const std::string resolved, Resolve(path));
  const std::string shown = Shown(path);
  ASSIGN_OR_RETURN(const Descriptor file, OpenResolved(path_, resolved, shown));
  ASSIGN_OR_RETURN(const struct stat info, RegularFile(file, shown));
  if (info.st_size > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(shown, ": has ", info.st_size, " bytes; it may have ", max_bytes));
  }
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = read(file.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(shown, errno);
    if (n == 0) return absl::InvalidArgumentError(absl::StrCat(shown, ": was cut meanwhile"));
    done += static_cast<size_t>(n);
  }
  return bytes;
}

absl::StatusOr<std::string> ConfinedFolder::Stamp(const std::string& path) const {
  ASSIGN_OR_RETURN(const std::string resolved, Resolve(path));
  const std::string shown = Shown(path);
  ASSIGN_OR_RETURN(const Descriptor file, OpenResolved(path_, resolved, shown));
  ASSIGN_OR_RETURN(const struct stat info, RegularFile(file, shown));
  return absl::StrCat(resolved, " ", info.st_dev, " ", info.st_ino, " ", info.st_size, " ",
                      info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, " ", info.st_ctim.tv_sec, ".",
                      info.st_ctim.tv_nsec);
}

absl::StatusOr<std::vector<std::string>> ConfinedFolder::ListFolders(size_t most) const {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator entries(path_, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    std::error_code ignored;
    if (!entries->is_directory(ignored)) continue;
    if (names.size() == most) {
      return absl::InvalidArgumentError(
          absl::StrCat("the folder has more than ", most, " folders"));
    }
    names.push_back(entries->path().filename().string());
  }
  if (error) return FileError("the folder", error.value());
  std::ranges::sort(names);
  return names;
}

}  // namespace continuo
