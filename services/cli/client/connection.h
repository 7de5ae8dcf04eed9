// SPDX-License-Identifier: Apache-2.0
#pragma once

// The connection of a command to its server: address, TLS and credentials.

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/flags.h"
#include "services/common/tls.h"

namespace continuo::cli {

// The flags of a connection, with their defaults.
struct Connection {
  std::string server = "localhost:50050";
  bool tls = false;  // Also true where one of the files is set.
  common::TlsFiles tls_files;
  std::string tls_server_name;
  std::string api_key;
  std::string tenant;
  std::string token_file;
};

// Adds --server and the flags of AddSecurityFlags.
void AddConnectionFlags(common::Flags& flags, Connection* connection);
// Adds --tls…, --api_key, --tenant and --token_file.
void AddSecurityFlags(common::Flags& flags, Connection* connection);

// Opens a channel to `connection.server`, with keepalive and quick reconnects. Channels with
// different numbers do not share a TCP connection. INVALID_ARGUMENT names a bad flag of TLS or the
// token.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const Connection& connection,
                                                           int number = 0);

// Adds the API key, the tenant and the token to the metadata of a call.
void AddMetadata(const Connection& connection, grpc::ClientContext& context);

// Formats an error in one line: "UNAVAILABLE (NO_WORKER): no worker serves \"m\"; try again in 2s".
std::string DescribeError(const absl::Status& status);

}  // namespace continuo::cli
