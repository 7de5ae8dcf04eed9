// SPDX-License-Identifier: Apache-2.0
#include "services/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace continuo {

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  const auto error = [&path](int code) {
    std::error_code ignored;
    const std::filesystem::path target = std::filesystem::read_symlink(path, ignored);
    if (code == ENOENT && !ignored) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": is a symbolic link to ", target.string(), ", which is not there"));
    }
    const std::string why = absl::StrCat(path, ": ", std::strerror(code));
    return code == ENOENT ? absl::NotFoundError(why) : absl::InvalidArgumentError(why);
  };
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return error(errno);
  struct stat info = {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a file"));
  }
  const size_t size = static_cast<size_t>(info.st_size);
  if (size == 0) {
    close(fd);
    return std::unique_ptr<MappedFile>(new MappedFile({}));
  }
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int code = errno;
  close(fd);
  if (data == MAP_FAILED) return error(code);
  return std::unique_ptr<MappedFile>(
      new MappedFile(std::span<const uint8_t>(static_cast<const uint8_t*>(data), size)));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

}  // namespace continuo
