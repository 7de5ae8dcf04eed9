// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/gateway/openai/json/request_json.h"

namespace continuo::gateway::openai {

// {"type":"error","error":{"type","message"},"request_id"} as Anthropic's API reference (Errors)
// has it. Fields of GenerateRequest are told by the names of /v1/messages; `names.as_written` says
// that errors name members already, `names.constraint` is the member with the answer's schema. An
// internal failure gets a message that discloses nothing of the inside.
std::string MessagesErrorJson(const ParamNames& names, const absl::Status& status,
                              std::string_view request_id);

// The same for an error of HTTP itself.
std::string MessagesErrorJson(int http_status, std::string_view message,
                              std::string_view request_id);

// The name in a body of /v1/messages for a field of GenerateRequest or TokenizeRequest. A place in
// the conversation is no place in the body: blocks become messages.
std::string MessagesParamOf(const ParamNames& names, std::string_view field);

}  // namespace continuo::gateway::openai
