// SPDX-License-Identifier: Apache-2.0
#include "services/common/trust/peer_check.h"

#include <grpcpp/security/auth_context.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"

namespace continuo::common {
namespace {

// Names of a refused certificate that the error tells, and how much of them.
constexpr size_t kMaxToldNames = 4, kMaxToldBytes = 256;

absl::Status Stranger(const std::string& message) {
  return protocol::WithReason(absl::PermissionDeniedError(message), protocol::kReasonPeerName);
}

absl::Status NoToken(const char* message) {
  return protocol::WithReason(absl::UnauthenticatedError(message), protocol::kReasonPeerToken);
}

std::vector<std::string> Values(const grpc::AuthContext& auth, const char* property) {
  std::vector<std::string> values;
  for (const grpc::string_ref& value : auth.FindPropertyValues(property)) {
    values.emplace_back(value.data(), value.size());
  }
  return values;
}

std::string Told(const CertificateNames& names) {
  std::vector<std::string> all = names.dns;
  all.insert(all.end(), names.uris.begin(), names.uris.end());
  if (all.empty()) return "has no DNS name and no URI";
  const size_t num_told = std::min(all.size(), kMaxToldNames);
  std::string told = absl::CHexEscape(
      absl::StrJoin(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(num_told), ", "));
  if (told.size() > kMaxToldBytes || num_told < all.size()) {
    told = absl::StrCat(told.substr(0, kMaxToldBytes), "…");
  }
  return absl::StrCat("is of ", told);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerCheck>> PeerCheck::Open(const PeerOptions& options) {
  ASSIGN_OR_RETURN(PeerNames names, PeerNames::Parse("tls_client_names", options.client_names));
  if (!names.empty() && options.tls.ca_file.empty()) {
    return absl::InvalidArgumentError(
        "--tls_client_names is of no use without --tls_ca_file: clients bring no certificates");
  }
  std::unique_ptr<TokenFile> token;
  if (!options.token_file.empty()) {
    ASSIGN_OR_RETURN(token, TokenFile::Open(options.token_file));
  }
  // make_unique cannot call the private constructor.
  return std::unique_ptr<PeerCheck>(new PeerCheck(options.tls.any(), !options.tls.ca_file.empty(),
                                                  std::move(names), std::move(token)));
}

absl::Status PeerCheck::CheckCertificate(const grpc::ServerContextBase& context) const {
  if (!has_ca_) {
    // Without a token nothing would tell peers from strangers.
    return !tls_ || token_ != nullptr
               ? absl::OkStatus()
               : Stranger(
                     "only peers of the fleet may call this; the server knows none without "
                     "--tls_ca_file or --token_file");
  }
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  if (!auth->IsPeerAuthenticated()) return Stranger("a certificate of the server's CA is needed");
  if (names_.empty()) return absl::OkStatus();
  const CertificateNames names = {.dns = Values(*auth, "peer_dns"),
                                  .uris = Values(*auth, "peer_uri")};
  if (names_.Allow(names)) return absl::OkStatus();
  return Stranger(
      absl::StrCat("the certificate ", Told(names), "; --tls_client_names names none of that"));
}

absl::Status PeerCheck::CheckToken(const grpc::ServerContextBase& context) const {
  if (token_ == nullptr) return absl::OkStatus();
  const auto [begin, end] = context.client_metadata().equal_range(kTokenMetadata);
  if (begin == end) return NoToken("the token of the fleet is needed: x-continuo-token");
  // A call with several tokens would have to be judged by one of them.
  if (std::next(begin) != end) return NoToken("there is more than one x-continuo-token");
  const std::string_view token(begin->second.data(), begin->second.size());
  if (token_->tokens()->Contain(token)) return absl::OkStatus();
  return NoToken("the token is not valid: x-continuo-token");
}

absl::Status PeerCheck::Check(const grpc::ServerContextBase& context) const {
  RETURN_IF_ERROR(CheckCertificate(context));
  return CheckToken(context);
}

absl::Status PeerCheck::Require(const grpc::ServerContextBase& context) {
  absl::Status status = Check(context);
  if (!status.ok()) num_refused_.fetch_add(1, std::memory_order_relaxed);
  return status;
}

}  // namespace continuo::common
