// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/grpc/generate_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/common/grpc/grpc_status.h"
#include "services/common/grpc/message_bytes.h"
#include "services/common/log.h"
#include "services/protocol/error.h"
#include "services/protocol/status_name.h"
#include "services/worker/server/grpc/call_metadata.h"
#include "services/worker/server/grpc/wire.h"
#include "services/worker/server/load/orca_report.h"
#include "services/worker/server/session/constrain.h"
#include "services/worker/server/session/validate.h"

namespace continuo::server {
namespace {

// Requests of up to this many bytes are parsed at once, on gRPC's own thread.
constexpr size_t kShortRequestBytes = 4096;

}  // namespace

absl::Status RejectionStatus(const absl::Status& status, std::string_view field) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return protocol::OverloadedError(std::string(status.message()));
    case absl::StatusCode::kUnavailable:
      return DrainingError();
    case absl::StatusCode::kInvalidArgument:  // never fits the KV cache
      return protocol::FieldError(field, std::string(status.message()));
    default:
      return status;
  }
}

absl::Status OwnGenerateForm::Parse(grpc::ByteBuffer bytes, v1::GenerateRequest* request) {
  return ParseRequest(bytes, request);
}

std::vector<grpc::ByteBuffer> OwnGenerateForm::Serialize(const v1::GenerateResponse& response) {
  std::vector<grpc::ByteBuffer> messages(1);
  common::SerializeMessage(response, messages.data());
  return messages;
}

void AddLoadTrailer(const LoadBoard& load, const PeerPolicy& peers,
                    grpc::CallbackServerContext* context) {
  if (!MayReadLoad(*context, peers)) return;
  context->AddTrailingMetadata(kOrcaTrailer, MakeOrcaReport(load.Read()).SerializeAsString());
}

GenerateCall::GenerateCall(grpc::CallbackServerContext* context, const grpc::ByteBuffer& request,
                           engine::RequestId id, const Dependencies& dependencies,
                           std::unique_ptr<GenerateForm> form)
    : worker_(dependencies),
      context_(context),
      info_(ReadCallInfo(*context, dependencies.peers)),
      start_(dependencies.clock->Elapsed()),
      trace_(dependencies.spans, TraceparentOf(*context), dependencies.clock),
      bytes_(request),
      form_(std::move(form)),
      id_(id),
      cutter_(std::make_shared<CallCutter>(*context)),
      // Cancel is called once the engine has the request, so the slot is filled then.
      control_(std::make_shared<RequestControl>(RequestControl::Hooks{
          .cancel =
              [serving = dependencies.serving, id](absl::Status why) {
                // It waits for its adapter, or the engine has it.
                serving->get()->adapters->GiveUp(id, why);
                serving->get()->engine->Cancel(id, std::move(why));
              },
          .cut = [cutter = cutter_](const absl::Status& why) { cutter->Cut(why); }})) {
  worker_.open_calls->Add(control_);
  const size_t size = bytes_.Length();
  // The bytes of a stranger take no part of the pool.
  if (size <= kShortRequestBytes || !info_.ok()) {
    Run();
    return;
  }
  const bool is_migration = info_.ok() && info_->is_migration;
  if (!is_migration && worker_.text_pool->waiting_weight() > kMaxWaitingPromptBytes) {
    Finish(protocol::OverloadedError(
        absl::StrCat("over ", kMaxWaitingPromptBytes, " bytes of prompts wait to be encoded")));
    return;
  }
  worker_.text_pool->Post([this] { Run(); }, size);
}

void GenerateCall::Run() {
  absl::Status status = Start();
  if (!status.ok()) Finish(std::move(status));
}

absl::Status GenerateCall::Start() {
  RETURN_IF_ERROR(worker_.lifecycle->CheckServing());
  RETURN_IF_ERROR(info_.status());
  if (const auto why = control_->reason(); why.has_value()) return *why;
  info_->now = worker_.clock->Now();
  info_->random = [random = worker_.random] { return random->Next(); };
  if (info_->deadline <= info_->now) {
    return absl::DeadlineExceededError("the deadline has passed");
  }

  const size_t size = bytes_.Length();
  const auto request = std::make_shared<v1::GenerateRequest>();
  RETURN_IF_ERROR(form_->Parse(std::exchange(bytes_, {}), request.get()));
  if (!NeedsGrammar(*request)) return StartParsed(request);
  // Requests without a grammar do not wait behind a compilation.
  if (!info_->is_migration && worker_.grammar_pool->waiting_weight() > kMaxWaitingPromptBytes) {
    return protocol::OverloadedError(
        absl::StrCat("over ", kMaxWaitingPromptBytes, " bytes of requests wait for a grammar"));
  }
  worker_.grammar_pool->Post(
      [this, request] {
        absl::Status status = StartParsed(request);
        if (!status.ok()) Finish(std::move(status));
      },
      size);
  return absl::OkStatus();
}

