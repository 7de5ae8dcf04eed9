// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/grpc/embed_service.h"

#include <grpcpp/client_context.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/common/grpc/grpc_status.h"
#include "services/gateway/reports/request_span.h"
#include "services/gateway/requests/prompt_tokens.h"
#include "services/gateway/workers/grpc_worker_transport.h"
#include "services/protocol/validate_request.h"

namespace continuo::gateway {
namespace {

constexpr std::string_view kOperation = "embeddings";

void SetRequest(const v1::EmbedRequest& request, common::CallTrace* trace) {
  if (!trace->recorded()) return;
  trace->Set("gen_ai.operation.name", std::string(kOperation));
  trace->Set("gen_ai.provider.name", "continuo");
  if (!request.model().empty()) trace->Set("gen_ai.request.model", request.model());
  if (request.has_dimensions()) {
    trace->Set("gen_ai.embeddings.dimension.count", int64_t{request.dimensions()});
  }
}

}  // namespace

// One admitted call. Lives until it has ended and gRPC is done with all its calls to workers.
class EmbedService::Call : public std::enable_shared_from_this<Call> {
 public:
  Call(EmbedService* service, v1::EmbedRequest request, std::string call_id,
       common::CallTrace trace, KeyLimiter::Claim claim, TextService::Done<v1::EmbedResponse> done)
      : service_(service),
        open_(service->dependencies_.open_calls),
        request_(std::move(request)),
        call_id_(std::move(call_id)),
        trace_(std::move(trace)),
        claim_(std::move(claim)),
        done_(std::move(done)) {}

  // A StartCall of the relay.
  std::function<void()> Start(const Lease& lease, const CallContext& context, bool is_migration,
                              std::function<void(absl::Status)> done) {
    std::shared_ptr<WorkerChannel> channel = service_->dependencies_.pool->Find(lease.address());
    if (channel == nullptr) {
      done(absl::UnavailableError("the worker is gone"));
      return [] {};
    }
    const auto attempt = std::make_shared<Attempt>();
    {
      absl::MutexLock lock(&mutex_);
      attempt_ = attempt;
    }
    SetCallContext(context, is_migration, *channel, &attempt->context);
    // The channel lives as long as the call.
    v1::InferenceService::Stub* const stub = channel->inference.get();
    stub->async()->Embed(&attempt->context, &request_, &attempt->response,
                         [self = shared_from_this(), channel, attempt, done = std::move(done)](
                             const grpc::Status& status) { done(common::FromGrpcStatus(status)); });
    return [attempt] { attempt->context.TryCancel(); };
  }

  // The relay's end. With OK the last attempt has the answer.
  void Finish(const absl::Status& status, const RelayReport& report) {
    std::shared_ptr<Attempt> attempt;
    {
      absl::MutexLock lock(&mutex_);
      attempt = std::exchange(attempt_, nullptr);
    }
    if (status.ok()) {
      usage_ = attempt->response.usage();
      // Workers of earlier versions do not tell it.
      if (attempt->response.fingerprint().empty()) {
        attempt->response.set_fingerprint(report.fingerprint);
      }
    }
    service_->OnEnd(this, status, report);
    const TextService::Done<v1::EmbedResponse> done = std::move(done_);
    if (status.ok()) {
      done(std::move(attempt->response));
    } else {
      done(status);
    }
  }

 private:
  friend class EmbedService;
  // The call to one worker.
  struct Attempt {
    grpc::ClientContext context;
    v1::EmbedResponse response;
  };

