// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/grpc/inference_service.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/common/grpc/end_unary.h"
#include "services/common/grpc/grpc_status.h"
#include "services/common/grpc/message_bytes.h"
#include "services/gateway/grpc/asked_call.h"
#include "services/gateway/grpc/bind_model.h"
#include "services/gateway/grpc/client_call.h"
#include "services/gateway/grpc/client_stream.h"
#include "services/gateway/grpc/forwarded_call.h"
#include "services/gateway/grpc/keyed_call.h"
#include "services/gateway/grpc/request_log.h"
#include "services/gateway/grpc/request_span.h"
#include "services/gateway/relay/message_memory.h"
#include "services/gateway/requests/prompt_tokens.h"
#include "services/gateway/routing/route_hash.h"
#include "services/protocol/error.h"
#include "services/protocol/find_model.h"
#include "services/protocol/validate_request.h"

namespace continuo::gateway {
namespace {

// Adds what the report knows.
void CompleteRecord(const RelayReport& report, UsageRecord* record) {
  record->tenant = report.tenant;
  record->request_id = report.request_id;
  record->model = report.model;
  record->fingerprint = report.fingerprint;
  record->prompt_tokens = report.prompt_tokens;
  record->is_estimate = !report.usage.has_value() && report.prompt_tokens > 0;
  record->delivered_tokens = report.completion_tokens - report.replayed_tokens;
  record->generated_tokens = report.completion_tokens;
  if (report.usage.has_value()) {
    record->cached_tokens = report.usage->cached_prompt_tokens();
    record->generated_tokens = report.usage->completion_tokens();
    record->reasoning_tokens = report.usage->reasoning_tokens();
  }
  record->migrations = report.migrations;
  record->duration = report.duration;
}

// The methods that are forwarded, as ForwardedCall calls them.
constexpr auto kTokenize = [](auto* stub, auto* context, auto* request, auto* response, auto done) {
  stub->async()->Tokenize(context, request, response, std::move(done));
};
constexpr auto kDetokenize = [](auto* stub, auto* context, auto* request, auto* response,
                                auto done) {
  stub->async()->Detokenize(context, request, response, std::move(done));
};
constexpr auto kGetTokenizer = [](auto* stub, auto* context, auto* request, auto* response,
                                  auto done) {
  stub->async()->GetTokenizer(context, request, response, std::move(done));
};
}  // namespace

// Stands between a relay and its client, so that the service learns of the end before the client
// does. Owns itself until then.
class InferenceService::OpenStream : public RelayClient {
 public:
  OpenStream(InferenceService* service, RelayClient* client, std::string_view operation,
             common::CallTrace trace, KeyLimiter::Claim claim, UsageRecord usage,
             std::string identity)
      : service_(service),
        client_(client),
        operation_(operation),
        trace_(std::move(trace)),
        claim_(std::move(claim)),
        usage_(std::move(usage)),
        identity_(std::move(identity)) {}

  void set_relay(const StreamRelay* relay) { relay_ = relay; }
  common::CallTrace* trace() { return &trace_; }
  void OnSent() override { client_->OnSent(); }
  void Write(const v1::GenerateResponse& response) override { client_->Write(response); }
  void Finish(const absl::Status& status, const RelayReport& report) override {
    if (!given_up_) Report(status, report);
    client_->Finish(status, report);
    delete this;
  }
  void WriteLast(const v1::GenerateResponse& response, const absl::Status& status,
                 const RelayReport& report) override {
    if (!given_up_) Report(status, report);
    client_->WriteLast(response, status, report);
    delete this;
  }
  void OnGivenUp(const absl::Status& status, const RelayReport& report) override {
    if (!std::exchange(given_up_, true)) Report(status, report);
  }

 private:
  void Report(const absl::Status& status, const RelayReport& report) {
    service_->OnStreamEnd(relay_, status, report, trace_.TraceId(), claim_, usage_, identity_);
    EndSpan(operation_, service_->dependencies_.metrics->PoolName(report.pool), report, status,
            &trace_);
  }

