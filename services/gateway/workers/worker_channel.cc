// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/worker_channel.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <utility>

#include "absl/time/clock.h"
#include "services/common/grpc/callback_threads.h"
#include "services/common/grpc/grpc_keepalive.h"
#include "services/common/grpc/grpc_status.h"
#include "services/protocol/error.h"

namespace continuo::gateway {

void WorkerChannel::Authorize(grpc::ClientContext* context) const {
  if (token != nullptr) context->AddMetadata(common::kTokenMetadata, token->tokens()->first());
}

std::shared_ptr<WorkerChannel> MakeWorkerChannel(const std::string& address,
                                                 const WorkerConnectOptions& options) {
  common::KeepCallbackThreads();
  grpc::ChannelArguments arguments;
  // Otherwise channels of this process to the same address would share a connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  common::SetKeepalive(absl::Seconds(10), absl::Seconds(3), arguments);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  // The minimum also bounds how long one attempt to connect may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Each probe of the bandwidth is a ping and its answer, which cost as much as a load report.
  // Token streams do not need larger windows.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetMaxReceiveMessageSize(16 << 20);
  arguments.SetMaxSendMessageSize(-1);
  // The router chooses an address: a proxy in between would undo its choice.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (!options.tls_server_name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls_server_name);
  }
  return std::make_shared<WorkerChannel>(
      address, grpc::CreateCustomChannel(address, options.credentials, arguments), options.token);
}

bool WasRefused(const grpc::Status& status) {
  // gRPC has no code for it, only this text.
  return status.error_message().find("Connection refused") != std::string::npos;
}

bool IsStranger(const grpc::Status& status) {
  const std::string reason = protocol::ReasonOf(common::FromGrpcStatus(status));
  return reason == protocol::kReasonPeerToken || reason == protocol::kReasonPeerName;
}

void QueryModels(
    std::shared_ptr<WorkerChannel> channel, absl::Duration timeout,
    std::function<void(const grpc::Status&, const v1::ListModelsResponse&)> on_answer) {
  struct Query {
    grpc::ClientContext context;
    v1::ListModelsRequest request;
    v1::ListModelsResponse response;
  };
  auto query = std::make_shared<Query>();
  query->context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  channel->Authorize(&query->context);
  auto* const stub = channel->inference->async();
  // The callback keeps the channel and the query until the call is done.
  stub->ListModels(&query->context, &query->request, &query->response,
                   [query, channel = std::move(channel), on_answer = std::move(on_answer)](
                       const grpc::Status& status) { on_answer(status, query->response); });
}

}  // namespace continuo::gateway
