// SPDX-License-Identifier: Apache-2.0
#include "services/common/tls.h"

#include <fcntl.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "services/base/status_macros.h"
#include "services/common/log.h"
#include "services/common/pem.h"

namespace continuo::common {
namespace {

using grpc::experimental::CertificateProviderInterface;
using grpc::experimental::CertificateVerifier;
using grpc::experimental::FileWatcherCertificateProvider;
using grpc::experimental::StaticDataCertificateProvider;

constexpr unsigned kReloadSeconds = 1;

std::string Flag(const TlsFiles& files, const char* which) {
  return absl::StrCat("--", files.flag_prefix, "_", which, "_file");
}

absl::Status BadFile(const std::string& flag, const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": \"", path, "\": ", why));
}

absl::StatusOr<std::string> ReadFile(const std::string& flag, const std::string& path) {
  std::error_code error;
  // Reading a pipe would block.
  const bool is_file = std::filesystem::is_regular_file(path, error);
  std::ifstream file;
  if (is_file) file.open(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!is_file || !file.is_open() || file.bad()) return BadFile(flag, path, "cannot be read");
  return text;
}

// Certificate and key have to be set both or not at all.
absl::Status CheckFlags(const TlsFiles& files) {
  if (files.cert_file.empty() == files.key_file.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Flag(files, files.cert_file.empty() ? "cert" : "key"),
                   " is needed: certificate and key go together"));
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentials(
    const TlsFiles& files, std::shared_ptr<CertificateProviderInterface> provider,
    std::shared_ptr<CertificateVerifier> verifier) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  if (verifier != nullptr) {
    options.set_certificate_verifier(std::move(verifier));
    // gRPC would look for the address among the names in each call.
    options.set_check_call_host(false);
  }
  options.set_certificate_provider(std::move(provider));
  if (!files.ca_file.empty()) options.watch_root_certs();
  if (!files.cert_file.empty()) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace

// gRPC's file watcher uses whatever it reads, and with a broken certificate it rejects every
// connection. So it watches copies of checked contents, in memory files by their path in /proc. New
// contents are a new file under the same descriptor: a reader sees the old or the new file, whole.
class ReloadedTls::MemoryFile {
 public:
  ~MemoryFile() {
    if (fd_ >= 0) close(fd_);
  }
  absl::Status Set(std::string_view text) {
    const int fd = memfd_create("tls", MFD_CLOEXEC);
    if (fd < 0) return absl::ErrnoToStatus(errno, "no file in memory for TLS");
    while (!text.empty()) {
      const ssize_t written = write(fd, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        close(fd);
        return absl::ErrnoToStatus(errno, "no file in memory for TLS");
      }
      text.remove_prefix(static_cast<size_t>(written));
    }
    if (fd_ < 0) {
      fd_ = fd;
      return absl::OkStatus();
    }
    const int replaced = dup3(fd, fd_, O_CLOEXEC);
    const int error = errno;
    close(fd);
    return replaced < 0 ? absl::ErrnoToStatus(error, "no file in memory for TLS")
                        : absl::OkStatus();
  }
  std::string path() const { return fd_ < 0 ? "" : absl::StrCat("/proc/self/fd/", fd_); }

 private:
  int fd_ = -1;
};

ReloadedTls::ReloadedTls(const TlsFiles& files)
    : files_(files),
      identity_(std::make_unique<MemoryFile>()),
      roots_(std::make_unique<MemoryFile>()) {}

absl::StatusOr<TlsContents> ReadTlsFiles(const TlsFiles& files) {
  RETURN_IF_ERROR(CheckFlags(files));
  TlsContents contents;
  if (!files.cert_file.empty()) {
    const std::string flag = Flag(files, "cert");
    ASSIGN_OR_RETURN(contents.certificates, ReadFile(flag, files.cert_file));
    ASSIGN_OR_RETURN(contents.key, ReadFile(Flag(files, "key"), files.key_file));
    absl::Status check = CheckCertificates(contents.certificates);
    if (check.ok()) check = CheckKeyPair(contents.certificates, contents.key, absl::Now());
    if (!check.ok()) return BadFile(flag, files.cert_file, check.message());
  }
  if (!files.ca_file.empty()) {
    const std::string flag = Flag(files, "ca");
    ASSIGN_OR_RETURN(contents.roots, ReadFile(flag, files.ca_file));
    const absl::Status check = CheckCertificates(contents.roots);
    if (!check.ok()) return BadFile(flag, files.ca_file, check.message());
  }
  return contents;
}

