// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "continuo/v1/inference.pb.h"
#include "services/gateway/openai/rerank/rerank_request.h"

namespace continuo::gateway::openai {

// The most bytes that RerankJson takes for the call's answer.
size_t RerankJsonBytes(const RerankCall& call);

// The answer to the call: of rerankings the best top_n documents, those of the highest logits first
// and of equal ones the one that is earlier in the body; of kScore all scores in order. `responses`
// have one score and its logit for each pair, in order, and `created` is in Unix seconds. Numbers
// are the shortest that read as the same float32.
std::string RerankJson(const RerankCall& call, const std::vector<v1::EmbedResponse>& responses,
                       const std::string& id, const std::string& model, int64_t created);

}  // namespace continuo::gateway::openai
