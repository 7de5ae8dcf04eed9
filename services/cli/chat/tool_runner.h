// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/cli/chat/command.h"
#include "services/cli/chat/tool_file.h"
#include "services/cli/client/console.h"
#include "services/cli/client/interrupt.h"
#include "services/common/flags.h"

namespace continuo::cli {

struct ToolFlags {
  std::string file;  // Empty: no tools.
  std::vector<std::string> allowed;
  uint32_t rounds = 8;
  CommandLimits limits;
};

void AddToolFlags(common::Flags& flags, ToolFlags* values);

// Returns an error that says why, where the arguments of a call are no JSON object.
absl::Status CheckArguments(const std::string& arguments);

// Answers the calls of a model by the commands of a file. A command runs only where --allow_tools
// names its tool or the person at the terminal agrees. Not thread-safe.
class ToolRunner {
 public:
  // INVALID_ARGUMENT names what is wrong with the file or with --allow_tools.
  static absl::StatusOr<ToolRunner> Open(const ToolFlags& flags);

  const std::vector<LocalTool>& tools() const { return tools_; }

  // Returns what the model is told: the command's output, or "error: …" where it did not run or
  // failed. Shows it on console.err. CANCELLED after an interrupt.
  absl::StatusOr<std::string> Run(const v1::ToolCall& call, Interrupt& interrupt,
                                  const Console& console);

 private:
  ToolRunner(std::vector<LocalTool> tools, const ToolFlags& flags)
      : tools_(std::move(tools)),
        allowed_(flags.allowed.begin(), flags.allowed.end()),
        limits_(flags.limits) {}
  // Asks the person about a tool that is not allowed yet.
  bool IsAllowed(const LocalTool& tool, const Console& console);
  absl::StatusOr<std::string> ResultOf(const v1::ToolCall& call, Interrupt& interrupt,
                                       const Console& console);

  std::vector<LocalTool> tools_;
  std::set<std::string> allowed_;  // The names of tools that run without asking.
  CommandLimits limits_;
};

}  // namespace continuo::cli
