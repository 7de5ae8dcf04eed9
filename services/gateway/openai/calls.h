// SPDX-License-Identifier: Apache-2.0
#pragma once

// The APIs with a generation behind them, each of which has its own form of bodies, answers and
// errors. Pure functions.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/openai/answer/answer.h"
#include "services/gateway/openai/http/http_message.h"
#include "services/gateway/openai/json/request_json.h"
#include "services/gateway/openai/routes/routes.h"

namespace continuo::gateway::openai {

// Whose form errors have.
enum class ErrorStyle { kOpenAi, kAnthropic, kOpenInference };

// How the errors of a call are told.
struct ErrorForm {
  ErrorForm(RouteId route);  // NOLINT: a call that was not read

  RouteId route;
  ErrorStyle style;
  ParamNames names;
  std::string request_id;  // of Anthropic's form alone
};

// The body of an error of HTTP.
std::string ErrorBody(const ErrorForm& form, const absl::Status& status);

// The same for an error of HTTP itself. OpenAI's form has a code.
std::string ErrorBody(const ErrorForm& form, int http_status, std::string_view message,
                      std::string_view code);

// The headers of every answer that has the id under the name that Anthropic's clients look for.
HttpHeaders IdHeaders(const ErrorForm& form);

// The answer of HTTP that tells the error, and when to try again.
HttpResponse ErrorResponse(const ErrorForm& form, const absl::Status& status, HttpHeaders headers);

// The header that names the types of tools that were left out of a request; none if none was.
HttpHeaders SkippedToolsHeaders(const std::vector<std::string>& types);

// A call as its body has it.
struct HttpCall {
  bool stream = false;
  std::optional<bool> event_ids;  // of a stream's events, where the body says it
  int num_copies = 1;             // how often a request's size counts
  ParamNames names;
  std::vector<v1::GenerateRequest> requests;  // one for each prompt, at least one
  HttpHeaders headers;                        // of the answer
  // Called once. `id` is the generation's; `created` is in Unix seconds.
  std::function<std::unique_ptr<Answer>(std::string id, std::string model, int64_t created)>
      make_answer;
};

// Leaves out of a response what a second run would not repeat, and returns the headers that tell
// the fingerprint of the worker, where the response has it, and the one before if that was another.
HttpHeaders MakeRepeatable(const std::string& fingerprint_before, v1::GenerateResponse* response);

// The model's own name where the path of the Open Inference Protocol has it as `name`.
using OwnNameOf = std::function<std::string(std::string_view name)>;

// The target of the request is in the form of PathOf; without `own_name` a name is as it stands
// there. INVALID_ARGUMENT names the member (FieldOf), as the body has it, if one is wrong.
absl::StatusOr<HttpCall> ReadCall(RouteId route, const HttpRequest& request,
                                  const OwnNameOf& own_name = nullptr);

}  // namespace continuo::gateway::openai
