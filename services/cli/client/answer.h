// SPDX-License-Identifier: Apache-2.0
#pragma once

// The commands `continuo generate`, one answer, and `continuo chat`, a conversation.

#include <string>

#include "services/cli/client/connection.h"
#include "services/cli/client/console.h"
#include "services/cli/client/interrupt.h"
#include "services/cli/client/request_flags.h"

namespace continuo::cli {

// The flags of both commands.
struct AnswerFlags {
  Connection connection;
  RequestFlags request;
  bool verbose = false;
  bool json = false;         // Only of generate.
  std::string prompt = "-";  // Only of generate; "-" is the whole input.
  std::string system;        // Only of chat.
};

void AddGenerateFlags(common::Flags& flags, AnswerFlags* values);
void AddChatFlags(common::Flags& flags, AnswerFlags* values);

// Both return the exit code: 0, 1 after an error (one line on console.err), 130 where the command
// was interrupted. An interrupt ends the answer of a chat; between answers it ends the program.
int RunGenerate(const AnswerFlags& flags, Interrupt& interrupt, const Console& console);
int RunChat(const AnswerFlags& flags, Interrupt& interrupt, const Console& console);

}  // namespace continuo::cli
