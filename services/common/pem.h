// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace continuo::common {

// Checks of certificates and keys in PEM, before they are used. Thread-safe.

// Checks that the text has at least one certificate and that each can be read. INVALID_ARGUMENT
// says what is wrong: "has no certificate in PEM", …
absl::Status CheckCertificates(std::string_view pem);

// Checks that `key` is the private key of the first certificate, without a passphrase, and that the
// certificate has not expired at `now`. INVALID_ARGUMENT says what is wrong.
absl::Status CheckKeyPair(std::string_view certificates, std::string_view key, absl::Time now);

// The end of the first certificate's validity; InfinitePast where there is no certificate.
absl::Time CertificateEnd(std::string_view certificates);

// The subject alternative names of a certificate: DNS names and URIs.
struct CertificateNames {
  std::vector<std::string> dns, uris;
};
// Returns the names of the first certificate, as they are. Names with bytes that are not printable
// ASCII, which could pass for others where they are cut or shown, are left out.
CertificateNames NamesOf(std::string_view pem);

}  // namespace continuo::common
