// SPDX-License-Identifier: Apache-2.0
#pragma once

// The members of bodies of /v1/rerank, /v2/rerank and /v1/score, which are those that Cohere, Jina,
// vLLM and text-embeddings-inference know. The tables decide what is rejected; the list in
// docs/http.md is made of them.

#include <span>

#include "services/gateway/openai/json/members.h"

namespace continuo::gateway::openai::rerank {

extern const ObjectMembers kRerankBody;    // /rerank and /v1/rerank
extern const ObjectMembers kRerankV2Body;  // /v2/rerank
extern const ObjectMembers kScoreBody;     // /score and /v1/score

// All objects, in the order of the documents.
std::span<const ObjectMembers* const> Objects();

}  // namespace continuo::gateway::openai::rerank
