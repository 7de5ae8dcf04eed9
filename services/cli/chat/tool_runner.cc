// SPDX-License-Identifier: Apache-2.0
#include "services/cli/chat/tool_runner.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "services/base/json_text.h"
#include "services/base/status_macros.h"
#include "services/base/utf8.h"
#include "services/cli/client/terminal.h"

namespace continuo::cli {
namespace {

constexpr int kMaxArgumentsDepth = 128;
constexpr size_t kShownBytes = 400;

// Returns the beginning of a text, in one line that is harmless for the terminal.
std::string Shown(const std::string& text) {
  const bool cut = text.size() > kShownBytes;
  return LineForTerminal(ToValidUtf8(text.substr(0, kShownBytes))) + (cut ? " …" : "");
}

// Returns what the model is told of a command that ended.
std::string Told(const CommandResult& result, const CommandLimits& limits) {
  std::string output = ToValidUtf8(result.output);
  while (!output.empty() && output.back() == '\n') output.pop_back();
  std::string error;
  switch (result.end) {
    case CommandResult::End::kExit:
      if (result.code == 0) return output;
      error = absl::StrCat("error: exit status ", result.code);
      break;
    case CommandResult::End::kSignal:
      error = absl::StrCat("error: ended by signal ", result.code);
      break;
    case CommandResult::End::kTimeout:
      error = absl::StrCat("error: no end within ", absl::FormatDuration(limits.timeout));
      break;
    case CommandResult::End::kCut:
      error = absl::StrCat("error: cut off after ", limits.max_bytes, " bytes");
      break;
  }
  return output.empty() ? error : absl::StrCat(error, "\n", output);
}

}  // namespace

void AddToolFlags(common::Flags& flags, ToolFlags* values) {
  flags.Text("tools", &values->file,
             "JSON file of tools that the model may call: an array of function definitions as "
             "OpenAI's interface has them, each with a \"command\", an array of a program and its "
             "arguments. A call runs it without a shell: its standard input is the call's "
             "arguments, JSON written by the model, and its standard output is the result.");
  flags.TextList("allow_tools", &values->allowed,
                 "Names of tools whose commands run without asking. Other commands run only where "
                 "a person at the terminal agrees.");
  flags.Integer("tool_rounds", &values->rounds, 0u, 1000u,
                "How many answers to one message may call tools.");
  flags.Duration("tool_timeout", &values->limits.timeout, absl::Milliseconds(1), absl::Hours(24),
                 "Time after which a command is killed.");
  flags.Bytes("tool_max_bytes", &values->limits.max_bytes, 1, 16 << 20,
              "Output after which a command is killed.");
}

absl::Status CheckArguments(const std::string& arguments) {
  RETURN_IF_ERROR(CheckJson("the arguments", arguments, kMaxArgumentsDepth));
  if (!nlohmann::json::parse(arguments).is_object()) {
    return absl::InvalidArgumentError("the arguments are no JSON object");
  }
  return absl::OkStatus();
}

absl::StatusOr<ToolRunner> ToolRunner::Open(const ToolFlags& flags) {
  std::vector<LocalTool> tools;
  if (!flags.file.empty()) {
    ASSIGN_OR_RETURN(tools, ReadTools(flags.file));
  }
  for (const std::string& name : flags.allowed) {
    const bool known = std::any_of(tools.begin(), tools.end(), [&](const LocalTool& tool) {
      return tool.definition.name() == name;
    });
    if (known) continue;
    return absl::InvalidArgumentError(
        flags.file.empty()
            ? "--allow_tools needs --tools"
            : absl::StrCat("--allow_tools: ", flags.file, " has no tool \"", name, "\""));
  }
  return ToolRunner(std::move(tools), flags);
}

bool ToolRunner::IsAllowed(const LocalTool& tool, const Console& console) {
  const std::string& name = tool.definition.name();
  if (allowed_.contains(name)) return true;
  if (!console.interactive) return false;
  while (true) {
    console.err << "Run " << Shown(absl::StrJoin(tool.command, " "))
                << "? y(es), n(o), a(lways): " << std::flush;
    std::string line;
    if (!std::getline(console.in, line)) return false;
    if (line == "a" || line == "always") allowed_.insert(name);
    if (line == "y" || line == "yes" || line == "a" || line == "always") return true;
    if (line == "n" || line == "no") return false;
  }
}

absl::StatusOr<std::string> ToolRunner::ResultOf(const v1::ToolCall& call, Interrupt& interrupt,
                                                 const Console& console) {
  const auto tool = std::find_if(tools_.begin(), tools_.end(), [&](const LocalTool& candidate) {
    return candidate.definition.name() == call.name();
  });
  if (tool == tools_.end()) return absl::StrCat("error: there is no tool \"", call.name(), "\"");
  if (const absl::Status status = CheckArguments(call.arguments()); !status.ok()) {
    return absl::StrCat("error: ", status.message());
  }
  if (!IsAllowed(*tool, console)) return "error: not allowed";
  const absl::StatusOr<CommandResult> result =
      RunCommand(tool->command, call.arguments(), limits_, interrupt);
  if (absl::IsCancelled(result.status())) return result.status();
  if (!result.ok()) return absl::StrCat("error: ", result.status().message());
  if (!result->message.empty()) {
    console.err << "[" << call.name()
                << " said: " << Shown(std::string(absl::StripSuffix(result->message, "\n"))) << "]"
                << std::endl;
  }
  return Told(*result, limits_);
}

absl::StatusOr<std::string> ToolRunner::Run(const v1::ToolCall& call, Interrupt& interrupt,
                                            const Console& console) {
  ASSIGN_OR_RETURN(std::string result, ResultOf(call, interrupt, console));
  console.err << "[" << LineForTerminal(call.name()) << " → " << Shown(result) << "]" << std::endl;
  return result;
}

}  // namespace continuo::cli
