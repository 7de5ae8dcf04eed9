// SPDX-License-Identifier: Apache-2.0
#pragma once

// gRPC credentials from the files that --tls_cert_file, --tls_key_file and --tls_ca_file name.

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>

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

// Paths of PEM files; "" is unset.
struct TlsFiles {
  std::string cert_file;
  std::string key_file;
  std::string ca_file;
  // The prefix of the flags in messages: "tls" stands for --tls_cert_file and so on.
  std::string flag_prefix = "tls";

  bool any() const { return !cert_file.empty() || !key_file.empty() || !ca_file.empty(); }
};

// The contents of the files; "" where one is unset.
struct TlsContents {
  std::string key;
  std::string certificates;
  std::string roots;
  friend bool operator==(const TlsContents&, const TlsContents&) = default;
};
// Reads and checks the files. INVALID_ARGUMENT names the flag that is missing, or the flag and the
// file that cannot be used: unreadable, not PEM, expired, or a key of another certificate.
absl::StatusOr<TlsContents> ReadTlsFiles(const TlsFiles& files);

// TLS credentials that follow their files. The files are read every second, and connections made
// after a change use the new contents. New contents that fail the checks of ReadTlsFiles are
// logged, and the ones before stay in use. Thread-safe.
class ReloadedTls {
 public:
  // Fails as ReadTlsFiles does.
  static absl::StatusOr<std::unique_ptr<ReloadedTls>> Open(const TlsFiles& files);
  // Ends the thread that reads the files. No credentials made of this may still be in use.
  ~ReloadedTls();
  ReloadedTls(const ReloadedTls&) = delete;
  ReloadedTls& operator=(const ReloadedTls&) = delete;

  // Insecure credentials where no file is set. Otherwise certificate and key are needed; with a CA,
  // clients have to present a certificate of it (mutual TLS). INVALID_ARGUMENT names the flag.
  absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ForServer() const;
  // Insecure credentials where no file is set. The CA verifies the server (the system's roots where
  // it is unset); certificate and key, both or none, are presented to the server. `verifier`
  // decides on the server's names, instead of that one of them is the address.
  std::shared_ptr<grpc::ChannelCredentials> ForChannel(
      std::shared_ptr<grpc::experimental::CertificateVerifier> verifier = nullptr) const;

  // Reads the files now.
  void Reload();

 private:
  // A file in memory that gRPC reads by its path; see tls.cc.
  class MemoryFile;

  explicit ReloadedTls(const TlsFiles& files);

  absl::Status Publish(const TlsContents& contents);
  std::shared_ptr<grpc::experimental::CertificateProviderInterface> Watch() const;

  const TlsFiles files_;
  std::unique_ptr<MemoryFile> identity_, roots_;
  absl::Mutex mutex_;                                         // Held during a Reload.
  absl::StatusOr<TlsContents> seen_ ABSL_GUARDED_BY(mutex_);  // The result of the last Reload.
  absl::Notification stop_;
  std::thread watcher_;
};

// Like ReloadedTls::ForChannel, but with the current contents of the files for good.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const TlsFiles& files);

}  // namespace continuo::common
