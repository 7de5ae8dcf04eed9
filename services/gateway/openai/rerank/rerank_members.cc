// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/rerank/rerank_members.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace continuo::gateway::openai::rerank {
namespace {

using enum Disposition;

constexpr std::string_view kTruncate = "write truncate_prompt_tokens or max_tokens_per_doc";
constexpr std::string_view kSigmoid = "scores are from 0 to 1";
constexpr std::string_view kLabel = "a label of the caller's";

// The bodies that have a member, as bits.
constexpr uint8_t kV1 = 1, kV2 = 2, kScore = 4, kRerank = kV1 | kV2, kAll = kRerank | kScore;

struct Row {
  uint8_t bodies;
  ObjectMember member;
};

constexpr Row kRows[] = {
    {kRerank, {"query", kDone, "a text", ""}},
    {kRerank,
     {"documents", kDone,
      "1 to 10,000 texts, or objects with a text, whose other members come back with it", ""}},
    {kScore,
     {"text_1", kDone, "a query, or an array of 1 to 10,000; texts, or objects of a text alone",
      ""}},
    {kScore,
     {"text_2", kDone, "a document, or an array: as many as queries, or any number for one query",
      ""}},
    {kScore, {"queries", kDone, "text_1 by another name", ""}},
    {kScore, {"documents", kDone, "text_2 by another name, with queries", ""}},
    {kScore, {"data_1", kDone, "text_1 by another name", ""}},
    {kScore, {"data_2", kDone, "text_2 by another name, with data_1", ""}},
    {kAll, {"model", kDone, "may be left out where one model is served", ""}},
    {kRerank, {"top_n", kDone, "the best so many alone are told; 0, the default, is all", ""}},
    {kRerank,
     {"return_documents", kDone, "each result has its document; the default is false", ""}},
    {kAll,
     {"instruction", kDone,
      "tells the model what makes a document relevant, in at most 8,192 bytes; the default is the "
      "model's",
      ""}},
    {kAll,
     {"truncate_prompt_tokens", kDone,
      "cuts documents so that query, document and template have so many tokens; -1 is what the "
      "model takes. Without it a pair that is too long is refused",
      ""}},
    {kAll,
     {"truncation_side", kDone,
      "\"right\" (the default) keeps a document's first tokens, \"left\" the last", ""}},
    {kAll, {"max_tokens_per_doc", kDone, "keeps so many tokens of each document, the first", ""}},
    {kAll, {"cache_salt", kDone, "only requests with the same salt share cached prefixes", ""}},
    {kV1 | kScore, {"priority", kDone, "-100 to 100; higher runs first", ""}},
    {kAll, {"user", kHarmless, kLabel, ""}},
    {kAll, {"safety_identifier", kHarmless, kLabel, ""}},
    {kAll, {"metadata", kHarmless, kLabel, ""}},
    {kV2,
     {"priority", kRefused, "lower runs first there, higher everywhere else here; use /v1/rerank",
      "[0]"}},
    {kRerank, {"rank_fields", kRefused, "a document's text is what is read", R"([["text"],[]])"}},
    {kRerank,
     {"max_chunks_per_doc", kRefused, "a document is one chunk; write max_tokens_per_doc", "[1]"}},
    {kRerank, {"relevant_spans", kRefused, "a document has one score", R"([{"mode":"disabled"}])"}},
    {kRerank, {"texts", kRefused, "write documents", ""}},
    {kRerank, {"return_text", kRefused, "write return_documents", "[false]"}},
    {kRerank, {"return_embeddings", kRefused, "the model makes scores", "[false]"}},
    {kScore, {"items", kRefused, "write documents", ""}},
    {kScore, {"encoding_format", kRefused, "scores are numbers", R"(["float"])"}},
    {kAll, {"use_activation", kRefused, kSigmoid, "[true]"}},
    {kAll, {"activation", kRefused, kSigmoid, "[true]"}},
    {kAll, {"softmax", kRefused, kSigmoid, "[true]"}},
    {kAll, {"raw_scores", kRefused, kSigmoid, "[false]"}},
    {kAll, {"truncate", kRefused, kTruncate, R"([false,"NONE"])"}},
    {kAll, {"truncation", kRefused, kTruncate, "[false]"}},
    {kAll, {"truncation_direction", kRefused, kTruncate, R"(["Right"])"}},
    {kAll, {"add_special_tokens", kRefused, "the model's template says which", "[true]"}},
    {kAll, {"chat_template", kRefused, "the model's own is used", ""}},
    {kAll, {"chat_template_kwargs", kRefused, "the model's own template is used", "[{}]"}},
    {kAll, {"mm_processor_kwargs", kRefused, "text is all that goes in", "[{}]"}},
    {kAll,
     {"request_id", kRefused, "the server names requests; the header x-request-id comes back", ""}},
};

// The members of a body.
template <uint8_t kBody>
constexpr auto MembersOf() {
  constexpr auto has = [](const Row& row) { return (row.bodies & kBody) != 0; };
  std::array<ObjectMember, static_cast<size_t>(std::ranges::count_if(kRows, has))> members{};
  size_t i = 0;
  for (const Row& row : kRows) {
    if (has(row)) members[i++] = row.member;
  }
  return members;
}

constexpr auto kRerankMembers = MembersOf<kV1>();
constexpr auto kRerankV2Members = MembersOf<kV2>();
constexpr auto kScoreMembers = MembersOf<kScore>();

}  // namespace

const ObjectMembers kRerankBody = {"/v1/rerank", kRerankMembers};
const ObjectMembers kRerankV2Body = {"/v2/rerank", kRerankV2Members};
const ObjectMembers kScoreBody = {"/v1/score", kScoreMembers};

std::span<const ObjectMembers* const> Objects() {
  static constexpr const ObjectMembers* kAllBodies[] = {&kRerankBody, &kRerankV2Body, &kScoreBody};
  return kAllBodies;
}

}  // namespace continuo::gateway::openai::rerank
