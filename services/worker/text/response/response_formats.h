// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/text/response/response_template.h"

namespace continuo::text {

// A format of answers: what one family of models writes.
struct ResponseFormat {
  // As --tool_format has it. "template" is the model's own response_template; "none" has no calls.
  std::string name;
  ResponseTemplate response_template;
  // An answer with a call, as the chat template writes it; empty where it has shown none.
  std::string example = {}, example_name = {}, example_arguments = {};
};

// A call as a chat template writes it, rendered to find out how its model writes one.
struct RenderedCall {
  std::string prompt;           // a conversation with a tool, to be answered
  std::string with_call;        // the same, answered by a call
  std::string name, arguments;  // of the call; a JSON object
};

// Returns the names of the formats that are built in, without "none".
std::vector<std::string_view> ResponseFormatNames();

// A format by its name, with thoughts as `markers` has them: the chat template's source, and the
// tokenizer's added tokens. InvalidArgument lists the names.
absl::StatusOr<ResponseFormat> NamedResponseFormat(std::string_view name, std::string_view markers);

// The format that a chat template speaks: the one that reads `rendered` as the call that it is.
// Where the template leaves calls out, or `rendered` is null, the one that `markers` tells of.
// "none" where there is no such format.
ResponseFormat FindResponseFormat(std::string_view markers, const RenderedCall* rendered);

}  // namespace continuo::text
