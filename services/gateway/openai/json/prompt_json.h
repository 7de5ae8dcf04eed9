// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/openai/json/json_fields.h"

namespace continuo::gateway::openai {

// Value i of the array at `path` as a token id: an integer from 0 to 2^32 - 1.
absl::StatusOr<uint32_t> TokenIdAt(const Json& array, size_t i, std::string_view path);

// Reads "messages" of a chat call. Content is text, or text parts, which are joined as they are;
// the role "developer" is the templates' "system". `prefix` of the last message, an assistant's,
// sets continue_final_message.
absl::Status ReadMessages(const Json& body, v1::Conversation* conversation);

// Reads "prompt" of a completion call: a text, token ids, or an array of either. Adds one request
// with the prompt set for each.
absl::Status ReadPrompts(const Json& body, std::vector<v1::GenerateRequest>* requests);

}  // namespace continuo::gateway::openai