  InferenceService* const service_;
  RelayClient* const client_;
  const std::string_view operation_;
  common::CallTrace trace_;
  KeyLimiter::Claim claim_;
  const UsageRecord usage_;     // what the report does not have
  const std::string identity_;  // CallIdentity::request_id, where the call has one
  const StreamRelay* relay_ = nullptr;
  bool given_up_ = false;  // Only used from the relay's callbacks, which come one at a time.
};

InferenceService::InferenceService(const Dependencies& dependencies)
    : dependencies_(dependencies),
      embeds_(
          {.relay = dependencies.relay,
           .pool = dependencies.pool,
           .admission = dependencies.admission,
           .metrics = dependencies.metrics,
           .open_calls = dependencies.open_calls,
           .key_limiter = dependencies.key_limiter,
           .usage = dependencies.usage,
           .spans = dependencies.spans,
           .check_open = [this] { return CheckOpen(); },
           .context_of = [this](const ClientCall& call, auto* key) { return ContextOf(call, key); },
           .make_request_id = [this] { return MakeRequestId(); }}) {}

absl::StatusOr<Caller> InferenceService::FindCaller(const ClientCall& call) const {
  absl::StatusOr<Caller> caller = dependencies_.auth->Authenticate(call.metadata("authorization"),
                                                                   call.metadata("x-tenant-id"));
  if (!caller.ok()) dependencies_.metrics->OnUnauthenticated();
  return caller;
}

absl::StatusOr<std::string> InferenceService::Authenticate(const ClientCall& call) const {
  ASSIGN_OR_RETURN(Caller caller, FindCaller(call));
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
  const absl::StatusOr<Caller> caller = FindCaller(call);
  return caller.ok() ? Models(caller->key.get()) : std::vector<v1::Model>();
}

std::vector<v1::Model> InferenceService::Models(const KeyGrant* key) const {
  std::vector<v1::Model> models = dependencies_.pool->Models();
  if (key != nullptr) {
    std::erase_if(models, [key](const v1::Model& model) { return !key->MayUse(model.name()); });
  }
  return models;
}

absl::StatusOr<CallContext> InferenceService::ContextOf(
    const ClientCall& call, std::shared_ptr<const KeyGrant>* key) const {
  CallContext result;
  ASSIGN_OR_RETURN(Caller caller, FindCaller(call));
  result.tenant = std::move(caller.tenant);
  *key = std::move(caller.key);
  result.request_id = call.metadata("x-request-id");
  if (!result.request_id.empty()) {
    RETURN_IF_ERROR(protocol::ValidateId("x-request-id", result.request_id));
  }
  for (const char* key : {"traceparent", "tracestate", "x-session-id"}) {
    // gRPC accepts values from a client that it aborts on when they are sent. Such a value is
    // dropped rather than the request rejected, as a trace must not cost a request.
    if (std::string value = call.metadata(key); protocol::IsForwardable(value)) {
      result.forwarded.emplace_back(key, std::move(value));
    }
  }
  result.correlation_id = call.correlation_id;
  result.deadline = call.deadline;
  return result;
}

std::string InferenceService::MakeRequestId() {
  absl::MutexLock lock(&mutex_);
  return absl::StrCat("req-", absl::Hex(absl::Uniform<uint64_t>(random_), absl::kZeroPad16),
                      absl::Hex(absl::Uniform<uint64_t>(random_), absl::kZeroPad16));
}

absl::Status InferenceService::CheckOpen() const {
  if (!draining_) return absl::OkStatus();
  {
    absl::MutexLock lock(&mutex_);
    rejected_.SignalAll();
  }
  return protocol::WithReason(absl::UnavailableError("the gateway is shutting down"),
                              protocol::kReasonContinue);
}

absl::StatusOr<RelayRequest> InferenceService::Admit(const ClientCall& call,
                                                     const common::CallTrace& trace,
                                                     v1::GenerateRequest request,
                                                     KeyLimiter::Claim* claim) {
  RETURN_IF_ERROR(CheckOpen());
  RelayRequest result;
  std::shared_ptr<const KeyGrant> key;
  ASSIGN_OR_RETURN(result.context, ContextOf(call, &key));
  CarryTrace(trace, &result.context);
  RETURN_IF_ERROR(protocol::ValidateGenerate(request));
  RETURN_IF_ERROR(BindModel(key.get(), dependencies_.key_limiter, &request));
  // The order of precedence is the worker's.
  const v1::GenerateResponse& received = request.continuation().received();
  const std::string& received_id = received.accepted().request_id();
  if (!request.request_id().empty()) {
    result.context.request_id = request.request_id();
  } else if (!received_id.empty()) {
    RETURN_IF_ERROR(protocol::ValidateId("continuation.received.accepted.request_id", received_id));
    result.context.request_id = received_id;
  } else if (result.context.request_id.empty()) {
    result.context.request_id = MakeRequestId();
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
  ASSIGN_OR_RETURN(*claim, dependencies_.key_limiter->Take(std::move(key), result.prompt_tokens,
                                                           asked.is_continuation));
  absl::StatusOr<Admission::Ticket> ticket = dependencies_.admission->Admit(asked);
  // The workers matter only where the forecast alone rejects the request.
  if (protocol::ReasonOf(ticket.status()) == protocol::kReasonOverloaded &&
      asked.time_left < absl::InfiniteDuration() &&
      dependencies_.relay.router->HasFree(
          {.model = request.model(), .prompt_tokens = result.prompt_tokens})) {
    asked.has_free_worker = true;
    ticket = dependencies_.admission->Admit(asked);
  }
  if (ticket.ok() && call.identity.has_value() && !call.identity->body.empty()) {
    const absl::Status bound =
        recent_keys_.Bind(result.context.tenant, call.identity->request_id, *call.identity);
    if (!bound.ok()) ticket = bound;
  }
  if (!ticket.ok()) claim->Refund();
  ASSIGN_OR_RETURN(result.ticket, std::move(ticket));
  result.request = std::move(request);
  result.context.tokens_had = call.tokens_had;
  if (call.identity.has_value()) {
    result.context.reference_time = call.identity->reference_time;
    result.context.body = call.identity->body;
    result.context.preferred_fingerprint = call.identity->preferred_fingerprint;
    // Even an empty continuation replaces a live generation.
    if (call.identity->takes_over) result.request.mutable_continuation();
  }
  absl::MutexLock lock(&mutex_);
  result.seed = absl::Uniform<uint64_t>(random_);
  result.context.call_id =
      absl::StrCat(absl::Hex(absl::Uniform<uint64_t>(random_), absl::kZeroPad16));
  return result;
}

void InferenceService::OnRejected(const std::string& model, const std::string& correlation_id,
                                  const absl::Status& status) {
  LogRejected(model, correlation_id, status, /*trace_id=*/"");
}

void InferenceService::LogRejected(const std::string& model, const std::string& correlation_id,
                                   const absl::Status& status, const std::string& trace_id) {
  dependencies_.metrics->OnRejected(model, status);
  LogRejectedRequest(model, correlation_id, status, trace_id);
}

absl::StatusOr<std::shared_ptr<StreamRelay>> InferenceService::Open(const ClientCall& call,
                                                                    v1::GenerateRequest request,
                                                                    RelayClient* client) {
  const std::string model = request.model();
  common::CallTrace trace(dependencies_.spans, call.metadata("traceparent"),
                          dependencies_.relay.clock);
  SetRequest(request, &trace);
  const std::string_view operation = OperationOf(request);
  KeyLimiter::Claim claim;
  absl::StatusOr<RelayRequest> admitted = Admit(call, trace, std::move(request), &claim);
  if (!admitted.ok()) {
    LogRejected(model, call.correlation_id, admitted.status(), trace.TraceId());
    EndSpan(operation, admitted.status(), &trace);
    return admitted.status();
  }
  RequestKey key(admitted->context.tenant, admitted->context.request_id);
  const bool is_continuation = admitted->request.has_continuation();
  auto* const stream =
      new OpenStream(this, client, operation, std::move(trace), std::move(claim),
                     {.call = admitted->context.call_id, .is_again = is_continuation},
                     call.identity.has_value() ? call.identity->request_id : "");
  auto relay = std::make_shared<StreamRelay>(dependencies_.relay, *std::move(admitted), stream);
  stream->set_relay(relay.get());
  const absl::Status entered = Enter(relay, std::move(key), is_continuation);
  if (entered.ok()) return relay;
  EndSpan(operation, entered, stream->trace());
  LogRejected(model, call.correlation_id, entered, stream->trace()->TraceId());
  delete stream;
  return entered;
}

absl::Status InferenceService::Enter(const std::shared_ptr<StreamRelay>& relay, RequestKey key,
                                     bool is_continuation) {
  std::shared_ptr<StreamRelay> replaced;
  {
    absl::MutexLock lock(&mutex_);
    // The request was admitted before the drain began, but too late for EndStreams to end it.
    RETURN_IF_ERROR(ended_);
    const StreamRelay*& live = live_[key];
    if (live != nullptr) {
      if (!is_continuation) return absl::AlreadyExistsError("a request of this request_id is live");
      // Null if it ends at this moment.
      replaced = open_[live].relay.lock();
    }
    live = relay.get();
    open_.emplace(relay.get(), OpenRelay{relay, std::move(key)});
  }
  if (replaced != nullptr) relay->Replace(*replaced);
  return absl::OkStatus();
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

void InferenceService::OnStreamEnd(const StreamRelay* relay, const absl::Status& status,
                                   const RelayReport& report, const std::string& trace_id,
                                   KeyLimiter::Claim& claim, const UsageRecord& usage,
                                   const std::string& identity) {
  claim.Settle(report.prompt_tokens + report.completion_tokens);
  dependencies_.metrics->OnRequestEnd({.model = report.model, .pool = report.pool}, status,
                                      report.duration);
  UsageRecord record = usage;
  CompleteRecord(report, &record);
  dependencies_.metrics->OnTenantTokens(record.tenant, {.prompt = record.prompt_tokens,
                                                        .completion = record.delivered_tokens,
                                                        .generated = record.generated_tokens,
                                                        .cached = record.cached_tokens,
                                                        .reasoning = record.reasoning_tokens});
  LogRequest(report, status,
             {.trace_id = trace_id,
              .key = claim.key() == nullptr ? "" : claim.key()->id(),
              .pool = dependencies_.metrics->PoolName(report.pool)});
  if (dependencies_.usage != nullptr) {
    record.key = claim.key() == nullptr ? "" : claim.key()->id();
    dependencies_.usage->Write(record, status);
  }
  recent_keys_.OnAnswered(report.tenant, identity.empty() ? report.request_id : identity,
                          report.fingerprint);
  absl::MutexLock lock(&mutex_);
  const auto open = open_.find(relay);
  if (open == open_.end()) return;
  const auto live = live_.find(open->second.key);
  if (live != live_.end() && live->second == relay) live_.erase(live);
  open_.erase(open);
}

std::vector<std::shared_ptr<StreamRelay>> InferenceService::OpenRelays() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<StreamRelay>> relays;
  for (const auto& [key, open] : open_) {
    if (auto relay = open.relay.lock()) relays.push_back(std::move(relay));
  }
  return relays;
}

void InferenceService::EndStreams(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    ended_ = status;
  }
  for (const auto& relay : OpenRelays()) relay->End(status);
  embeds_.EndAll(status);
}

void InferenceService::GiveUpStreams() {
  for (const auto& relay : OpenRelays()) relay->GiveUp();
}

void InferenceService::WaitForQuiet(absl::Duration quiet, absl::Duration longest) const {
  const absl::Duration end = dependencies_.relay.clock->Elapsed() + longest;
  absl::MutexLock lock(&mutex_);
  while (dependencies_.relay.clock->Elapsed() < end) {
    if (rejected_.WaitWithTimeout(&mutex_, quiet)) return;
  }
}

int64_t InferenceService::num_streams() const {
  const int64_t embeds = embeds_.num_calls();
  absl::MutexLock lock(&mutex_);
  return static_cast<int64_t>(open_.size()) + embeds;
}

template <typename Request, typename Response, typename Method>
grpc::ServerUnaryReactor* InferenceService::Forward(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer& bytes,
                                                    grpc::ByteBuffer* response, Method method) {
  if (const absl::Status open = CheckOpen(); !open.ok()) return common::EndUnary(context, open);
  std::shared_ptr<const KeyGrant> key;
  absl::StatusOr<CallContext> call_context = ContextOf(CallOf(*context, bytes), &key);
  if (!call_context.ok()) return common::EndUnary(context, call_context.status());
  const absl::StatusOr<int64_t> memory = common::MemoryOf(bytes, *Request::descriptor());
  if (!memory.ok()) return common::EndUnary(context, memory.status());
  absl::StatusOr<Admission::Ticket> ticket =
      dependencies_.forwarded->Admit({.bytes = *memory, .tenant = call_context->tenant});
  if (!ticket.ok()) return common::EndUnary(context, ticket.status());
  absl::StatusOr<Request> request = common::ParseMessage<Request>(bytes);
  if (!request.ok()) return common::EndUnary(context, request.status());
  if (const absl::Status model = BindModel(key.get(), dependencies_.key_limiter, &*request);
      !model.ok()) {
    return common::EndUnary(context, model);
  }
  if (call_context->request_id.empty()) call_context->request_id = MakeRequestId();
  using Call = ForwardedCall<Request, Response, Method>;
  auto* const reactor = new ForwardedReactor<Call>(dependencies_.open_calls);
  const auto call = std::make_shared<Call>(
      dependencies_.open_calls, dependencies_.relay.router, dependencies_.pool, *std::move(request),
      *std::move(call_context), *std::move(ticket), method,
      [reactor, response](const grpc::Status& status, const Response& answer) {
        if (status.ok()) common::SerializeMessage(answer, response);
        reactor->Finish(status);
      });
  reactor->Attach(call);
  call->TryNext();
  return reactor;
}

template <typename Request, typename Response, typename Method>
TextService::Cancel InferenceService::Ask(const ClientCall& call, Request request,
                                          Done<Response> done, Method method) {
  const auto admit = [&]() -> absl::StatusOr<std::pair<CallContext, Admission::Ticket>> {
    RETURN_IF_ERROR(CheckOpen());
    std::shared_ptr<const KeyGrant> key;
    ASSIGN_OR_RETURN(CallContext context, ContextOf(call, &key));
    RETURN_IF_ERROR(BindModel(key.get(), dependencies_.key_limiter, &request));
    ASSIGN_OR_RETURN(
        Admission::Ticket ticket,
        dependencies_.forwarded->Admit({.bytes = MemoryOf(request), .tenant = context.tenant}));
    context.request_id = MakeRequestId();
    return std::pair(std::move(context), std::move(ticket));
  };
  auto admitted = admit();
  if (!admitted.ok()) {
    done(admitted.status());
    return [] {};
  }
  using Call = ForwardedCall<Request, Response, Method>;
  const auto forwarded = std::make_shared<Call>(
      dependencies_.open_calls, dependencies_.relay.router, dependencies_.pool, std::move(request),
      std::move(admitted->first), std::move(admitted->second), method,
      [done = std::move(done)](const grpc::Status& status, Response answer) {
        if (status.ok()) {
          done(std::move(answer));
        } else {
          done(common::FromGrpcStatus(status));
        }
      });
  forwarded->TryNext();
  return [forwarded] { forwarded->Cancel(); };
}

TextService::Cancel InferenceService::AskTokenize(const ClientCall& call,
                                                  v1::TokenizeRequest request,
                                                  Done<v1::TokenizeResponse> done) {
  return Ask<v1::TokenizeRequest, v1::TokenizeResponse>(call, std::move(request), std::move(done),
                                                        kTokenize);
}

TextService::Cancel InferenceService::AskDetokenize(const ClientCall& call,
                                                    v1::DetokenizeRequest request,
                                                    Done<v1::DetokenizeResponse> done) {
  return Ask<v1::DetokenizeRequest, v1::DetokenizeResponse>(call, std::move(request),
                                                            std::move(done), kDetokenize);
}

TextService::Cancel InferenceService::AskGetTokenizer(const ClientCall& call,
                                                      v1::GetTokenizerRequest request,
                                                      Done<v1::GetTokenizerResponse> done) {
  return Ask<v1::GetTokenizerRequest, v1::GetTokenizerResponse>(call, std::move(request),
                                                                std::move(done), kGetTokenizer);
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* bytes,
                                                     grpc::ByteBuffer* response) {
  return Forward<v1::TokenizeRequest, v1::TokenizeResponse>(context, *bytes, response, kTokenize);
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* bytes,
                                                       grpc::ByteBuffer* response) {
  return Forward<v1::DetokenizeRequest, v1::DetokenizeResponse>(context, *bytes, response,
                                                                kDetokenize);
}

grpc::ServerUnaryReactor* InferenceService::GetTokenizer(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* bytes,
                                                         grpc::ByteBuffer* response) {
  return Forward<v1::GetTokenizerRequest, v1::GetTokenizerResponse>(context, *bytes, response,
                                                                    kGetTokenizer);
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
  if (const absl::Status open = CheckOpen(); !open.ok()) return common::EndUnary(context, open);
  const absl::StatusOr<Caller> caller = FindCaller(CallOf(*context, *bytes));
  if (!caller.ok()) return common::EndUnary(context, caller.status());
  v1::ListModelsResponse list;
  for (v1::Model& model : Models(caller->key.get())) *list.add_models() = std::move(model);
  common::SerializeMessage(list, response);
  return common::EndUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* InferenceService::GetModel(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* bytes,
                                                     grpc::ByteBuffer* response) {
  if (const absl::Status open = CheckOpen(); !open.ok()) return common::EndUnary(context, open);
  const absl::StatusOr<Caller> caller = FindCaller(CallOf(*context, *bytes));
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
