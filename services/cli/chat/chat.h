// SPDX-License-Identifier: Apache-2.0
#pragma once

// The command `continuo chat`: a conversation, in which the model may call tools that run here.

#include <string>

#include "services/cli/chat/tool_runner.h"
#include "services/cli/client/answer.h"
#include "services/cli/client/console.h"
#include "services/cli/client/interrupt.h"

namespace continuo::cli {

struct ChatFlags {
  AnswerFlags answer;
  std::string system;
  ToolFlags tools;
};

void AddChatFlags(common::Flags& flags, ChatFlags* values);

// Returns the exit code, as RunGenerate. An interrupt ends the answer, or the command that runs for
// it; between answers it ends the program.
int RunChat(const ChatFlags& flags, Interrupt& interrupt, const Console& console);

}  // namespace continuo::cli
