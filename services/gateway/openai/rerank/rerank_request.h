// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"

namespace continuo::gateway::openai {

// The forms of body and answer: Cohere's first and Jina's, Cohere's second, vLLM's.
enum class ScoreForm { kRerank, kRerankV2, kScore };

// Bounds the pairs of one body.
inline constexpr size_t kMaxScorePairs = 10000;

// A body that asks for the relevance of documents.
struct RerankCall {
  ScoreForm form = ScoreForm::kRerank;
  v1::EmbedRequest options;  // a request without inputs
  // One query, or as many as documents; pair i is of document i.
  std::vector<std::string> queries, texts;
  size_t top_n = 0;  // results that are told, the best; of kScore all
  // JSON objects, one for each of texts where results have them; else empty.
  std::vector<std::string> documents;
  // What the body calls queries and documents, and whether they are arrays.
  std::string query_name = "query", document_name = "documents";
  bool many_queries = false, many_documents = true;
};

// INVALID_ARGUMENT names the member (FieldOf), as the body has it, if one is wrong.
absl::StatusOr<RerankCall> ParseRerank(ScoreForm form, std::string_view body);

// The request of the pairs from `first` on, as many as one call of Embed answers soon: about
// kPartTokens tokens and at most protocol::kMaxEmbedInputs pairs. first < call.texts.size(). The
// documents' texts are moved.
v1::EmbedRequest TakePart(RerankCall& call, size_t first);

// The same error of a request whose first input is pair `first` of the body, with the field's name
// in the body.
absl::Status WithRerankName(const RerankCall& call, size_t first, const absl::Status& status);

}  // namespace continuo::gateway::openai
