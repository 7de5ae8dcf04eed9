// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/grpc/call_intake.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"
#include "services/protocol/validate_request.h"

namespace continuo::gateway {

absl::Status CallIntake::CheckOpen() const {
  if (!draining_) return absl::OkStatus();
  {
    absl::MutexLock lock(&mutex_);
    rejected_.SignalAll();
  }
  return protocol::WithReason(absl::UnavailableError("the gateway is shutting down"),
                              protocol::kReasonContinue);
}

void CallIntake::WaitForQuiet(absl::Duration quiet, absl::Duration longest) const {
  const absl::Duration end = dependencies_.clock->Elapsed() + longest;
  absl::MutexLock lock(&mutex_);
  while (dependencies_.clock->Elapsed() < end) {
    if (rejected_.WaitWithTimeout(&mutex_, quiet)) return;
  }
}

absl::StatusOr<Caller> CallIntake::FindCaller(const ClientCall& call) const {
  absl::StatusOr<Caller> caller = dependencies_.auth->Authenticate(call.metadata("authorization"),
                                                                   call.metadata("x-tenant-id"));
  if (!caller.ok()) dependencies_.metrics->OnUnauthenticated();
  return caller;
}

absl::StatusOr<CallContext> CallIntake::ContextOf(const ClientCall& call,
                                                  std::shared_ptr<const KeyGrant>* key) const {
  CallContext result;
  ASSIGN_OR_RETURN(Caller caller, FindCaller(call));
  result.tenant = std::move(caller.tenant);
  *key = std::move(caller.key);
  result.request_id = call.metadata("x-request-id");
  if (!result.request_id.empty()) {
    RETURN_IF_ERROR(protocol::ValidateId("x-request-id", result.request_id));
  }
  for (const char* name : {"traceparent", "tracestate", "x-session-id"}) {
    // gRPC accepts values from a client that it aborts on when they are sent. Such a value is
    // dropped rather than the request rejected, as a trace must not cost a request.
    if (std::string value = call.metadata(name); protocol::IsForwardable(value)) {
      result.forwarded.emplace_back(name, std::move(value));
    }
  }
  result.correlation_id = call.correlation_id;
  result.deadline = call.deadline;
  return result;
}

absl::StatusOr<Admission::Ticket> CallIntake::Admit(Admission* admission, AdmissionRequest request,
                                                    std::shared_ptr<const KeyGrant> key,
                                                    KeyLimiter::Claim* claim) const {
  ASSIGN_OR_RETURN(*claim, dependencies_.key_limiter->Take(std::move(key), request.tokens,
                                                           request.is_continuation));
  absl::StatusOr<Admission::Ticket> ticket = admission->Admit(request);
  // The workers matter only where the forecast alone rejects the request.
  if (protocol::ReasonOf(ticket.status()) == protocol::kReasonOverloaded &&
      request.time_left < absl::InfiniteDuration() &&
      dependencies_.router->HasFree({.model = request.model, .prompt_tokens = request.tokens})) {
    request.has_free_worker = true;
    ticket = admission->Admit(request);
  }
  if (!ticket.ok()) claim->Refund();
  return ticket;
}

std::string CallIntake::MakeRequestId() {
  absl::MutexLock lock(&mutex_);
  return absl::StrCat("req-", absl::Hex(absl::Uniform<uint64_t>(random_), absl::kZeroPad16),
                      absl::Hex(absl::Uniform<uint64_t>(random_), absl::kZeroPad16));
}

std::string CallIntake::MakeCallId() {
  return absl::StrCat(absl::Hex(MakeSeed(), absl::kZeroPad16));
}

uint64_t CallIntake::MakeSeed() {
  absl::MutexLock lock(&mutex_);
  return absl::Uniform<uint64_t>(random_);
}

}  // namespace continuo::gateway
