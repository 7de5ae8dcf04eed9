// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/error_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kMaxRetryAfter = 3600;

std::string_view TypeOf(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    default:
      return http_status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string Dump(int http_status, std::string_view message, OrderedJson param, OrderedJson code) {
  OrderedJson error = {{"message", message},
                       {"type", TypeOf(http_status)},
                       {"param", std::move(param)},
                       {"code", std::move(code)}};
  return OrderedJson{{"error", std::move(error)}}.dump(-1, ' ', false,
                                                       OrderedJson::error_handler_t::replace);
}

OrderedJson CodeOf(const absl::Status& status) {
  const std::string reason = protocol::ReasonOf(status);
  if (reason == protocol::kReasonContextTooLong) return "context_length_exceeded";
  if (reason == protocol::kReasonRateLimited) return "rate_limit_exceeded";
  if (!reason.empty()) return absl::AsciiStrToLower(reason);
  if (absl::IsNotFound(status)) return "model_not_found";
  if (absl::IsUnauthenticated(status)) return "invalid_api_key";
  if (absl::IsDeadlineExceeded(status)) return "timeout";
  return nullptr;
}

}  // namespace

int HttpStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

absl::Status StatusOf(int http_status, std::string_view message) {
  switch (http_status) {
    case 404:
    case 405:
      return absl::UnimplementedError(std::string(message));
    case 408:
      return absl::DeadlineExceededError(std::string(message));
    case 503:
      return protocol::WithReason(absl::ResourceExhaustedError(std::string(message)),
                                  protocol::kReasonOverloaded);
    default:
      return absl::InvalidArgumentError(std::string(message));
  }
}

std::optional<int> RetryAfterOf(const absl::Status& status) {
  if (const std::optional<absl::Duration> delay = protocol::RetryDelayOf(status)) {
    const double seconds = std::ceil(absl::ToDoubleSeconds(*delay));
    return static_cast<int>(std::clamp(seconds, 1.0, double{kMaxRetryAfter}));
  }
  if (absl::IsResourceExhausted(status) || absl::IsUnavailable(status)) return 1;
  return std::nullopt;
}

std::string MessageOf(const ParamNames& names, const absl::Status& status) {
  std::string message(status.message());
  // A message without a reason may come from a library and disclose anything.
  if (HttpStatusOf(status) == 500 && protocol::ReasonOf(status).empty()) {
    return "the server had an error while it processed the request";
  }
  const std::string field = protocol::FieldOf(status), prefix = field + ": ";
  if (field.empty() || !message.starts_with(prefix)) return message;
  message.erase(0, prefix.size());
  if (names.max_completion_tokens && !names.as_written) {
    message = absl::StrReplaceAll(message, {{"max_tokens", "max_completion_tokens"}});
  }
  const bool is_of_context = protocol::ReasonOf(status) == protocol::kReasonContextTooLong;
  return is_of_context ? message : absl::StrCat(ParamOf(names, field), ": ", message);
}

std::string ErrorJson(const ParamNames& names, const absl::Status& status) {
  OrderedJson param;
  if (const std::string field = protocol::FieldOf(status); !field.empty()) {
    param = ParamOf(names, field);
  } else if (absl::IsNotFound(status)) {
    param = "model";
  }
  return Dump(HttpStatusOf(status), MessageOf(names, status), std::move(param), CodeOf(status));
}

absl::Status WithField(const absl::Status& status, std::string_view field) {
  const std::string prefix = protocol::FieldOf(status) + ": ";
  const std::string message(status.message());
  if (prefix == ": " || !message.starts_with(prefix)) return status;
  const absl::Status named = protocol::FieldError(field, message.substr(prefix.size()));
  absl::Status renamed(status.code(), named.message());
  for (const absl::Status* const source : {&status, &named}) {
    source->ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
      renamed.SetPayload(type, payload);
    });
  }
  return renamed;
}

std::string ErrorJson(int http_status, std::string_view message, std::string_view code) {
  return Dump(http_status, message, nullptr, code.empty() ? OrderedJson() : OrderedJson(code));
}

}  // namespace continuo::gateway::openai