absl::Status ReloadedTls::Publish(const TlsContents& contents) {
  // Key and certificates are in one file, so that they change together. A reader of one skips the
  // other.
  if (!contents.key.empty()) {
    RETURN_IF_ERROR(identity_->Set(absl::StrCat(contents.key, "\n", contents.certificates)));
  }
  if (!contents.roots.empty()) RETURN_IF_ERROR(roots_->Set(contents.roots));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ReloadedTls>> ReloadedTls::Open(const TlsFiles& files) {
  // make_unique cannot call the private constructor.
  std::unique_ptr<ReloadedTls> tls(new ReloadedTls(files));
  absl::MutexLock lock(&tls->mutex_);
  tls->seen_ = ReadTlsFiles(files);
  RETURN_IF_ERROR(tls->seen_.status());
  if (!files.any()) return tls;
  RETURN_IF_ERROR(tls->Publish(*tls->seen_));
  tls->watcher_ = std::thread([t = tls.get()] {
    while (!t->stop_.WaitForNotificationWithTimeout(absl::Seconds(kReloadSeconds))) t->Reload();
  });
  return tls;
}

ReloadedTls::~ReloadedTls() {
  stop_.Notify();
  if (watcher_.joinable()) watcher_.join();
}

void ReloadedTls::Reload() {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<TlsContents> now = ReadTlsFiles(files_);
  if (now == seen_) return;
  absl::Status status = now.status();
  if (status.ok()) status = Publish(*now);
  seen_ = std::move(now);
  if (!status.ok()) {
    Log(LogSeverity::kError, "new TLS files are bad, the ones before stay",
        {{"flags", files_.flag_prefix}, {"error", std::string(status.message())}});
    return;
  }
  std::string end;
  if (!seen_->certificates.empty()) {
    end = absl::FormatTime(CertificateEnd(seen_->certificates), absl::UTCTimeZone());
  }
  Log(LogSeverity::kInfo, "new TLS files",
      {{"flags", files_.flag_prefix}, {"certificate_end", end}});
}

std::shared_ptr<CertificateProviderInterface> ReloadedTls::Watch() const {
  return std::make_shared<FileWatcherCertificateProvider>(identity_->path(), identity_->path(),
                                                          roots_->path(), kReloadSeconds);
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ReloadedTls::ForServer() const {
  if (!files_.any()) return grpc::InsecureServerCredentials();
  if (files_.cert_file.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(Flag(files_, "cert"), " and ",
                                                   Flag(files_, "key"), " are needed where ",
                                                   Flag(files_, "ca"), " is set"));
  }
  grpc::experimental::TlsServerCredentialsOptions options(Watch());
  options.watch_identity_key_cert_pairs();
  if (!files_.ca_file.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> ReloadedTls::ForChannel(
    std::shared_ptr<CertificateVerifier> verifier) const {
  if (!files_.any()) return grpc::InsecureChannelCredentials();
  return ChannelCredentials(files_, Watch(), std::move(verifier));
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const TlsFiles& files) {
  ASSIGN_OR_RETURN(const TlsContents contents, ReadTlsFiles(files));
  if (!files.any()) return grpc::InsecureChannelCredentials();
  std::vector<grpc::experimental::IdentityKeyCertPair> identity;
  if (!contents.key.empty()) identity.push_back({contents.key, contents.certificates});
  return ChannelCredentials(
      files, std::make_shared<StaticDataCertificateProvider>(contents.roots, identity),
      /*verifier=*/nullptr);
}

}  // namespace continuo::common
