// SPDX-License-Identifier: Apache-2.0
#include "services/worker/hub/download.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"

namespace continuo::hub {
namespace {

constexpr size_t kChunk = 1 << 20;

// The digest of a file's contents as they grow.
class ContentDigest {
 public:
  explicit ContentDigest(const HubFile& file) : file_(file) { Restart(); }

  void Restart() {
    EVP_DigestInit_ex(context_.get(), file_.is_sha256 ? EVP_sha256() : EVP_sha1(), nullptr);
    if (file_.is_sha256) return;
    const std::string head = absl::StrCat("blob ", file_.size);
    EVP_DigestUpdate(context_.get(), head.c_str(), head.size() + 1);  // and a zero
  }
  void Add(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }
  // Ends the digest.
  std::string Hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &size);
    return absl::BytesToHexString({reinterpret_cast<const char*>(digest), size});
  }

 private:
  const HubFile& file_;
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_{EVP_MD_CTX_new(),
                                                                         EVP_MD_CTX_free};
};

// The file of a blob until it is whole.
class PartialFile {
 public:
  PartialFile(const std::string& path, const HubFile& file)
      : path_(path), file_(file), digest_(file) {}
  ~PartialFile() {
    if (fd_ >= 0) close(fd_);
  }

  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }

  // Opens it with what is there, of which no more than the file's size counts.
  absl::Status Open() {
    fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd_ < 0) return Failed("opened");
    std::vector<char> chunk(kChunk);
    while (size_ <= file_.size) {
      const ssize_t count = read(fd_, chunk.data(), chunk.size());
      if (count < 0) return Failed("read");
      if (count == 0) return absl::OkStatus();
      digest_.Add({chunk.data(), static_cast<size_t>(count)});
      size_ += count;
    }
    return Restart();
  }

  absl::Status Restart() {
    digest_.Restart();
    size_ = 0;
    if (ftruncate(fd_, 0) != 0 || lseek(fd_, 0, SEEK_SET) != 0) return Failed("emptied");
    return absl::OkStatus();
  }

  absl::Status Append(std::string_view bytes) {
    digest_.Add(bytes);
    while (!bytes.empty()) {
      const ssize_t count = write(fd_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Failed("written");
      bytes.remove_prefix(static_cast<size_t>(count));
      size_ += count;
    }
    return absl::OkStatus();
  }

  // Makes it the blob where it is what the hub says; removes it where it is not.
  absl::Status Finish(const std::string& blob) {
    const std::string digest = digest_.Hex();
    if (digest != file_.digest) {
      unlink(path_.c_str());
      return absl::DataLossError(absl::StrCat(
          file_.path, ": what came has the ", file_.is_sha256 ? "sha256 " : "git id ", digest,
          ", and the hub says ", file_.digest, "; it was removed, a new start fetches it again"));
    }
    if (fsync(fd_) != 0) return Failed("written");
    std::error_code error;
    std::filesystem::rename(path_, blob, error);
    if (error) return absl::UnavailableError(absl::StrCat(blob, ": ", error.message()));
    return absl::OkStatus();
  }

 private:
  absl::Status Failed(std::string_view verb) const {
    return absl::UnavailableError(
        absl::StrCat(path_, ": cannot be ", std::string(verb), ": ", std::strerror(errno)));
  }

  const std::string path_;
  const HubFile& file_;
  ContentDigest digest_;
  int fd_ = -1;
  int64_t size_ = 0;
};

// "bytes 100-199/200" begins at 100.
bool BeginsAt(const HttpAnswer& answer, int64_t first) {
  const auto found = answer.headers.find("content-range");
  if (found == answer.headers.end()) return false;
  const std::string& text = found->second;
  int64_t begin = -1;
  const size_t dash = text.find('-');
  return text.rfind("bytes ", 0) == 0 && dash != std::string::npos &&
         absl::SimpleAtoi(text.substr(6, dash - 6), &begin) && begin == first;
}

