// SPDX-License-Identifier: Apache-2.0
#pragma once

// Converts bodies of /v1/responses to GenerateRequests. The form is that of OpenAI's API reference
// (Responses) and of Open Responses. Pure functions. Members that are unknown or not supported are
// rejected by name; ranges are checked later, as for gRPC clients.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"

namespace continuo::gateway::openai {

// The members of an answer that the request alone decides.
struct ResponsesForm {
  bool stream = false;
  std::optional<bool> event_ids;  // of a stream's events, where the body says it
  // Thoughts come in a second form that clients keep and send back.
  bool encodes_reasoning = false;
  // Members of the response that repeat those of the request: the text of a JSON object without its
  // braces.
  std::string repeated;
};

struct ResponsesCall {
  v1::GenerateRequest request;
  ResponsesForm form;
  // The types of tools that run at OpenAI's servers or at clients in ways that are not known here.
  // The model does not see them.
  std::vector<std::string> skipped_tools;
  // The index in the body of each tool of the conversation.
  std::vector<int> tool_places;
};

// INVALID_ARGUMENT names the member (FieldOf), as the body has it, if one is wrong.
absl::StatusOr<ResponsesCall> ParseResponses(std::string_view body);

// The name in a body of /v1/responses for a field of GenerateRequest. A place in the conversation
// is no place in the body: items become parts of messages.
std::string ResponsesParamOf(const std::vector<int>& tool_places, std::string_view field);

}  // namespace continuo::gateway::openai
