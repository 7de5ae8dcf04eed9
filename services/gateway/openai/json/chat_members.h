// SPDX-License-Identifier: Apache-2.0
#pragma once

// The members of the objects inside bodies of /v1/chat/completions, /v1/completions and /tokenize,
// which are those that OpenAI, vLLM, TGI and llama.cpp's server know. The tables decide what is
// rejected; the list in docs/http.md is made of them.

#include <span>

#include "services/gateway/openai/json/members.h"

namespace continuo::gateway::openai::chats {

extern const ObjectMembers kMessage;
// Parts of a message's content, by their types.
extern const ObjectMembers kTextPart, kRefusalPart;
extern const ObjectMembers kToolCall, kCalledFunction;
extern const ObjectMembers kTool, kToolFunction;
// tool_choice, by its types, and what they have inside.
extern const ObjectMembers kChoice, kChosenFunction, kAllowedChoice, kAllowedTools;
extern const ObjectMembers kStreamOptions;
// response_format, by its types, and the object that names a schema.
extern const ObjectMembers kTextFormat, kObjectFormat, kSchemaFormat, kNamedSchema, kRegexFormat;
extern const ObjectMembers kStructuredOutputs;

// All of them, in the order of the documents.
std::span<const ObjectMembers* const> Objects();

}  // namespace continuo::gateway::openai::chats
