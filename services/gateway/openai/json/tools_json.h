// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/openai/json/json_fields.h"

namespace continuo::gateway::openai {

// Reads "tools", "tool_choice" and "parallel_tool_calls" of a chat call. `text` is the whole body:
// a tool's schema goes on as the client wrote it, since it becomes part of the prompt. `places`
// gets the index in the body of each tool of the conversation.
absl::Status ReadTools(const Json& body, std::string_view text, v1::Conversation* conversation,
                       std::vector<int>* places);

// Reads "tool_calls" of the message at `path`.
absl::Status ReadToolCalls(const Json& json, const std::string& path, v1::ChatMessage* message);

// The text of a member's value in the text of a JSON object, as it is written; the last one of that
// name, and empty where there is none.
std::string_view MemberText(std::string_view object, std::string_view name);
// The texts of the values of all members of an object, in one pass. Names are as they read, without
// escapes.
absl::flat_hash_map<std::string, std::string_view> MemberTexts(std::string_view object);
// The texts of the elements of an array, in one pass.
std::vector<std::string_view> ElementTexts(std::string_view array);

// A value of a body, and its text as the client wrote it.
struct WrittenValue {
  const Json* json = nullptr;  // null: it is missing, or null
  std::string_view text;

  WrittenValue Member(const char* name) const {
    return {Find(*json, name), MemberText(text, name)};
  }
  // The elements of an array.
  std::vector<WrittenValue> Elements() const {
    const std::vector<std::string_view> texts = ElementTexts(text);
    std::vector<WrittenValue> elements(json->size());
    for (size_t i = 0; i < elements.size(); ++i) {
      elements[i] = {&(*json)[i], i < texts.size() ? texts[i] : std::string_view()};
    }
    return elements;
  }
};

}  // namespace continuo::gateway::openai