  EmbedService* const service_;
  const OpenCalls::Call open_;
  const v1::EmbedRequest request_;
  const std::string call_id_;
  common::CallTrace trace_;
  KeyLimiter::Claim claim_;
  TextService::Done<v1::EmbedResponse> done_;
  std::optional<v1::Usage> usage_;  // that a worker told
  absl::Mutex mutex_;
  std::shared_ptr<Attempt> attempt_ ABSL_GUARDED_BY(mutex_);  // the last one
};

absl::StatusOr<UnaryWork> EmbedService::Admit(const ClientCall& call,
                                              const common::CallTrace& trace,
                                              v1::EmbedRequest* request, KeyLimiter::Claim* claim) {
  CallIntake* const intake = dependencies_.intake;
  RETURN_IF_ERROR(intake->CheckOpen());
  UnaryWork work;
  std::shared_ptr<const KeyGrant> key;
  ASSIGN_OR_RETURN(work.context, intake->ContextOf(call, &key));
  CarryTrace(trace, &work.context);
  RETURN_IF_ERROR(protocol::ValidateEmbed(*request));
  RETURN_IF_ERROR(intake->BindModel(key.get(), request));
  work.model = request->model();
  work.fingerprint = call.fingerprint;
  if (!request->request_id().empty()) work.context.request_id = request->request_id();
  if (work.context.request_id.empty()) work.context.request_id = intake->MakeRequestId();
  work.prompt_tokens = EstimatePromptTokens(*request);
  AdmissionRequest asked = {.bytes = call.num_bytes,
                            .tokens = work.prompt_tokens,
                            .tenant = work.context.tenant,
                            .model = request->model(),
                            .priority = request->priority(),
                            .max_tokens = 0,
                            .time_left = work.context.deadline - dependencies_.relay.clock->Now(),
                            .is_cold = dependencies_.relay.router->IsCold(request->model())};
  ASSIGN_OR_RETURN(work.ticket,
                   intake->Admit(dependencies_.admission, std::move(asked), std::move(key), claim));
  work.seed = intake->MakeSeed();
  work.context.call_id = intake->MakeCallId();
  return work;
}

TextService::Cancel EmbedService::Ask(const ClientCall& client_call, v1::EmbedRequest request,
                                      TextService::Done<v1::EmbedResponse> done) {
  const std::string model = request.model();
  common::CallTrace trace = dependencies_.reports->Begin(client_call.metadata("traceparent"));
  SetRequest(request, &trace);
  KeyLimiter::Claim claim;
  absl::StatusOr<UnaryWork> work = Admit(client_call, trace, &request, &claim);
  absl::Status rejected = work.status();
  if (rejected.ok()) {
    absl::MutexLock lock(&mutex_);
    rejected = ended_;
  }
  if (!rejected.ok()) {
    dependencies_.reports->OnRejected(model, client_call.correlation_id, rejected, kOperation,
                                      &trace);
    done(rejected);
    return [] {};
  }
  const auto call = std::make_shared<Call>(this, std::move(request), work->context.call_id,
                                           std::move(trace), std::move(claim), std::move(done));
  const auto relay = std::make_shared<UnaryRelay>(
      dependencies_.relay, *std::move(work),
      [call](const Lease& lease, const CallContext& context, bool is_migration,
             std::function<void(absl::Status)> ended) {
        return call->Start(lease, context, is_migration, std::move(ended));
      },
      [call](const absl::Status& status, const RelayReport& report) {
        call->Finish(status, report);
      });
  absl::Status ended;
  {
    absl::MutexLock lock(&mutex_);
    open_.emplace(call.get(), relay);
    ended = ended_;
  }
  // EndAll may have come since, and not have seen it.
  if (!ended.ok()) relay->End(ended);
  relay->Start();
  return [relay] { relay->End(absl::CancelledError("the client cancelled")); };
}

void EmbedService::OnEnd(Call* call, const absl::Status& status, const RelayReport& report) {
  const std::optional<v1::Usage>& usage = call->usage_;
  RelayReport told = report;
  if (usage.has_value()) told.prompt_tokens = usage->prompt_tokens();
  UsageRecord record = RecordOf(told);
  record.call = call->call_id_;
  if (call->claim_.key() != nullptr) record.key = call->claim_.key()->id();
  record.is_estimate = !usage.has_value() && told.prompt_tokens > 0;
  if (usage.has_value()) record.cached_tokens = usage->cached_prompt_tokens();
  call->claim_.Settle(told.prompt_tokens);
  dependencies_.reports->OnEnd(told, record, status, kOperation, &call->trace_);
  absl::MutexLock lock(&mutex_);
  open_.erase(call);
}

void EmbedService::EndAll(const absl::Status& status) {
  std::vector<std::shared_ptr<UnaryRelay>> relays;
  {
    absl::MutexLock lock(&mutex_);
    ended_ = status;
    for (const auto& [call, relay] : open_) {
      if (auto alive = relay.lock()) relays.push_back(std::move(alive));
    }
  }
  for (const auto& relay : relays) relay->End(status);
}

int64_t EmbedService::num_calls() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int64_t>(open_.size());
}

}  // namespace continuo::gateway
