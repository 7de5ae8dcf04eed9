// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/pem.h"

namespace continuo::common {

// A list of names that the certificates of peers may have. Immutable.
//
//   gateway.llm.svc                             a DNS name; case does not matter
//   *.llm.svc                                   any one label in its place
//   spiffe://cluster.local/ns/llm/sa/gateway    a URI; every byte counts
//   spiffe://cluster.local/ns/llm/sa/*          any one segment of letters, digits, ".", "-", "_"
//
// A name of a certificate that has a wildcard itself is none of them. Common names, addresses and
// e-mail addresses are not looked at.
class PeerNames {
 public:
  // INVALID_ARGUMENT names `flag` and the name. There may be up to 64.
  static absl::StatusOr<PeerNames> Parse(std::string_view flag,
                                         const std::vector<std::string>& names);

  bool empty() const { return dns_.empty() && uris_.empty(); }
  // Returns whether one of the certificate's names is in the list.
  bool Allow(const CertificateNames& names) const;

 private:
  // With its wildcard as the first label of a DNS name, or the last segment of a URI, cut off.
  struct Name {
    std::string text;
    bool has_wildcard = false;
  };
  bool AllowDns(std::string_view name) const;
  bool AllowUri(std::string_view uri) const;

  std::vector<Name> dns_, uris_;
};

}  // namespace continuo::common
