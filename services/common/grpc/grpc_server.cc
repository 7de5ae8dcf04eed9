// SPDX-License-Identifier: Apache-2.0
#include "services/common/grpc/grpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/common/grpc/grpc_keepalive.h"

namespace continuo::common {
namespace {

// Converts to gRPC's milliseconds, where INT_MAX means "never".
int Milliseconds(absl::Duration duration) {
  return static_cast<int>(
      std::clamp<int64_t>(absl::ToInt64Milliseconds(duration), int64_t{0}, int64_t{INT_MAX}));
}

void AddLimits(const GrpcServerOptions& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(options.max_receive_bytes);
  builder.SetMaxSendMessageSize(-1);
  if (options.max_buffer_bytes > 0) {
    builder.SetResourceQuota(grpc::ResourceQuota("server").Resize(options.max_buffer_bytes));
  }
  if (options.max_concurrent_streams > 0) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_concurrent_streams);
  }
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                             Milliseconds(options.max_connection_age));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                             Milliseconds(options.max_connection_age_grace));
  // A second server on the same port is an error, instead of getting half of the traffic.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

void AddKeepalive(const GrpcServerOptions& options, grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive_time));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             Milliseconds(options.keepalive_timeout));
  builder.AddChannelArgument(kPingTimeoutMsArgument, Milliseconds(options.keepalive_timeout));
  // Connections without calls are not pinged: clients that read their connections only while calls
  // run, as those of grpcio do, would not answer, and the next call would meet a closed connection.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  // Clients may ping as they like, with or without calls.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const GrpcServerOptions& options, const std::vector<grpc::Service*>& services) {
  static std::once_flag plugins;
  std::call_once(plugins, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
  // make_unique cannot call the private constructor.
  std::unique_ptr<GrpcServer> result(new GrpcServer);
  ASSIGN_OR_RETURN(result->tls_, ReloadedTls::Open(options.tls));
  std::shared_ptr<grpc::ServerCredentials> credentials;
  ASSIGN_OR_RETURN(credentials, result->tls_->ForServer());
  result->listen_ = options.listen;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(options.listen, credentials, &result->port_);
  AddLimits(options, builder);
  AddKeepalive(options, builder);
  for (grpc::Service* service : services) builder.RegisterService(service);
  if (options.configure) options.configure(builder);
  result->server_ = builder.BuildAndStart();
  if (result->server_ == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot listen on \"", options.listen, "\""));
  }
  // For unix sockets gRPC reports 1.
  if (absl::StartsWith(options.listen, "unix:")) result->port_ = 0;
  {
    absl::MutexLock lock(&result->mutex_);
    result->all_serving_ = options.serving;
  }
  result->SetServing("", options.serving);
  for (const std::string& name : options.health_names) result->SetServing(name, options.serving);
  return result;
}

GrpcServer::~GrpcServer() { Shutdown(absl::InfinitePast()); }

std::string GrpcServer::address() const {
  if (port_ == 0) return listen_;
  std::string host = listen_.substr(0, listen_.rfind(':'));
  // Addresses that stand for all of this host's.
  if (host == "0.0.0.0" || host == "*" || host.empty()) host = "127.0.0.1";
  if (host == "[::]") host = "[::1]";
  return absl::StrCat(host, ":", port_);
}

void GrpcServer::SetServing(const std::string& service, bool serving) {
  absl::MutexLock lock(&mutex_);
  health_names_.insert(service);
  passing_names_.erase(service);
  server_->GetHealthCheckService()->SetServingStatus(service, serving);
}

// gRPC's own function for all names would also set unknown names that a client watches.
void GrpcServer::SetAllServing(bool serving) {
  absl::MutexLock lock(&mutex_);
  all_serving_ = serving;
  for (const auto* const names : {&health_names_, &passing_names_}) {
    for (const std::string& name : *names) {
      server_->GetHealthCheckService()->SetServingStatus(name, serving);
    }
  }
}

void GrpcServer::SetPassingNames(std::set<std::string> names) {
  absl::MutexLock lock(&mutex_);
  for (const std::string& name : health_names_) names.erase(name);
  for (const std::string& name : passing_names_) {
    if (!names.contains(name)) server_->GetHealthCheckService()->SetServingStatus(name, false);
  }
  for (const std::string& name : names) {
    if (passing_names_.contains(name)) continue;
    server_->GetHealthCheckService()->SetServingStatus(name, all_serving_);
  }
  passing_names_ = std::move(names);
}

void GrpcServer::Shutdown(absl::Time deadline) {
  if (server_ == nullptr) return;
  SetAllServing(false);
  server_->GetHealthCheckService()->Shutdown();
  // A deadline beyond the clock's range would wrap around.
  const absl::Time now = absl::Now();
  const absl::Time bounded = std::clamp(deadline, now, now + absl::Hours(24 * 365));
  server_->Shutdown(absl::ToChronoTime(bounded));
}

}  // namespace continuo::common
