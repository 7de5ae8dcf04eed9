// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/openai/json/json_fields.h"

namespace continuo::gateway::openai {

// Reads "messages" of a chat call. Content is text, or text parts, which are joined as they are;
// the role "developer" is the templates' "system".
absl::Status ReadMessages(const Json& body, v1::Conversation* conversation);

// Reads "prompt" of a completion call: a text, token ids, or an array of either. Adds one request
// with the prompt set for each.
absl::Status ReadPrompts(const Json& body, std::vector<v1::GenerateRequest>* requests);

}  // namespace continuo::gateway::openai
