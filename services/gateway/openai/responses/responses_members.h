// SPDX-License-Identifier: Apache-2.0
#pragma once

// The members of bodies of /v1/responses, which are those that OpenAI's API reference and SDKs
// know. The tables decide what is rejected; the list in docs/http.md is made of them.

#include <span>

#include "services/gateway/openai/json/members.h"

namespace continuo::gateway::openai::responses {

extern const ObjectMembers kBody;
// Items of the input, by their types.
extern const ObjectMembers kMessage, kFunctionCall, kFunctionCallOutput, kReasoning;
// Parts of content, by their types.
extern const ObjectMembers kTextPart, kRefusalPart;
extern const ObjectMembers kFunction;  // a tool
extern const ObjectMembers kStreamOptions, kReasoningConfig, kText;
// text.format, by its types.
extern const ObjectMembers kPlainFormat, kSchemaFormat;

// All of them, in the order of the documents.
std::span<const ObjectMembers* const> Objects();

}  // namespace continuo::gateway::openai::responses