absl::Status GenerateCall::StartParsed(const std::shared_ptr<const v1::GenerateRequest>& request) {
  const Serving& serving = *worker_.serving->get();
  const std::string& named = request->model();
  const std::string& name =
      named.empty() ? request->continuation().received().accepted().model() : named;
  // The call may be gone as soon as it waits.
  const std::shared_ptr<RequestControl> control = control_;
  // Migrations are never shed.
  const size_t bytes = info_->is_migration ? 0 : request->ByteSizeLong();
  // A request that waits is live: it is known by its id, and what is wrong with it is told first.
  const auto before_wait = [&]() -> absl::Status {
    RETURN_IF_ERROR(ValidateGenerate(*request, *serving.Find(name)));
    ASSIGN_OR_RETURN(info_->request_id, ChooseRequestId(*request, *info_));
    return Register(*request, info_->request_id);
  };
  ASSIGN_OR_RETURN(
      std::shared_ptr<const ServedModel> model,
      serving.Acquire(name, id_, bytes, before_wait,
                      [this, request](absl::StatusOr<ServedAdapters::Adapter> adapter) {
                        WorkPool* const pool =
                            NeedsGrammar(*request) ? worker_.grammar_pool : worker_.text_pool;
                        pool->Post([this, request, adapter = std::move(adapter)] {
                          absl::Status status = adapter.status();
                          if (status.ok()) status = StartWith(*request, *adapter);
                          if (!status.ok()) Finish(std::move(status));
                        });
                      }));
  if (model != nullptr) return StartWith(*request, std::move(model));
  control->Submitted();
  return absl::OkStatus();
}

absl::Status GenerateCall::Register(const v1::GenerateRequest& request, const std::string& label) {
  const ArrivalKind kind = !request.has_continuation() ? ArrivalKind::kNew
                           : info_->is_migration       ? ArrivalKind::kMigration
                                                       : ArrivalKind::kClientContinuation;
  RETURN_IF_ERROR(worker_.registry->Add(info_->tenant, label, kind, control_,
                                        {.call_id = info_->call_id, .body = info_->body}));
  label_ = label;
  return absl::OkStatus();
}

absl::Status GenerateCall::StartWith(const v1::GenerateRequest& request,
                                     std::shared_ptr<const ServedModel> model) {
  if (const auto why = control_->reason(); why.has_value()) return *why;
  const Serving& serving = *worker_.serving->get();
  model_ = std::move(model);
  ASSIGN_OR_RETURN(Generation generation,
                   PrepareGeneration(request, *info_, *model_, *worker_.salt_key));
  if (label_.empty()) RETURN_IF_ERROR(Register(request, generation.accepted.request_id()));
  generation.request.id = id_;
  engine::Engine* const engine = serving.engine;
  SessionHooks hooks;
  hooks.finish_sequence = [engine, id = id_](int index) { engine->FinishSequence(id, index); };
  hooks.cancel = [engine, id = id_](absl::Status why) { engine->Cancel(id, std::move(why)); };
  hooks.cut = [cutter = cutter_](const absl::Status& why) { cutter->Cut(why); };
  session_ = GenerateSession::Create(generation, this, std::move(hooks), worker_.delivery_pool,
                                     model_, worker_.clock);
  // The call may be gone as soon as the session has something to finish.
  const std::shared_ptr<GenerateSession> session = session_;
  const std::shared_ptr<RequestControl> control = control_;
  if (!session->needs_engine()) {
    session->AnswerFromReceived();
    return absl::OkStatus();
  }
  const absl::Status submitted =
      engine->Submit(std::move(generation.request),
                     [session](engine::RequestEvent event) { session->OnEvent(std::move(event)); });
  if (!submitted.ok()) return RejectionStatus(submitted, "stopping.max_tokens");
  control->Submitted();
  return absl::OkStatus();
}

void GenerateCall::SendAccepted() {
  context_->AddInitialMetadata("x-continuo-accepted", "1");
  StartSendInitialMetadata();
}

