// SPDX-License-Identifier: Apache-2.0
#pragma once

// Converts statuses to the errors that OpenAI's clients know. Pure functions.

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/gateway/openai/json/request_json.h"

namespace continuo::gateway::openai {

// The HTTP status of a status:
//
//   INVALID_ARGUMENT, OUT_OF_RANGE, FAILED_PRECONDITION   400
//   UNAUTHENTICATED 401   PERMISSION_DENIED 403   NOT_FOUND 404
//   ALREADY_EXISTS, ABORTED 409   RESOURCE_EXHAUSTED 429   CANCELLED 499
//   UNIMPLEMENTED 501   UNAVAILABLE 503   DEADLINE_EXCEEDED 504   others 500
int HttpStatusOf(const absl::Status& status);

// The status under which an error of HTTP itself is logged and counted. A limit of all clients
// together has the reason OVERLOADED.
absl::Status StatusOf(int http_status, std::string_view message);

// The value of Retry-After, in whole seconds, at least 1: the hint of the status, else 1 if trying
// again may help; nullopt if it does not.
std::optional<int> RetryAfterOf(const absl::Status& status);

// {"error":{"message","type","param","code"}}. `param` is the client's name of the field that the
// status names. That the context is exceeded is told without it, in the words that client
// libraries look for. An internal failure gets a message that discloses nothing of the inside.
std::string ErrorJson(const ParamNames& names, const absl::Status& status);

// The message alone, with the client's name of the field in front.
std::string MessageOf(const ParamNames& names, const absl::Status& status);

// The same for an error of HTTP itself.
std::string ErrorJson(int http_status, std::string_view message, std::string_view code);

// The same error, of a field of another name. A status without a field stays as it is.
absl::Status WithField(const absl::Status& status, std::string_view field);

}  // namespace continuo::gateway::openai
