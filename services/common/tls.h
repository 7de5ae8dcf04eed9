// SPDX-License-Identifier: Apache-2.0
#pragma once

// Credentials from the files that --tls_cert_file, --tls_key_file and --tls_ca_file name. Files
// are read again every few seconds, so a renewed certificate needs no restart.

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace continuo {

// PEM files; "" is unset.
struct TlsFiles {
  std::string cert_file;
  std::string key_file;
  std::string ca_file;

  bool any() const { return !cert_file.empty() || !key_file.empty() || !ca_file.empty(); }
};

// Insecure where no file is set. Otherwise certificate and key are needed; with a CA, clients have
// to present a certificate of it (mutual TLS). INVALID_ARGUMENT names the flag that is missing or
// whose file is not readable PEM.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsFiles& files);

// Insecure where no file is set. The CA verifies the server (the system's roots where it is
// unset); certificate and key, both or none, are presented to it.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const TlsFiles& files);

}  // namespace continuo
