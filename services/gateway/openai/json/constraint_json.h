// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/openai/json/json_fields.h"

namespace continuo::gateway::openai {

// Reads what an answer has to match: "response_format" as OpenAI, llama.cpp's server and TGI write
// it, vLLM's "structured_outputs" and its older "guided_json" and their like, and the other
// servers' names. `text` is the whole body: a schema goes on as the client wrote it, since answers
// have the order of its properties. `member` becomes the path of the text or the list that was
// read, and stays empty where nothing constrains the answer.
absl::Status ReadConstraint(const Json& body, std::string_view text, v1::Constraint* constraint,
                            std::string* member);

}  // namespace continuo::gateway::openai
