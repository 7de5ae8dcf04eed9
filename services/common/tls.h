// SPDX-License-Identifier: Apache-2.0
#pragma once

// Credentials from the files that --tls_cert_file, --tls_key_file and --tls_ca_file name.

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace continuo::common {

// PEM files; "" is unset.
struct TlsFiles {
  std::string cert_file;
  std::string key_file;
  std::string ca_file;
  // Of the flags, for messages: "tls" is --tls_cert_file.
  std::string flag_prefix = "tls";

  bool any() const { return !cert_file.empty() || !key_file.empty() || !ca_file.empty(); }
};

// What the files hold; "" where one is unset.
struct TlsContents {
  std::string key;
  std::string certificates;
  std::string roots;
  friend bool operator==(const TlsContents&, const TlsContents&) = default;
};
// INVALID_ARGUMENT names the flag that is missing, or the flag and the file that cannot serve:
// unreadable, no PEM, expired, a key of another certificate.
absl::StatusOr<TlsContents> ReadTlsFiles(const TlsFiles& files);

// TLS whose files may change: they are looked at every second, and what is new and good is served
// to, or shown by, the connections made from then on. A certificate that cannot be read, has
// expired or is not the key's is logged, and the one before stays. Thread-safe.
class ReloadedTls {
 public:
  // As ReadTlsFiles.
  static absl::StatusOr<std::unique_ptr<ReloadedTls>> Open(const TlsFiles& files);
  // Ends the thread that looks at the files. Nothing made of this may be in use any more.
  ~ReloadedTls();
  ReloadedTls(const ReloadedTls&) = delete;
  ReloadedTls& operator=(const ReloadedTls&) = delete;

  // Insecure where no file is set. Otherwise certificate and key are needed; with a CA, clients
  // have to present a certificate of it (mutual TLS). INVALID_ARGUMENT names the flag.
  absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ForServer() const;
  // Insecure where no file is set. The CA verifies the server (the system's roots where it is
  // unset); certificate and key, both or none, are presented to it.
  std::shared_ptr<grpc::ChannelCredentials> ForChannel() const;

  // Looks at the files now.
  void Reload();

 private:
  // A file in memory that gRPC reads by a path; see tls.cc.
  class MemoryFile;

  explicit ReloadedTls(const TlsFiles& files);

  absl::Status Publish(const TlsContents& contents);
  std::shared_ptr<grpc::experimental::CertificateProviderInterface> Watch() const;

  const TlsFiles files_;
  std::unique_ptr<MemoryFile> identity_, roots_;
  absl::Mutex mutex_;                                         // one look at a time
  absl::StatusOr<TlsContents> seen_ ABSL_GUARDED_BY(mutex_);  // by the last one
  absl::Notification stop_;
  std::thread watcher_;
};

// As ReloadedTls::ForChannel, with what is in the files now.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const TlsFiles& files);

}  // namespace continuo::common
