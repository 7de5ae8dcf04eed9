// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "continuo/v1/inference.pb.h"

namespace continuo::gateway::openai {

// The conversation as lines: role, thoughts, content, calls, the call that is answered.
inline std::vector<std::string> LinesOf(const v1::Conversation& conversation) {
  std::vector<std::string> lines;
  for (const v1::ChatMessage& message : conversation.messages()) {
    std::string line = message.role() + ": ";
    if (!message.reasoning().empty()) line += "(" + message.reasoning() + ")";
    line += message.content();
    for (const v1::ToolCall& call : message.tool_calls()) {
      line += "[" + call.id() + " " + call.name() + call.arguments() + "]";
    }
    if (!message.tool_call_id().empty()) line += " <- " + message.tool_call_id();
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace continuo::gateway::openai
