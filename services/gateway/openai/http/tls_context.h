// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace continuo::gateway::openai {

// In PEM. With roots, clients have to present a certificate of them.
struct TlsPem {
  std::string certificates, key, roots;
  friend bool operator==(const TlsPem&, const TlsPem&) = default;
};

// For connections from clients: TLS 1.2 and later, HTTP/1.1. INVALID_ARGUMENT where OpenSSL does
// not take what is given.
absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> MakeTlsContext(const TlsPem& pem);

}  // namespace continuo::gateway::openai
