// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/openai/json/json_fields.h"

namespace continuo::gateway::openai {

// "messages" of a chat call. Content is text, or text parts, which are joined as they are; the role
// "developer" is the templates' "system".
absl::Status ReadMessages(const Json& body, v1::Conversation* conversation);

// "prompt" of a completion call: a text, token ids, or an array of either. One request with the
// prompt set is added for each.
absl::Status ReadPrompts(const Json& body, std::vector<v1::GenerateRequest>* requests);

}  // namespace continuo::gateway::openai
