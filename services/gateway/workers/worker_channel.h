// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "continuo/v1/worker.grpc.pb.h"
#include "services/common/trust/token_file.h"

namespace continuo::gateway {

// How workers are reached.
struct WorkerConnectOptions {
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  // The name in the workers' certificates; empty takes their address.
  std::string tls_server_name;
  // The token that each call brings; null: none. Outlives the channels.
  const common::TokenFile* token = nullptr;
};

// The gRPC channel to one worker and its stubs. Immutable; the stubs are thread-safe.
struct WorkerChannel {
  WorkerChannel(const std::string& address, std::shared_ptr<grpc::Channel> channel,
                const common::TokenFile* token = nullptr)
      : address(address),
        token(token),
        channel(channel),
        inference(v1::InferenceService::NewStub(channel)),
        worker(v1::WorkerService::NewStub(channel)) {}

  // Adds what the worker knows this gateway by. For every call, before it begins.
  void Authorize(grpc::ClientContext* context) const;

  const std::string address;
  const common::TokenFile* const token;
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<v1::InferenceService::Stub> inference;
  const std::unique_ptr<v1::WorkerService::Stub> worker;
};

// A channel with a connection of its own. It connects with the first call.
std::shared_ptr<WorkerChannel> MakeWorkerChannel(const std::string& address,
                                                 const WorkerConnectOptions& options);

// The worker does not take this gateway for one of the fleet: its token or its certificate's name.
bool IsStranger(const grpc::Status& status);

// The host was reached, and nothing listens at the worker's port. A connection that is cut off
// times out instead.
bool WasRefused(const grpc::Status& status);

// Asks the worker for its models. `on_answer` is called once, from a thread of gRPC, with
// DEADLINE_EXCEEDED after `timeout`.
void QueryModels(std::shared_ptr<WorkerChannel> channel, absl::Duration timeout,
                 std::function<void(const grpc::Status&, const v1::ListModelsResponse&)> on_answer);

}  // namespace continuo::gateway
