// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/grpc/embed_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/common/grpc/grpc_status.h"
#include "services/common/grpc/message_bytes.h"
#include "services/common/log.h"
#include "services/protocol/error.h"
#include "services/protocol/status_name.h"
#include "services/worker/server/grpc/call_cutter.h"
#include "services/worker/server/grpc/wire.h"
#include "services/worker/server/session/validate.h"

namespace continuo::server {

const EmbedForm kOwnEmbedForm = {
    .parse = [](const grpc::ByteBuffer& bytes,
                v1::EmbedRequest* request) { return ParseRequest(bytes, request); },
    .serialize = [](const v1::EmbedResponse& response,
                    grpc::ByteBuffer* bytes) { common::SerializeMessage(response, bytes); },
    .explain = [](const absl::Status& status) { return status; }};

EmbedCall::EmbedCall(grpc::CallbackServerContext* context, const grpc::ByteBuffer& request,
                     grpc::ByteBuffer* response, std::atomic<engine::RequestId>* next_id,
                     const GenerateCall::Dependencies& dependencies, const EmbedForm& form)
    : worker_(dependencies),
      context_(context),
      response_(response),
      form_(form),
      waiter_(next_id->fetch_add(1, std::memory_order_relaxed)),
      next_id_(next_id),
      info_(ReadCallInfo(*context, dependencies.peers)),
      start_(dependencies.clock->Elapsed()),
      trace_(dependencies.spans, TraceparentOf(*context), dependencies.clock),
      bytes_(request),
      cancelled_session_(std::make_shared<SessionPlace>()),
      control_(std::make_shared<RequestControl>(
          RequestControl::Hooks{.cancel =
                                    [place = cancelled_session_, serving = dependencies.serving,
                                     waiter = waiter_](const absl::Status& why) {
                                      serving->get()->adapters->GiveUp(waiter, why);
                                      if (const auto session = place->Get()) session->Cancel(why);
                                    },
                                .cut = [cutter = std::make_shared<CallCutter>(*context)](
                                           const absl::Status& why) { cutter->Cut(why); }})) {
  worker_.open_calls->Add(control_);
  // The bytes of a stranger take no part of the pool.
  if (!info_.ok()) {
    End(info_.status());
    return;
  }
  if (worker_.text_pool->waiting_weight() > GenerateCall::kMaxWaitingPromptBytes) {
    End(protocol::OverloadedError(absl::StrCat("over ", GenerateCall::kMaxWaitingPromptBytes,
                                               " bytes of prompts wait to be encoded")));
    return;
  }
  worker_.text_pool->Post([this] { Run(); }, bytes_.Length());
}

void EmbedCall::Run() {
  absl::Status status = Start();
  if (!status.ok()) End(std::move(status));
}

absl::Status EmbedCall::Start() {
  RETURN_IF_ERROR(worker_.lifecycle->CheckServing());
  if (const auto why = control_->reason(); why.has_value()) return *why;
  info_->now = worker_.clock->Now();
  info_->random = [random = worker_.random] { return random->Next(); };
  if (info_->deadline <= info_->now) {
    return absl::DeadlineExceededError("the deadline has passed");
  }
  const auto request = std::make_shared<v1::EmbedRequest>();
  RETURN_IF_ERROR(form_.parse(std::exchange(bytes_, {}), request.get()));
  // The call may be gone as soon as it waits.
  const std::shared_ptr<RequestControl> control = control_;
  const Serving& serving = *worker_.serving->get();
  // As GenerateCall has it.
  const auto before_wait = [&]() -> absl::Status {
    RETURN_IF_ERROR(ValidateEmbed(*request, *serving.Find(request->model())));
    ASSIGN_OR_RETURN(info_->request_id, ChooseRequestId(*request, *info_));
    return Register(info_->request_id);
  };
  ASSIGN_OR_RETURN(
      std::shared_ptr<const ServedModel> model,
      serving.Acquire(request->model(), waiter_, request->ByteSizeLong(), before_wait,
                      [this, request](absl::StatusOr<ServedAdapters::Adapter> adapter) {
                        worker_.text_pool->Post([this, request, adapter = std::move(adapter)] {
                          absl::Status status = adapter.status();
                          if (status.ok()) status = StartWith(*request, *adapter);
                          if (!status.ok()) End(std::move(status));
                        });
                      }));
  if (model != nullptr) return StartWith(*request, std::move(model));
  control->Submitted();
  return absl::OkStatus();
}

absl::Status EmbedCall::Register(const std::string& label) {
  // A gateway that has lost sight of this worker asks again while the first call still runs here.
  const ArrivalKind kind = info_->is_migration ? ArrivalKind::kMigration : ArrivalKind::kNew;
  RETURN_IF_ERROR(worker_.registry->Add(info_->tenant, label, kind, control_,
                                        {.call_id = info_->call_id, .body = info_->body}));
  label_ = label;
  return absl::OkStatus();
}

absl::Status EmbedCall::StartWith(const v1::EmbedRequest& request,
                                  std::shared_ptr<const ServedModel> model) {
  if (const auto why = control_->reason(); why.has_value()) return *why;
  const Serving& serving = *worker_.serving->get();
  model_ = std::move(model);
  ASSIGN_OR_RETURN(EmbedWork work, PrepareEmbedding(request, *info_, *model_, *worker_.salt_key));
  engine::RequestId id = next_id_->fetch_add(work.requests.size(), std::memory_order_relaxed);
  for (engine::Request& r : work.requests) r.id = id++;
  if (label_.empty()) RETURN_IF_ERROR(Register(work.request_id));

  engine::Engine* const engine = serving.engine;
  // The call may be gone as soon as the engine has the inputs.
  const std::shared_ptr<EmbedSession> session = EmbedSession::Create(
      std::move(work),
      {.cancel = [engine](engine::RequestId input,
                          absl::Status why) { engine->Cancel(input, std::move(why)); },
       .finish = [this](absl::StatusOr<v1::EmbedResponse> response) { End(std::move(response)); }},
      worker_.delivery_pool, model_);
  session_ = session;
  cancelled_session_->Set(session);
  const std::shared_ptr<RequestControl> control = control_;
  const absl::Status submitted = engine->SubmitAll(session->TakeRequests());
  if (!submitted.ok()) return RejectionStatus(submitted, "inputs");
  control->Submitted();
  return absl::OkStatus();
}

void EmbedCall::OnCancel() {
  const bool late = info_.ok() && worker_.clock->Now() >= info_->deadline;
  control_->End(late ? absl::DeadlineExceededError("the deadline has passed")
                     : absl::CancelledError("the client cancelled"));
}

void EmbedCall::OnDone() {
  worker_.open_calls->Remove(control_.get());
  delete this;
}

void EmbedCall::LogEnd(const absl::Status& status) {
  const EmbedReport report = session_ == nullptr ? EmbedReport() : session_->report();
  const std::string tenant = info_.ok() ? info_->tenant : "";
  common::Log(common::LogSeverity::kInfo, "embed",
              {{"request_id", label_},
               {"trace_id", trace_.TraceId()},
               {"tenant", tenant},
               {"code", protocol::StatusName(status.code())},
               {"inputs", report.inputs},
               {"prompt_tokens", report.prompt_tokens},
               {"cached_prompt_tokens", report.cached_prompt_tokens},
               {"preemptions", report.preemptions},
               {"queue", report.queue},
               {"seconds", worker_.clock->Elapsed() - start_}});
  if (!trace_.recorded()) return;
  trace_.Set("gen_ai.request.model",
             model_ == nullptr ? worker_.identity->model_name : model_->name);
  trace_.Set("gen_ai.usage.input_tokens", report.prompt_tokens);
  trace_.Set("rpc.grpc.status_code", int64_t{status.raw_code()});
  trace_.Set("continuo.request_id", label_);
  trace_.Set("continuo.tenant", tenant);
  trace_.Set("continuo.worker", worker_.identity->worker);
  trace_.Set("continuo.cached_prompt_tokens", report.cached_prompt_tokens);
  trace_.Set("continuo.preemptions", int64_t{report.preemptions});
  trace_.Set("continuo.queue_seconds", report.queue);
  trace_.End("worker.embed", status);
}

void EmbedCall::End(absl::StatusOr<v1::EmbedResponse> response) {
  absl::Status status = response.status();
  // Inputs that were given up end as the call was told to.
  if (absl::IsCancelled(status)) status = control_->reason().value_or(status);
  if (!label_.empty()) worker_.registry->Remove(info_->tenant, label_, control_.get());
  worker_.counters->Count(status.code());
  LogEnd(status);
  AddLoadTrailer(*worker_.load_board, worker_.peers, context_);
  if (status.ok()) {
    response->set_fingerprint(model_->fingerprint);
    form_.serialize(*response, response_);
  }
  Finish(common::ToGrpcStatus(form_.explain(status)));
}

}  // namespace continuo::server
