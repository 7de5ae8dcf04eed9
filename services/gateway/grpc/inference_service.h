// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "services/common/telemetry/call_trace.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/grpc/call_intake.h"
#include "services/gateway/grpc/embed_service.h"
#include "services/gateway/grpc/live_streams.h"
#include "services/gateway/grpc/open_calls.h"
#include "services/gateway/grpc/text_forwarder.h"
#include "services/gateway/identity/fleet_secret.h"
#include "services/gateway/identity/recent_keys.h"
#include "services/gateway/relay/generate_service.h"
#include "services/gateway/relay/stream_relay.h"
#include "services/gateway/relay/text_service.h"
#include "services/gateway/reports/call_reports.h"
#include "services/gateway/reports/gateway_metrics.h"
#include "services/gateway/reports/usage_log.h"
#include "services/gateway/requests/auth.h"
#include "services/gateway/requests/key_limiter.h"
#include "services/gateway/workers/worker_pool.h"

namespace continuo::gateway {

// continuo.v1.InferenceService for clients. Generate and Embed are relayed; Tokenize, Detokenize
// and GetTokenizer are forwarded to one worker; ListModels and GetModel merge the reports of all
// workers.
// Requests arrive as bytes, so that one that does not parse gets a status of ours. Thread-safe.
class InferenceService
    : public v1::InferenceService::WithRawCallbackMethod_Generate<
          v1::InferenceService::WithRawCallbackMethod_Tokenize<
              v1::InferenceService::WithRawCallbackMethod_Detokenize<
                  v1::InferenceService::WithRawCallbackMethod_Embed<
                      v1::InferenceService::WithRawCallbackMethod_ListModels<
                          v1::InferenceService::WithRawCallbackMethod_GetModel<
                              v1::InferenceService::WithRawCallbackMethod_GetTokenizer<
                                  v1::InferenceService::Service>>>>>>>,
      public GenerateService,
      public TextService {
 public:
  // All of them outlive the service, and the service outlives the server.
  struct Dependencies {
    RelayEnvironment relay;
    const WorkerPool* pool = nullptr;
    Admission* admission = nullptr;  // For Generate and Embed.
    Admission* forwarded = nullptr;  // For the methods that are forwarded.
    GatewayMetrics* metrics = nullptr;
    OpenCalls* open_calls = nullptr;
    const Authenticator* auth = nullptr;
    KeyLimiter* key_limiter = nullptr;
    const FleetSecret* secret = nullptr;
    UsageLog* usage = nullptr;              // Null: there is no ledger.
    common::SpanExporter* spans = nullptr;  // Null: nothing is traced.
  };
  explicit InferenceService(const Dependencies& dependencies);

  // From now on calls that need a worker are rejected, UNAVAILABLE with reason CONTINUE.
  void BeginDrain() { intake_.BeginDrain(); }
  // Ends all open streams and calls of Embed with `status`, an error, each after the write that is
  // in flight to its client. No other one is opened from now on.
  void EndStreams(const absl::Status& status);
  // After EndStreams: logs the streams whose clients have not read their end, and stops waiting.
  void GiveUpStreams() { streams_.GiveUpAll(); }
  // Counts calls of Embed, too.
  int64_t num_streams() const { return streams_.size() + embeds_.num_calls(); }
  // After BeginDrain: returns when no call was rejected for `quiet`, or after `longest`.
  void WaitForQuiet(absl::Duration quiet, absl::Duration longest) const {
    intake_.WaitForQuiet(quiet, longest);
  }

  absl::StatusOr<std::string> Authenticate(const ClientCall& call) const override;
  absl::StatusOr<std::shared_ptr<StreamRelay>> Open(const ClientCall& call,
                                                    v1::GenerateRequest request,
                                                    RelayClient* client) override;
  // The models that the caller may use.
  std::vector<v1::Model> Models(const ClientCall& call) const;
  void OnRejected(const std::string& model, const std::string& correlation_id,
                  const absl::Status& status) override;
  std::string MakeRequestId() override { return intake_.MakeRequestId(); }
  absl::StatusOr<CallIdentity> Identify(const ClientCall& call,
                                        std::string_view key) const override;

  Cancel AskTokenize(const ClientCall& call, v1::TokenizeRequest request,
                     Done<v1::TokenizeResponse> done) override;
  Cancel AskDetokenize(const ClientCall& call, v1::DetokenizeRequest request,
                       Done<v1::DetokenizeResponse> done) override;
  Cancel AskGetTokenizer(const ClientCall& call, v1::GetTokenizerRequest request,
                         Done<v1::GetTokenizerResponse> done) override;
  Cancel AskEmbed(const ClientCall& call, v1::EmbedRequest request,
                  Done<v1::EmbedResponse> done) override;

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* bytes) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* bytes,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* bytes,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Embed(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* bytes,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* bytes,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* bytes,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetTokenizer(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* bytes,
                                         grpc::ByteBuffer* response) override;

 private:
  // `claim` becomes the place that the caller's key gives to an admitted request.
  absl::StatusOr<RelayRequest> Admit(const ClientCall& call, const common::CallTrace& trace,
                                     v1::GenerateRequest request, KeyLimiter::Claim* claim);
  std::vector<v1::Model> Models(const KeyGrant* key) const;

  const Dependencies dependencies_;
  CallIntake intake_;
  const CallReports reports_;
  RecentKeys recent_keys_;
  LiveStreams streams_;
  EmbedService embeds_;
  const TextForwarder forwarder_;
};

}  // namespace continuo::gateway
