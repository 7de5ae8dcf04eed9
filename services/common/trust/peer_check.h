// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_context.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/tls.h"
#include "services/common/trust/peer_names.h"
#include "services/common/trust/token_file.h"

namespace continuo::common {

struct PeerOptions {
  TlsFiles tls;                           // Of the server.
  std::vector<std::string> client_names;  // --tls_client_names
  std::string token_file;                 // --token_file
};

// Tells whether the caller of a server is one of the fleet: a gateway, a worker or an operator. It
// has to pass every check that is configured: a certificate of the CA, with one of the names where
// there are some, and a token. Thread-safe.
class PeerCheck {
 public:
  // INVALID_ARGUMENT names the flag.
  static absl::StatusOr<std::unique_ptr<PeerCheck>> Open(const PeerOptions& options);

  // OK for a peer of the fleet. Everybody is one where there is neither TLS nor a token. Errors:
  // UNAUTHENTICATED, reason PEER_TOKEN, without a valid token; PERMISSION_DENIED, reason PEER_NAME,
  // for a certificate that is missing or has another name, or where TLS asks for none.
  absl::Status Check(const grpc::ServerContextBase& context) const;
  // Does the same and counts a refusal.
  absl::Status Require(const grpc::ServerContextBase& context);

  // Names or tokens are configured: peers that they do not let in are strangers. Otherwise nothing
  // but the calls that speak for others needs a peer of the fleet.
  bool is_strict() const { return !names_.empty() || token_ != nullptr; }
  // The tokens that are asked for; null: none.
  const TokenFile* token() const { return token_.get(); }
  // Calls that Require has refused.
  int64_t num_refused() const { return num_refused_.load(std::memory_order_relaxed); }

 private:
  PeerCheck(bool tls, bool has_ca, PeerNames names, std::unique_ptr<TokenFile> token)
      : tls_(tls), has_ca_(has_ca), names_(std::move(names)), token_(std::move(token)) {}
  absl::Status CheckCertificate(const grpc::ServerContextBase& context) const;
  absl::Status CheckToken(const grpc::ServerContextBase& context) const;

  const bool tls_, has_ca_;
  const PeerNames names_;
  const std::unique_ptr<TokenFile> token_;  // Null: none is asked for.
  std::atomic<int64_t> num_refused_ = 0;
};

}  // namespace continuo::common
