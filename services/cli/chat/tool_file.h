// SPDX-License-Identifier: Apache-2.0
#pragma once

// The file of `continuo chat --tools`: tools as OpenAI's interface has them, each with the command
// that answers its calls:
//
//   [{"type": "function",
//     "function": {"name": "weather", "description": "…", "parameters": {…}, "strict": false},
//     "command": ["python3", "weather.py"]}]

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"

namespace continuo::cli {

struct LocalTool {
  v1::Tool definition;
  std::vector<std::string> command;  // A program and its arguments.
};

// Parses the text of a file of this name. INVALID_ARGUMENT names the file and the member:
// `tools.json: [1].function.name "weather" is that of another tool`.
absl::StatusOr<std::vector<LocalTool>> ParseTools(const std::string& name, std::string_view text);

// Reads a file of at most 1 MiB.
absl::StatusOr<std::vector<LocalTool>> ReadTools(const std::string& path);

}  // namespace continuo::cli
