// SPDX-License-Identifier: Apache-2.0
#include "services/cli/client/connection.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/cli/client/terminal.h"
#include "services/common/grpc/callback_threads.h"
#include "services/common/grpc/grpc_keepalive.h"
#include "services/common/trust/token_file.h"
#include "services/protocol/error.h"
#include "services/protocol/status_name.h"

namespace continuo::cli {

void AddSecurityFlags(common::Flags& flags, Connection* c) {
  flags.Switch("tls", &c->tls,
               "Use TLS, with the system's root certificates where no CA is given.");
  flags.Text("tls_ca_file", &c->tls_files.ca_file,
             "PEM CA that has to have issued the server's certificate.");
  flags.Text("tls_cert_file", &c->tls_files.cert_file,
             "PEM certificate that the server is shown (mutual TLS).");
  flags.Text("tls_key_file", &c->tls_files.key_file, "PEM key of --tls_cert_file.");
  flags.Text("tls_server_name", &c->tls_server_name,
             "Name in the server's certificate. The default is the name in the address.");
  flags.Text(
      "api_key", &c->api_key,
      "API key, sent as a bearer token. The variable CONTINUO_API_KEY is safer, as arguments "
      "are visible to other users.");
  flags.Text("tenant", &c->tenant, "Tenant, sent as x-tenant-id.");
  flags.Text("token_file", &c->token_file,
             "File of the token of the fleet, which workers ask operators for.");
}

void AddConnectionFlags(common::Flags& flags, Connection* c) {
  flags.Text("server", &c->server, "Address of the gateway or worker, HOST:PORT.");
  AddSecurityFlags(flags, c);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const Connection& connection,
                                                           int number) {
  common::KeepCallbackThreads();
  if (!connection.token_file.empty()) {
    RETURN_IF_ERROR(common::ReadTokens(connection.token_file).status());
  }
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  if (connection.tls && !connection.tls_files.any()) {
    credentials = grpc::SslCredentials(grpc::SslCredentialsOptions());
  } else {
    ASSIGN_OR_RETURN(credentials, common::MakeChannelCredentials(connection.tls_files));
  }
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  common::SetKeepalive(absl::Seconds(10), absl::Seconds(10), arguments);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // In spite of its name, this is how long one attempt may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  // Channels with equal arguments would share a connection.
  arguments.SetInt("continuo.channel_number", number);
  if (!connection.tls_server_name.empty()) {
    arguments.SetSslTargetNameOverride(connection.tls_server_name);
  }
  return grpc::CreateCustomChannel(connection.server, credentials, arguments);
}

void AddMetadata(const Connection& connection, grpc::ClientContext& context) {
  if (!connection.api_key.empty()) {
    context.AddMetadata("authorization", "Bearer " + connection.api_key);
  }
  if (!connection.tenant.empty()) context.AddMetadata("x-tenant-id", connection.tenant);
  if (connection.token_file.empty()) return;
  // It is read for each call, since a command may outlive it. Without it the server tells the rest.
  const absl::StatusOr<common::Tokens> tokens = common::ReadTokens(connection.token_file);
  if (tokens.ok()) context.AddMetadata(common::kTokenMetadata, tokens->first());
}

std::string DescribeError(const absl::Status& status) {
  std::string text(protocol::StatusName(status.code()));
  const std::string reason = protocol::ReasonOf(status);
  if (!reason.empty()) absl::StrAppend(&text, " (", reason, ")");
  if (!status.message().empty()) {
    // A server's message may contain anything; it is printed as one line of harmless text.
    absl::StrAppend(&text, ": ", LineForTerminal(std::string(status.message())));
  }
  const auto delay = protocol::RetryDelayOf(status);
  if (delay.has_value()) absl::StrAppend(&text, "; try again in ", absl::FormatDuration(*delay));
  return text;
}

}  // namespace continuo::cli
