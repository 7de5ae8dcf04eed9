// SPDX-License-Identifier: Apache-2.0
#include "services/protocol/error.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "services/base/utf8.h"
#include "services/protocol/limits.h"
#include "services/protocol/proto_time.h"

namespace continuo::protocol {
namespace {

template <typename Message>
std::string TypeUrl() {
  return absl::StrCat("type.googleapis.com/", Message::descriptor()->full_name());
}

template <typename Message>
void SetDetail(absl::Status& status, const Message& message) {
  status.SetPayload(TypeUrl<Message>(), absl::Cord(message.SerializeAsString()));
}

template <typename Message>
std::optional<Message> GetDetail(const absl::Status& status) {
  if (status.ok()) return std::nullopt;  // as the status of most requests
  const auto payload = status.GetPayload(TypeUrl<Message>());
  Message message;
  if (!payload.has_value() || !message.ParseFromString(std::string(*payload))) return std::nullopt;
  return message;
}

// The beginning of a message that carries a reason.
std::string ReasonPrefix() { return std::string(kErrorDomain) + "/"; }

}  // namespace

absl::Status WithReason(absl::Status status, std::string_view reason) {
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(reason));
  info.set_domain(std::string(kErrorDomain));
  SetDetail(status, info);
  return status;
}

absl::Status WithRetryInfo(absl::Status status, absl::Duration delay) {
  google::rpc::RetryInfo info;
  *info.mutable_retry_delay() = ToProto(std::clamp(delay, absl::ZeroDuration(), kMaxRetryDelay));
  SetDetail(status, info);
  return status;
}

absl::Status OverloadedError(std::string_view message) {
  return WithRetryInfo(
      WithReason(absl::ResourceExhaustedError(std::string(message)), kReasonOverloaded),
      absl::Seconds(1));
}

absl::Status KeyReusedError() {
  return WithReason(
      absl::AlreadyExistsError("the idempotency key stands for another request; a new request "
                               "needs a new key"),
      kReasonKeyReused);
}

absl::Status FieldError(std::string_view field, std::string_view message) {
  google::rpc::BadRequest bad;
  google::rpc::BadRequest::FieldViolation& violation = *bad.add_field_violations();
  violation.set_field(ToValidUtf8(field));
  violation.set_description(ToValidUtf8(message));
  absl::Status status =
      absl::InvalidArgumentError(violation.field() + ": " + violation.description());
  SetDetail(status, bad);
  return status;
}

std::string ReasonOf(const absl::Status& status) {
  const auto info = GetDetail<google::rpc::ErrorInfo>(status);
  return info.has_value() && info->domain() == kErrorDomain ? info->reason() : "";
}

std::string MessageWithReason(const absl::Status& status) {
  const std::string message(status.message());
  const std::string reason = ReasonOf(status);
  return reason.empty() ? message : ReasonPrefix() + reason + ": " + message;
}

absl::Status ReasonFromMessage(absl::Status status) {
  const std::string message(status.message());
  const std::string prefix = ReasonPrefix();
  const size_t end = message.find(": ");
  if (!message.starts_with(prefix) || end == std::string::npos) return status;
  return WithReason(absl::Status(status.code(), message.substr(end + 2)),
                    message.substr(prefix.size(), end - prefix.size()));
}

std::optional<absl::Duration> RetryDelayOf(const absl::Status& status) {
  const auto info = GetDetail<google::rpc::RetryInfo>(status);
  if (!info.has_value()) return std::nullopt;
  return std::max(absl::ZeroDuration(), FromProto(info->retry_delay()));
}

std::string FieldOf(const absl::Status& status) {
  const auto bad = GetDetail<google::rpc::BadRequest>(status);
  return bad.has_value() && bad->field_violations_size() > 0 ? bad->field_violations(0).field()
                                                             : "";
}

std::string LoggedMessage(const absl::Status& status) {
  const std::string field = FieldOf(status);
  if (!field.starts_with("constraint") && field != "conversation.tools") {
    return std::string(status.message());
  }
  return field + ": is refused";
}

}  // namespace continuo::protocol
