// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/rerank/rerank_members.h"

namespace continuo::gateway::openai::rerank {
namespace {

using enum Disposition;

constexpr std::string_view kTruncate = "write truncate_prompt_tokens or max_tokens_per_doc";
constexpr std::string_view kSigmoid = "scores are from 0 to 1";
constexpr std::string_view kLabel = "a label of the caller's";

constexpr ObjectMember kRerankMembers[] = {
    {"query", kDone, "a text", ""},
    {"documents", kDone,
     "1 to 10,000 texts, or objects with a text, whose other members come back with it", ""},
    {"model", kDone, "may be left out where one model is served", ""},
    {"top_n", kDone, "the best so many alone are told; 0, the default, is all", ""},
    {"return_documents", kDone, "each result has its document; the default is false", ""},
    {"instruction", kDone,
     "tells the model what makes a document relevant; the default is the model's", ""},
    {"truncate_prompt_tokens", kDone,
     "cuts documents so that query, document and template have so many tokens; -1 is what the "
     "model "
     "takes. Without it a pair that is too long is refused",
     ""},
    {"truncation_side", kDone,
     "\"right\" (the default) keeps a document's first tokens, \"left\" the last", ""},
    {"max_tokens_per_doc", kDone, "keeps so many tokens of each document, the first", ""},
    {"cache_salt", kDone, "only requests with the same salt share cached prefixes", ""},
    {"priority", kDone, "-100 to 100; higher runs first", ""},
    {"user", kHarmless, kLabel, ""},
    {"safety_identifier", kHarmless, kLabel, ""},
    {"metadata", kHarmless, kLabel, ""},
    {"rank_fields", kRefused, "a document's text is what is read", R"([["text"],[]])"},
    {"max_chunks_per_doc", kRefused, "a document is one chunk; write max_tokens_per_doc", "[1]"},
    {"relevant_spans", kRefused, "a document has one score", R"([{"mode":"disabled"}])"},
    {"texts", kRefused, "write documents", ""},
    {"return_text", kRefused, "write return_documents", "[false]"},
    {"return_embeddings", kRefused, "the model makes scores", "[false]"},
    {"use_activation", kRefused, kSigmoid, "[true]"},
    {"activation", kRefused, kSigmoid, "[true]"},
    {"softmax", kRefused, kSigmoid, "[true]"},
    {"raw_scores", kRefused, kSigmoid, "[false]"},
    {"truncate", kRefused, kTruncate, R"([false,"NONE"])"},
    {"truncation", kRefused, kTruncate, "[false]"},
    {"truncation_direction", kRefused, kTruncate, R"(["Right"])"},
    {"add_special_tokens", kRefused, "the model's template says which", "[true]"},
    {"chat_template", kRefused, "the model's own is used", ""},
    {"chat_template_kwargs", kRefused, "the model's own template is used", "[{}]"},
    {"mm_processor_kwargs", kRefused, "text is all that goes in", "[{}]"},
    {"request_id", kRefused, "the server names requests; the header x-request-id comes back", ""},
};

constexpr ObjectMember kRerankV2Members[] = {
    {"query", kDone, "a text", ""},
    {"documents", kDone,
     "1 to 10,000 texts, or objects with a text, whose other members come back with it", ""},
    {"model", kDone, "may be left out where one model is served", ""},
    {"top_n", kDone, "the best so many alone are told; 0, the default, is all", ""},
    {"return_documents", kDone, "each result has its document; the default is false", ""},
    {"instruction", kDone,
     "tells the model what makes a document relevant; the default is the model's", ""},
    {"truncate_prompt_tokens", kDone,
     "cuts documents so that query, document and template have so many tokens; -1 is what the "
     "model "
     "takes. Without it a pair that is too long is refused",
     ""},
    {"truncation_side", kDone,
     "\"right\" (the default) keeps a document's first tokens, \"left\" the last", ""},
    {"max_tokens_per_doc", kDone, "keeps so many tokens of each document, the first", ""},
    {"cache_salt", kDone, "only requests with the same salt share cached prefixes", ""},
    {"user", kHarmless, kLabel, ""},
    {"safety_identifier", kHarmless, kLabel, ""},
    {"metadata", kHarmless, kLabel, ""},
    {"priority", kRefused, "lower runs first there, higher everywhere else here; use /v1/rerank",
     "[0]"},
    {"rank_fields", kRefused, "a document's text is what is read", R"([["text"],[]])"},
    {"max_chunks_per_doc", kRefused, "a document is one chunk; write max_tokens_per_doc", "[1]"},
    {"relevant_spans", kRefused, "a document has one score", R"([{"mode":"disabled"}])"},
    {"texts", kRefused, "write documents", ""},
    {"return_text", kRefused, "write return_documents", "[false]"},
    {"return_embeddings", kRefused, "the model makes scores", "[false]"},
    {"use_activation", kRefused, kSigmoid, "[true]"},
    {"activation", kRefused, kSigmoid, "[true]"},
    {"softmax", kRefused, kSigmoid, "[true]"},
    {"raw_scores", kRefused, kSigmoid, "[false]"},
    {"truncate", kRefused, kTruncate, R"([false,"NONE"])"},
    {"truncation", kRefused, kTruncate, "[false]"},
    {"truncation_direction", kRefused, kTruncate, R"(["Right"])"},
    {"add_special_tokens", kRefused, "the model's template says which", "[true]"},
    {"chat_template", kRefused, "the model's own is used", ""},
    {"chat_template_kwargs", kRefused, "the model's own template is used", "[{}]"},
    {"mm_processor_kwargs", kRefused, "text is all that goes in", "[{}]"},
    {"request_id", kRefused, "the server names requests; the header x-request-id comes back", ""},
};

constexpr ObjectMember kScoreMembers[] = {
    {"text_1", kDone, "a query, or an array of 1 to 10,000", ""},
    {"text_2", kDone, "a document, or an array: as many as queries, or any number for one query",
     ""},
    {"queries", kDone, "text_1 by another name", ""},
    {"documents", kDone, "text_2 by another name, with queries", ""},
    {"data_1", kDone, "text_1 by another name", ""},
    {"data_2", kDone, "text_2 by another name, with data_1", ""},
    {"model", kDone, "may be left out where one model is served", ""},
    {"instruction", kDone,
     "tells the model what makes a document relevant; the default is the model's", ""},
    {"truncate_prompt_tokens", kDone,
     "cuts documents so that query, document and template have so many tokens; -1 is what the "
     "model "
     "takes. Without it a pair that is too long is refused",
     ""},
    {"truncation_side", kDone,
     "\"right\" (the default) keeps a document's first tokens, \"left\" the last", ""},
    {"max_tokens_per_doc", kDone, "keeps so many tokens of each document, the first", ""},
    {"cache_salt", kDone, "only requests with the same salt share cached prefixes", ""},
    {"priority", kDone, "-100 to 100; higher runs first", ""},
    {"user", kHarmless, kLabel, ""},
    {"safety_identifier", kHarmless, kLabel, ""},
    {"metadata", kHarmless, kLabel, ""},
    {"items", kRefused, "write documents", ""},
    {"encoding_format", kRefused, "scores are numbers", R"(["float"])"},
    {"use_activation", kRefused, kSigmoid, "[true]"},
    {"activation", kRefused, kSigmoid, "[true]"},
    {"softmax", kRefused, kSigmoid, "[true]"},
    {"raw_scores", kRefused, kSigmoid, "[false]"},
    {"truncate", kRefused, kTruncate, R"([false,"NONE"])"},
    {"truncation", kRefused, kTruncate, "[false]"},
    {"truncation_direction", kRefused, kTruncate, R"(["Right"])"},
    {"add_special_tokens", kRefused, "the model's template says which", "[true]"},
    {"chat_template", kRefused, "the model's own is used", ""},
    {"chat_template_kwargs", kRefused, "the model's own template is used", "[{}]"},
    {"mm_processor_kwargs", kRefused, "text is all that goes in", "[{}]"},
    {"request_id", kRefused, "the server names requests; the header x-request-id comes back", ""},
};

}  // namespace

const ObjectMembers kRerankBody = {"/v1/rerank", kRerankMembers};
const ObjectMembers kRerankV2Body = {"/v2/rerank", kRerankV2Members};
const ObjectMembers kScoreBody = {"/v1/score", kScoreMembers};

std::span<const ObjectMembers* const> Objects() {
  static constexpr const ObjectMembers* kAll[] = {&kRerankBody, &kRerankV2Body, &kScoreBody};
  return kAll;
}

}  // namespace continuo::gateway::openai::rerank
