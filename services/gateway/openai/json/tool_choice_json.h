// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/openai/json/members.h"

namespace continuo::gateway::openai {

// Where an API writes the name of a function.
enum class FunctionForm {
  kInside,  // chats: {"type": "function", "function": {"name": "f"}}
  kBeside,  // Responses: {"type": "function", "name": "f"}; tools of other types are skipped
};

// The objects of a tool_choice, as Responses write them.
extern const ObjectMembers kNamedChoice, kAllowedChoice, kAllowedTool;

// Reads "tool_choice" and "parallel_tool_calls" of a body whose tools the conversation has. The
// choice {"type": "allowed_tools"} leaves out the other tools, and their `places`.
absl::Status ReadToolChoice(const Json& body, FunctionForm form, v1::Conversation* conversation,
                            std::vector<int>* places);

}  // namespace continuo::gateway::openai
