// SPDX-License-Identifier: Apache-2.0
#pragma once

// The members of bodies of /v1/embeddings, which are those that OpenAI, vLLM and
// text-embeddings-inference know. The table decides what is rejected; the list in docs/http.md is
// made of it.

#include <span>

#include "services/gateway/openai/json/members.h"

namespace continuo::gateway::openai::embeddings {

extern const ObjectMembers kBody;

// All objects, in the order of the documents.
std::span<const ObjectMembers* const> Objects();

}  // namespace continuo::gateway::openai::embeddings
