// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/openai/json/json_fields.h"

namespace continuo::gateway::openai {

// Reads "instructions" and "input" of a body of /v1/responses. What an assistant thought, said and
// called without anything in between is one message.
absl::Status ReadInput(const Json& body, v1::Conversation* conversation);

// Thoughts as `encrypted_content` has them. Nothing is secret: it is base64, so that the text comes
// back as it was without a store.
std::string EncodeReasoning(std::string_view text);

}  // namespace continuo::gateway::openai
