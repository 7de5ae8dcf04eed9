// SPDX-License-Identifier: Apache-2.0
#include "services/common/tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"

namespace continuo {
namespace {

constexpr unsigned kReloadSeconds = 10;

absl::Status CheckPem(const std::string& flag, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": cannot read \"", path, "\""));
  }
  if (text.find("-----BEGIN ") == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": \"", path, "\" is not PEM"));
  }
  return absl::OkStatus();
}

// Certificate and key, both or none, and what is set is readable.
absl::Status CheckFiles(const TlsFiles& files) {
  if (files.cert_file.empty() != files.key_file.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.cert_file.empty() ? "--tls_cert_file" : "--tls_key_file",
                     " is needed: certificate and key go together"));
  }
  if (!files.cert_file.empty()) {
    RETURN_IF_ERROR(CheckPem("--tls_cert_file", files.cert_file));
    RETURN_IF_ERROR(CheckPem("--tls_key_file", files.key_file));
  }
  if (!files.ca_file.empty()) RETURN_IF_ERROR(CheckPem("--tls_ca_file", files.ca_file));
  return absl::OkStatus();
}

std::shared_ptr<grpc::experimental::CertificateProviderInterface> Watch(const TlsFiles& files) {
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      files.key_file, files.cert_file, files.ca_file, kReloadSeconds);
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsFiles& files) {
  if (!files.any()) return grpc::InsecureServerCredentials();
  RETURN_IF_ERROR(CheckFiles(files));
  if (files.cert_file.empty()) {
    return absl::InvalidArgumentError(
        "--tls_cert_file and --tls_key_file are needed where --tls_ca_file is set");
  }
  grpc::experimental::TlsServerCredentialsOptions options(Watch(files));
  options.watch_identity_key_cert_pairs();
  if (!files.ca_file.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const TlsFiles& files) {
  if (!files.any()) return grpc::InsecureChannelCredentials();
  RETURN_IF_ERROR(CheckFiles(files));
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Watch(files));
  if (!files.ca_file.empty()) options.watch_root_certs();
  if (!files.cert_file.empty()) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace continuo
