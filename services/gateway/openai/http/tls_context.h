// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace continuo::gateway::openai {

// Files in PEM. With roots, clients must present a certificate of one of them.
struct TlsPem {
  std::string certificates, key, roots;
  friend bool operator==(const TlsPem&, const TlsPem&) = default;
};

// Makes a context for connections from clients: TLS 1.2 and later, HTTP/1.1. INVALID_ARGUMENT if
// OpenSSL rejects the files.
absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> MakeTlsContext(const TlsPem& pem);

}  // namespace continuo::gateway::openai
