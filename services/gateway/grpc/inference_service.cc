// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/grpc/inference_service.h"

#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/common/grpc/end_unary.h"
#include "services/common/grpc/message_bytes.h"
#include "services/gateway/grpc/asked_call.h"
#include "services/gateway/grpc/client_call.h"
#include "services/gateway/grpc/client_stream.h"
#include "services/gateway/grpc/keyed_call.h"
#include "services/gateway/grpc/reported_stream.h"
#include "services/gateway/reports/request_span.h"
#include "services/gateway/requests/prompt_tokens.h"
#include "services/gateway/routing/route_hash.h"
#include "services/protocol/error.h"
#include "services/protocol/find_model.h"
#include "services/protocol/validate_request.h"

namespace continuo::gateway {
InferenceService::InferenceService(const Dependencies& dependencies)
    : dependencies_(dependencies),
      intake_({.auth = dependencies.auth,
               .key_limiter = dependencies.key_limiter,
               .metrics = dependencies.metrics,
               .router = dependencies.relay.router,
               .clock = dependencies.relay.clock}),
      reports_({.metrics = dependencies.metrics,
                .usage = dependencies.usage,
                .spans = dependencies.spans,
                .clock = dependencies.relay.clock}),
      embeds_({.relay = dependencies.relay,
               .pool = dependencies.pool,
               .admission = dependencies.admission,
               .open_calls = dependencies.open_calls,
               .intake = &intake_,
               .reports = &reports_}),
      forwarder_({.intake = &intake_,
                  .admission = dependencies.forwarded,
                  .router = dependencies.relay.router,
                  .pool = dependencies.pool,
                  .open_calls = dependencies.open_calls}) {}

absl::StatusOr<std::string> InferenceService::Authenticate(const ClientCall& call) const {
  ASSIGN_OR_RETURN(Caller caller, intake_.FindCaller(call));
  return std::move(caller.tenant);
}

absl::StatusOr<CallIdentity> InferenceService::Identify(const ClientCall& call,
                                                        std::string_view key) const {
  ASSIGN_OR_RETURN(const std::string tenant, Authenticate(call));
  ASSIGN_OR_RETURN(CallIdentity identity, IdentityOfKey(*dependencies_.secret, tenant, key,
                                                        dependencies_.relay.clock->Now()));
  if (const auto entry = recent_keys_.Find(tenant, identity.request_id)) {
    identity.reference_time = entry->reference_time;
    identity.fingerprint = entry->fingerprint;
  }
  return identity;
}

std::vector<v1::Model> InferenceService::Models(const ClientCall& call) const {
  const absl::StatusOr<Caller> caller = intake_.FindCaller(call);
  return caller.ok() ? Models(caller->key.get()) : std::vector<v1::Model>();
}

std::vector<v1::Model> InferenceService::Models(const KeyGrant* key) const {
  std::vector<v1::Model> models = dependencies_.pool->Models();
  if (key != nullptr) {
    std::erase_if(models, [key](const v1::Model& model) { return !key->MayUse(model.name()); });
  }
  return models;
}

absl::StatusOr<RelayRequest> InferenceService::Admit(const ClientCall& call,
                                                     const common::CallTrace& trace,
                                                     v1::GenerateRequest request,
                                                     KeyLimiter::Claim* claim) {
  RETURN_IF_ERROR(intake_.CheckOpen());
  RelayRequest result;
  std::shared_ptr<const KeyGrant> key;
  ASSIGN_OR_RETURN(result.context, intake_.ContextOf(call, &key));
  CarryTrace(trace, &result.context);
  RETURN_IF_ERROR(protocol::ValidateGenerate(request));
  RETURN_IF_ERROR(intake_.BindModel(key.get(), &request));
  // The order of precedence is the worker's.
  const v1::GenerateResponse& received = request.continuation().received();
  const std::string& received_id = received.accepted().request_id();
  if (!request.request_id().empty()) {
    result.context.request_id = request.request_id();
  } else if (!received_id.empty()) {
    RETURN_IF_ERROR(protocol::ValidateId("continuation.received.accepted.request_id", received_id));
    result.context.request_id = received_id;
  } else if (result.context.request_id.empty()) {
    result.context.request_id = intake_.MakeRequestId();
  }
  result.prompt_tokens = EstimatePromptTokens(request);
  result.prefix_hash = PrefixHash(request, result.context.tenant);
  result.session_hash = SessionHash(call.metadata("x-session-id"), result.context.tenant);
  AdmissionRequest asked = {
      .bytes = call.num_bytes,
      .tokens = result.prompt_tokens,
      .tenant = result.context.tenant,
      .model = request.model(),
      .priority = request.priority(),
      .max_tokens = request.stopping().has_max_tokens()
                        ? std::optional<int64_t>(request.stopping().max_tokens())
                        : std::nullopt,
      .time_left = result.context.deadline - dependencies_.relay.clock->Now(),
      .is_cold = dependencies_.relay.router->IsCold(request.model()),
      // An empty continuation continues nothing.
      .is_continuation = received.has_accepted() || received.deltas_size() > 0};
  ASSIGN_OR_RETURN(result.ticket,
                   intake_.Admit(dependencies_.admission, std::move(asked), std::move(key), claim));
  if (call.identity.has_value() && !call.identity->body.empty()) {
    const absl::Status bound =
        recent_keys_.Bind(result.context.tenant, call.identity->request_id, *call.identity);
    if (!bound.ok()) {
      claim->Refund();
      return bound;
    }
  }
  result.request = std::move(request);
  result.context.tokens_had = call.tokens_had;
  if (call.identity.has_value()) {
    result.context.reference_time = call.identity->reference_time;
    result.context.body = call.identity->body;
    result.context.preferred_fingerprint = call.identity->preferred_fingerprint;
    // Even an empty continuation replaces a live generation.
    if (call.identity->takes_over) result.request.mutable_continuation();
  }
  result.seed = intake_.MakeSeed();
  result.context.call_id = intake_.MakeCallId();
  return result;
}

void InferenceService::OnRejected(const std::string& model, const std::string& correlation_id,
                                  const absl::Status& status) {
  reports_.OnRejected(model, correlation_id, status);
}

absl::StatusOr<std::shared_ptr<StreamRelay>> InferenceService::Open(const ClientCall& call,
                                                                    v1::GenerateRequest request,
                                                                    RelayClient* client) {
  const std::string model = request.model();
  common::CallTrace trace = reports_.Begin(call.metadata("traceparent"));
  SetRequest(request, &trace);
  const std::string_view operation = OperationOf(request);
  KeyLimiter::Claim claim;
  absl::StatusOr<RelayRequest> admitted = Admit(call, trace, std::move(request), &claim);
  if (!admitted.ok()) {
    reports_.OnRejected(model, call.correlation_id, admitted.status(), operation, &trace);
    return admitted.status();
  }
  LiveStreams::RequestKey key(admitted->context.tenant, admitted->context.request_id);
  const bool is_continuation = admitted->request.has_continuation();
  auto stream = std::make_unique<ReportedStream>(
      ReportedStream::Listeners{
          .reports = &reports_, .open = &streams_, .recent_keys = &recent_keys_},
      client,
      ReportedStream::Call{.id = admitted->context.call_id,
                           .is_again = is_continuation,
                           .identity = call.identity.has_value() ? call.identity->request_id : "",
                           .operation = operation},
      std::move(trace), std::move(claim));
  auto relay =
      std::make_shared<StreamRelay>(dependencies_.relay, *std::move(admitted), stream.get());
  stream->set_relay(relay.get());
  if (const absl::Status entered = streams_.Enter(relay, std::move(key), is_continuation);
      !entered.ok()) {
    reports_.OnRejected(model, call.correlation_id, entered, operation, stream->trace());
    return entered;
  }
  stream.release();  // The relay's end deletes it.
  return relay;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes) {
  // Bytes without a valid key are not parsed.
  ClientCall call = CallOf(*context, *bytes);
  const absl::Status stranger = Authenticate(call).status();
  absl::StatusOr<v1::GenerateRequest> request =
      stranger.ok() ? common::ParseMessage<v1::GenerateRequest>(*bytes, &call.num_bytes) : stranger;
  if (!request.ok()) {
    OnRejected("", "", request.status());
    return new RejectedStream(dependencies_.open_calls, request.status());
  }
  if (const absl::Status status = TakeIdentity(*this, &call, &*request); !status.ok()) {
    OnRejected(request->model(), "", status);
    return new RejectedStream(dependencies_.open_calls, status);
  }
  auto client = std::make_unique<ClientStream>(dependencies_.open_calls);
  absl::StatusOr<std::shared_ptr<StreamRelay>> relay =
      Open(call, *std::move(request), client.get());
  if (!relay.ok()) return new RejectedStream(dependencies_.open_calls, relay.status());
  client->Start(*std::move(relay));
  return client.release();
}

void InferenceService::EndStreams(const absl::Status& status) {
  streams_.EndAll(status);
  embeds_.EndAll(status);
}

TextService::Cancel InferenceService::AskTokenize(const ClientCall& call,
                                                  v1::TokenizeRequest request,
                                                  Done<v1::TokenizeResponse> done) {
  return forwarder_.AskTokenize(call, std::move(request), std::move(done));
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* bytes,
                                                     grpc::ByteBuffer* response) {
  return forwarder_.Tokenize(context, *bytes, response);
}

TextService::Cancel InferenceService::AskDetokenize(const ClientCall& call,
                                                    v1::DetokenizeRequest request,
                                                    Done<v1::DetokenizeResponse> done) {
  return forwarder_.AskDetokenize(call, std::move(request), std::move(done));
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* bytes,
                                                       grpc::ByteBuffer* response) {
  return forwarder_.Detokenize(context, *bytes, response);
}

TextService::Cancel InferenceService::AskGetTokenizer(const ClientCall& call,
                                                      v1::GetTokenizerRequest request,
                                                      Done<v1::GetTokenizerResponse> done) {
  return forwarder_.AskGetTokenizer(call, std::move(request), std::move(done));
}

grpc::ServerUnaryReactor* InferenceService::GetTokenizer(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* bytes,
                                                         grpc::ByteBuffer* response) {
  return forwarder_.GetTokenizer(context, *bytes, response);
}

TextService::Cancel InferenceService::AskEmbed(const ClientCall& call, v1::EmbedRequest request,
                                               Done<v1::EmbedResponse> done) {
  return embeds_.Ask(call, std::move(request), std::move(done));
}

grpc::ServerUnaryReactor* InferenceService::Embed(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* bytes,
                                                  grpc::ByteBuffer* response) {
  // Bytes without a valid key are not parsed.
  ClientCall call = CallOf(*context, *bytes);
  const absl::Status stranger = Authenticate(call).status();
  absl::StatusOr<v1::EmbedRequest> request =
      stranger.ok() ? common::ParseMessage<v1::EmbedRequest>(*bytes, &call.num_bytes) : stranger;
  if (!request.ok()) {
    OnRejected("", "", request.status());
    return common::EndUnary(context, request.status());
  }
  return AnswerAsked<v1::EmbedResponse>(
      dependencies_.open_calls, response, [&](Done<v1::EmbedResponse> done) {
        return AskEmbed(call, *std::move(request), std::move(done));
      });
}

grpc::ServerUnaryReactor* InferenceService::ListModels(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* bytes,
                                                       grpc::ByteBuffer* response) {
  if (const absl::Status open = intake_.CheckOpen(); !open.ok())
    return common::EndUnary(context, open);
  const absl::StatusOr<Caller> caller = intake_.FindCaller(CallOf(*context, *bytes));
  if (!caller.ok()) return common::EndUnary(context, caller.status());
  v1::ListModelsResponse list;
  for (v1::Model& model : Models(caller->key.get())) *list.add_models() = std::move(model);
  common::SerializeMessage(list, response);
  return common::EndUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* InferenceService::GetModel(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* bytes,
                                                     grpc::ByteBuffer* response) {
  if (const absl::Status open = intake_.CheckOpen(); !open.ok())
    return common::EndUnary(context, open);
  const absl::StatusOr<Caller> caller = intake_.FindCaller(CallOf(*context, *bytes));
  if (!caller.ok()) return common::EndUnary(context, caller.status());
  const absl::StatusOr<v1::GetModelRequest> request =
      common::ParseMessage<v1::GetModelRequest>(*bytes);
  if (!request.ok()) return common::EndUnary(context, request.status());
  const std::vector<v1::Model> models = Models(caller->key.get());
  if (const v1::Model* const found = protocol::FindModel(models, request->name());
      found != nullptr) {
    v1::GetModelResponse answer;
    *answer.mutable_model() = *found;
    common::SerializeMessage(answer, response);
    return common::EndUnary(context, absl::OkStatus());
  }
  if (request->name().empty() && models.size() > 1) {
    return common::EndUnary(context,
                            protocol::FieldError("name", absl::StrCat("is needed: ", models.size(),
                                                                      " models are served here")));
  }
  return common::EndUnary(context, absl::NotFoundError(absl::StrCat("model \"", request->name(),
                                                                    "\" is not served here")));
}

}  // namespace continuo::gateway
