// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/weights_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"

namespace continuo::model {
namespace {

constexpr size_t kChunk = size_t{16} << 20;
constexpr size_t kPage = 4096;  // the bytes begin at a multiple of it
constexpr char kMagic[16] = "continuo packed";

size_t NumChunks(size_t bytes) { return (bytes + kChunk - 1) / kChunk; }

std::span<const uint8_t> ChunkOf(std::span<const uint8_t> bytes, size_t i) {
  return bytes.subspan(i * kChunk, std::min(kChunk, bytes.size() - i * kChunk));
}

// The header of a file, up to the bytes. All of it follows from key and bytes.
std::vector<uint8_t> Header(const Digest128& key, size_t size, std::span<const Digest128> digests) {
  const size_t used = sizeof(kMagic) + sizeof(key) + sizeof(uint64_t) + digests.size_bytes();
  std::vector<uint8_t> header((used + kPage - 1) / kPage * kPage);
  uint8_t* at = header.data();
  const auto append = [&at](const void* from, size_t n) {
    if (n > 0) std::memcpy(at, from, n);
    at += n;
  };
  const auto size64 = uint64_t{size};
  append(kMagic, sizeof(kMagic));
  append(&key, sizeof(key));
  append(&size64, sizeof(size64));
  append(digests.data(), digests.size_bytes());
  return header;
}

std::vector<Digest128> DigestsOf(std::span<const uint8_t> bytes, ParallelLoop loop) {
  std::vector<Digest128> digests(NumChunks(bytes.size()));
  loop(static_cast<int>(digests.size()), [&](int i) {
    const auto chunk = static_cast<size_t>(i);
    digests[chunk] = DigestOf(ChunkOf(bytes, chunk));
  });
  return digests;
}

bool ReadAt(int file, std::span<uint8_t> to, size_t offset) {
  while (!to.empty()) {
    const ssize_t n = pread(file, to.data(), to.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to = to.subspan(static_cast<size_t>(n));
    offset += static_cast<size_t>(n);
  }
  return true;
}

bool WriteAll(int file, std::span<const uint8_t> from) {
  while (!from.empty()) {
    const ssize_t n = write(file, from.data(), from.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    from = from.subspan(static_cast<size_t>(n));
  }
  return true;
}

absl::Status Errno(const char* what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("weights cache: cannot ", what, " ", path));
}

}  // namespace

WeightsCache::WeightsCache(std::string dir, const Digest128& source)
    : dir_(std::move(dir)), source_(source) {}

Digest128 WeightsCache::KeyDigest(const std::string& key) const {
  return DigestOf(absl::StrCat("1;", ToHex(source_), ";", key));
}

std::string WeightsCache::PathOf(const std::string& key) const {
  return (std::filesystem::path(dir_) / absl::StrCat(ToHex(KeyDigest(key)), ".packed")).string();
}

absl::Status WeightsCache::Read(const std::string& key, std::span<uint8_t> bytes,
                                ParallelLoop loop) const {
  const std::string path = PathOf(key);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return Errno("open", path);
  const absl::Cleanup closes = [file] { close(file); };
  const auto damaged = [&] {
    return absl::DataLossError(absl::StrCat("weights cache: ", path, " is damaged"));
  };
  std::vector<Digest128> digests(NumChunks(bytes.size()));
  std::vector<uint8_t> expected = Header(KeyDigest(key), bytes.size(), digests), found(expected);
  struct stat status;
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) ||
      static_cast<uint64_t>(status.st_size) != expected.size() + bytes.size() ||
      !ReadAt(file, found, 0)) {
    return damaged();
  }
  const size_t fixed = sizeof(kMagic) + sizeof(Digest128) + sizeof(uint64_t);
  std::memcpy(digests.data(), found.data() + fixed, digests.size() * sizeof(Digest128));
  if (Header(KeyDigest(key), bytes.size(), digests) != found) return damaged();
  std::atomic<bool> whole = true;
  loop(static_cast<int>(digests.size()), [&](int i) {
    if (!whole) return;
    const auto chunk = static_cast<size_t>(i);
    const auto to = bytes.subspan(chunk * kChunk, std::min(kChunk, bytes.size() - chunk * kChunk));
    if (!ReadAt(file, to, found.size() + chunk * kChunk) || DigestOf(to) != digests[chunk]) {
      whole = false;
    }
  });
  return whole ? absl::OkStatus() : damaged();
}

absl::Status WeightsCache::Write(const std::string& key, std::span<const uint8_t> bytes,
                                 ParallelLoop loop) const {
  std::error_code error;
  std::filesystem::create_directories(dir_, error);  // open() tells what is wrong
  const std::string path = PathOf(key), partial = absl::StrCat(path, ".", getpid(), ".partial");
  const int file =
      open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file < 0) return Errno("write", partial);
  const std::vector<uint8_t> header = Header(KeyDigest(key), bytes.size(), DigestsOf(bytes, loop));
  absl::Status status;
  if (!WriteAll(file, header) || !WriteAll(file, bytes) || fsync(file) != 0) {
    status = Errno("write", partial);
  }
  if (close(file) != 0) status.Update(Errno("write", partial));
  if (status.ok() && rename(partial.c_str(), path.c_str()) != 0) status = Errno("write", path);
  if (!status.ok()) unlink(partial.c_str());
  return status;
}

}  // namespace continuo::model
