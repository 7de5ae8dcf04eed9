// SPDX-License-Identifier: Apache-2.0
#pragma once

// The command `continuo generate`, and what it shares with `continuo chat`: one answer.

#include <string>

#include "absl/status/status.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "services/cli/client/answer_printer.h"
#include "services/cli/client/connection.h"
#include "services/cli/client/console.h"
#include "services/cli/client/interrupt.h"
#include "services/cli/client/request_flags.h"

namespace continuo::cli {

// The exit code of a command that was interrupted.
inline constexpr int kInterrupted = 130;

// The flags of both commands.
struct AnswerFlags {
  Connection connection;
  RequestFlags request;
  bool verbose = false;
  bool json = false;         // Only of generate.
  std::string prompt = "-";  // Only of generate; "-" is the whole input.
};

void AddGenerateFlags(common::Flags& flags, AnswerFlags* values);

// Returns the exit code: 0, 1 after an error (one line on console.err), or kInterrupted.
int RunGenerate(const AnswerFlags& flags, Interrupt& interrupt, const Console& console);

// Runs one request to its end, over lost connections, and prints the answer while it comes.
// `answer` is set to that of the first sequence, also after an error. CANCELLED where `interrupt`
// ended it.
absl::Status PrintAnswer(const AnswerFlags& flags, v1::InferenceService::StubInterface* stub,
                         v1::GenerateRequest request, Interrupt& interrupt, const Console& console,
                         Answer* answer);

// Prints "command: error" and returns 1.
int Fail(const Console& console, const char* command, const absl::Status& status);

}  // namespace continuo::cli
