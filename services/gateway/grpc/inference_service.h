// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/random/random.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "services/common/telemetry/call_trace.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/grpc/embed_service.h"
#include "services/gateway/grpc/gateway_metrics.h"
#include "services/gateway/grpc/open_calls.h"
#include "services/gateway/grpc/usage_log.h"
#include "services/gateway/identity/fleet_secret.h"
#include "services/gateway/identity/recent_keys.h"
#include "services/gateway/relay/generate_service.h"
#include "services/gateway/relay/stream_relay.h"
#include "services/gateway/relay/text_service.h"
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
  void BeginDrain() { draining_ = true; }
  // Ends all open streams and calls of Embed with `status`, an error, each after the write that is
  // in flight to its client. No other one is opened from now on.
  void EndStreams(const absl::Status& status);
  // After EndStreams: logs the streams whose clients have not read their end, and stops waiting.
  void GiveUpStreams();
  // Counts calls of Embed, too.
  int64_t num_streams() const;
  // After BeginDrain: returns when no call was rejected for `quiet`, or after `longest`.
  void WaitForQuiet(absl::Duration quiet, absl::Duration longest) const;

  absl::StatusOr<std::string> Authenticate(const ClientCall& call) const override;
  absl::StatusOr<std::shared_ptr<StreamRelay>> Open(const ClientCall& call,
                                                    v1::GenerateRequest request,
                                                    RelayClient* client) override;
  // The models that the caller may use.
  std::vector<v1::Model> Models(const ClientCall& call) const;
  void OnRejected(const std::string& model, const std::string& correlation_id,
                  const absl::Status& status) override;
  std::string MakeRequestId() override;
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
  class OpenStream;
  // The tenant and the id of a request.
  using RequestKey = std::pair<std::string, std::string>;

  std::vector<std::shared_ptr<StreamRelay>> OpenRelays() const;
  // UNAVAILABLE after BeginDrain.
  absl::Status CheckOpen() const;
  // `claim` becomes the place that the caller's key gives to an admitted request.
  absl::StatusOr<RelayRequest> Admit(const ClientCall& call, const common::CallTrace& trace,
                                     v1::GenerateRequest request, KeyLimiter::Claim* claim);
  absl::StatusOr<Caller> FindCaller(const ClientCall& call) const;
  std::vector<v1::Model> Models(const KeyGrant* key) const;
  // The tenant, deadline and trace of a call, and the request id where the client sent one. `key`
  // becomes the caller's.
  absl::StatusOr<CallContext> ContextOf(const ClientCall& call,
                                        std::shared_ptr<const KeyGrant>* key) const;
  // Sends the request to a worker of its model, and to another one where that is lost.
  template <typename Request, typename Response, typename Method>
  grpc::ServerUnaryReactor* Forward(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response,
                                    Method method);
  // The same for a call of another protocol.
  template <typename Request, typename Response, typename Method>
  Cancel Ask(const ClientCall& call, Request request, Done<Response> done, Method method);
  // Enters a relay that has been admitted; it replaces one of the same key if it is a continuation.
  // ALREADY_EXISTS if it is none, or the status of EndStreams.
  absl::Status Enter(const std::shared_ptr<StreamRelay>& relay, RequestKey key,
                     bool is_continuation);
  void OnStreamEnd(const StreamRelay* relay, const absl::Status& status, const RelayReport& report,
                   const std::string& trace_id, KeyLimiter::Claim& claim, const UsageRecord& usage,
                   const std::string& identity);
  void LogRejected(const std::string& model, const std::string& correlation_id,
                   const absl::Status& status, const std::string& trace_id);

  const Dependencies dependencies_;
  std::atomic<bool> draining_ = false;
  RecentKeys recent_keys_;
  EmbedService embeds_;

  mutable absl::Mutex mutex_;
  mutable absl::CondVar rejected_ ABSL_GUARDED_BY(mutex_);  // Signalled by CheckOpen.
  absl::BitGen random_ ABSL_GUARDED_BY(mutex_);
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);  // OK until EndStreams.
  struct OpenRelay {
    std::weak_ptr<StreamRelay> relay;
    RequestKey key;
  };
  absl::flat_hash_map<const StreamRelay*, OpenRelay> open_ ABSL_GUARDED_BY(mutex_);
  // The relay that runs for each key; where several did, the one that replaced the others.
  absl::flat_hash_map<RequestKey, const StreamRelay*> live_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::gateway
