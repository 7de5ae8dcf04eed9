// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace continuo::common {

// What is wrong with text in PEM, before anybody serves by it. Thread-safe.

// At least one certificate, each of which can be read. INVALID_ARGUMENT "has no certificate", …
absl::Status CheckCertificates(std::string_view pem);

// The first certificate is `key`'s, a private key without a passphrase, and holds at `now`.
absl::Status CheckKeyPair(std::string_view certificates, std::string_view key, absl::Time now);

// Of the first certificate; InfinitePast where there is none.
absl::Time CertificateEnd(std::string_view certificates);

}  // namespace continuo::common
