// SPDX-License-Identifier: Apache-2.0
#pragma once

// The members of a request's body that are known: those of OpenAI, vLLM, SGLang, TGI, llama.cpp's
// server and Ollama's OpenAI route. The table decides what is read, what may be left out without
// harm and what is refused; the list in docs/http.md is made of it. Pure functions.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/gateway/openai/json/request_json.h"

namespace continuo::gateway::openai {

enum class Disposition : uint8_t {
  kDone,      // read by request_json.cc, prompt_json.cc or text_json.cc
  kHarmless,  // has no bearing on the answer; accepted without effect
  kRefused,   // rejected by name, unless it asks for what happens anyway
};

// The endpoints that take a member, as bits.
inline constexpr uint8_t kOfChat = 1, kOfCompletions = 2, kOfBoth = 3, kOfTokenize = 4,
                         kOfDetokenize = 8;

// The servers that know a member, as bits.
inline constexpr uint8_t kOpenAi = 1, kVllm = 2, kSglang = 4, kTgi = 8, kLlamaCpp = 16,
                         kOllama = 32;

struct Member {
  std::string_view name;
  uint8_t endpoints;
  Disposition disposition;
  uint8_t servers;
  // A refused member has here a JSON array of the values that ask for nothing. null always asks for
  // nothing.
  std::string_view idle;
  std::string_view note;  // what it does, or what there is instead
};

// Ordered by disposition, then as the documents have them.
std::span<const Member> Members();
// The members of /tokenize and /detokenize, which are vLLM's. A member that only Members() has is
// harmless or refused there as it is in a completion.
std::span<const Member> TextMembers();

// Rejects members that are unknown, of the other endpoint or refused: INVALID_ARGUMENT names the
// first one.
absl::Status CheckMembers(Endpoint endpoint, const Json& body);

// A member of an object.
struct ObjectMember {
  std::string_view name;
  Disposition disposition;
  std::string_view note;
  std::string_view idle;  // as Member::idle
};

// An object of a body whose members are all known: the body itself, an item, a part, a tool.
struct ObjectMembers {
  std::string_view name;  // for the body its path
  std::span<const ObjectMember> members;
};

// Rejects members of the object at `path` that it does not have, or that are refused. An empty path
// stands for the body.
absl::Status CheckObject(const ObjectMembers& object, const Json& json, std::string_view path);

// The table in Markdown, as docs/http.md has it.
std::string MembersTable();
// The same for the objects of a route.
std::string ObjectsTable(std::span<const ObjectMembers* const> objects);

}  // namespace continuo::gateway::openai