// Makes one connection, whose bytes it adds to `received`. OK where all of the file is there.
absl::Status Continue(const HubSettings& settings, const HubReference& reference,
                      const std::string& url, const HubFile& file, const HttpLimits& limits,
                      const OnBytes& on_bytes, PartialFile& part, int64_t& received) {
  const int64_t first = part.size();
  // on_body bounds the body.
  const HttpRequest request = {.url = url,
                               .token = settings.token,
                               .ca_file = settings.ca_file,
                               .first_byte = first,
                               .max_bytes = std::numeric_limits<int64_t>::max()};
  const auto on_head = [&](const HttpAnswer& answer) -> absl::Status {
    if (answer.code == 206 && BeginsAt(answer, first)) return absl::OkStatus();
    if (answer.code == 206) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path, ": the hub sends another part than the one that was asked for"));
    }
    return part.size() == 0 ? absl::OkStatus() : part.Restart();
  };
  const auto on_body = [&](std::string_view bytes) -> absl::Status {
    received += static_cast<int64_t>(bytes.size());
    if (part.size() + static_cast<int64_t>(bytes.size()) > file.size) {
      return absl::DataLossError(
          absl::StrCat(file.path, ": has more than the ", file.size, " bytes that the hub says"));
    }
    RETURN_IF_ERROR(part.Append(bytes));
    on_bytes(part.size());
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(const HttpAnswer answer, Fetch(request, limits, on_head, on_body));
  if (answer.code == 416) {
    RETURN_IF_ERROR(part.Restart());
    return absl::UnavailableError(absl::StrCat(file.path, ": the hub has no such part of it"));
  }
  if (answer.code < 200 || answer.code >= 300) {
    return ErrorOf(answer, settings, reference, file.path);
  }
  RETURN_IF_ERROR(answer.body);
  if (part.size() == file.size) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(file.path, ": the connection ended after ",
                                             part.size(), " of ", file.size, " bytes"));
}

}  // namespace

absl::Status Download(const HubSettings& settings, const HubReference& reference,
                      const HubCache& cache, const std::string& commit, const HubFile& file,
                      const RetryOptions& retry, const OnBytes& on_bytes) {
  std::error_code ignored;
  const std::string blob = cache.BlobPath(file.digest);
  // Blobs get their name when they are whole.
  if (std::filesystem::is_regular_file(blob, ignored) &&
      std::filesystem::file_size(blob, ignored) == static_cast<uint64_t>(file.size)) {
    on_bytes(file.size);
    return absl::OkStatus();
  }
  PartialFile part(cache.PartPath(file.digest), file);
  RETURN_IF_ERROR(part.Open());
  on_bytes(part.size());
  const std::string url = FileUrl(settings, reference.repository, commit, file.path);
  absl::Duration wait = retry.first_wait;
  // A hub that does not know ranges begins anew each time, so what is there may become less.
  int64_t largest = part.size(), received = 0;
  int failures = 0;
  for (int attempts = 1; part.size() < file.size || file.size == 0; ++attempts) {
    const absl::Status status =
        Continue(settings, reference, url, file, retry.limits, on_bytes, part, received);
    if (status.ok()) break;
    if (!absl::IsUnavailable(status)) {
      if (absl::IsDataLoss(status)) std::filesystem::remove(part.path(), ignored);
      return status;
    }
    failures = part.size() > largest ? 0 : failures + 1;
    largest = std::max(largest, part.size());
    if (failures >= retry.max_failures) return status;
    if (attempts >= retry.max_attempts || received > retry.max_times * file.size) {
      return absl::UnavailableError(absl::StrCat(status.message(), "; ", attempts,
                                                 " connections brought ", received,
                                                 " bytes, a new start goes on with what is there"));
    }
    wait = failures <= 1 ? retry.first_wait : 2 * wait;
    retry.wait(wait);
  }
  return part.Finish(blob);
}

}  // namespace continuo::hub