void GenerateCall::Queue(const v1::GenerateResponse& response) {
  for (grpc::ByteBuffer& message : form_->Serialize(response)) {
    outgoing_.push_back(std::move(message));
  }
}

void GenerateCall::Write(v1::GenerateResponse response) {
  Queue(response);
  if (outgoing_.empty()) {
    worker_.delivery_pool->Post([this] { Written(true); });
  } else {
    WriteNext();
  }
}

void GenerateCall::WriteLast(v1::GenerateResponse response, absl::Status status) {
  Queue(response);
  end_ = Conclude(std::move(status));
  if (outgoing_.empty()) {
    Reactor::Finish(*end_);
  } else {
    WriteNext();
  }
}

void GenerateCall::WriteNext() {
  if (end_.has_value() && outgoing_.size() == 1) {
    StartWriteAndFinish(&outgoing_.front(), grpc::WriteOptions(), *end_);
  } else {
    StartWrite(&outgoing_.front());
  }
}

void GenerateCall::OnWriteDone(bool ok) {
  outgoing_.pop_front();
  if (ok && !outgoing_.empty()) {
    WriteNext();
    return;
  }
  outgoing_.clear();
  if (end_.has_value()) {
    Reactor::Finish(*end_);
  } else {
    Written(ok);
  }
}

void GenerateCall::Written(bool ok) {
  // The call is also held here, since finishing may delete it before the session has returned.
  const std::shared_ptr<GenerateSession> session = session_;
  session->WriteDone(ok);
}

void GenerateCall::OnCancel() {
  const bool late = info_.ok() && worker_.clock->Now() >= info_->deadline;
  control_->End(late ? absl::DeadlineExceededError("the deadline has passed")
                     : absl::CancelledError("the client cancelled"));
}

void GenerateCall::OnDone() {
  worker_.open_calls->Remove(control_.get());
  delete this;
}

void GenerateCall::LogEnd(const absl::Status& status) {
  const SessionReport report = session_ == nullptr ? SessionReport() : session_->report();
  const std::string tenant = info_.ok() ? info_->tenant : "";
  common::Log(common::LogSeverity::kInfo, "generate",
              {{"request_id", label_},
               {"trace_id", trace_.TraceId()},
               {"tenant", tenant},
               {"code", protocol::StatusName(status.code())},
               {"prompt_tokens", report.prompt_tokens},
               {"cached_prompt_tokens", report.cached_prompt_tokens},
               {"completion_tokens", report.completion_tokens},
               {"preemptions", report.timings.num_preemptions},
               {"queue", report.timings.queue},
               {"prefill", report.timings.prefill},
               {"decode", report.decode()},
               {"seconds", worker_.clock->Elapsed() - start_}});
  if (!trace_.recorded()) return;
  trace_.Set("gen_ai.request.model",
             model_ == nullptr ? worker_.identity->model_name : model_->name);
  trace_.Set("gen_ai.usage.input_tokens", int64_t{report.prompt_tokens});
  trace_.Set("gen_ai.usage.output_tokens", int64_t{report.completion_tokens});
  trace_.Set("rpc.grpc.status_code", int64_t{status.raw_code()});
  trace_.Set("continuo.request_id", label_);
  trace_.Set("continuo.tenant", tenant);
  trace_.Set("continuo.worker", worker_.identity->worker);
  trace_.Set("continuo.cached_prompt_tokens", int64_t{report.cached_prompt_tokens});
  trace_.Set("continuo.preemptions", int64_t{report.timings.num_preemptions});
  trace_.Set("continuo.queue_seconds", report.timings.queue);
  trace_.Set("continuo.prefill_seconds", report.timings.prefill);
  trace_.Set("continuo.decode_seconds", report.decode());
  trace_.End("worker.generate", status);
}

grpc::Status GenerateCall::Conclude(absl::Status status) {
  // A reader may be gone because the call was cut.
  if (absl::IsCancelled(status)) status = control_->reason().value_or(status);
  if (!label_.empty()) worker_.registry->Remove(info_->tenant, label_, control_.get());
  worker_.counters->Count(status.code());
  LogEnd(status);
  AddLoadTrailer(*worker_.load_board, worker_.peers, context_);
  return common::ToGrpcStatus(form_->Explain(status));
}

void GenerateCall::Finish(absl::Status status) { Reactor::Finish(Conclude(std::move(status))); }

}  // namespace continuo::server
