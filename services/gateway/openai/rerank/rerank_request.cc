// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/rerank/rerank_request.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/gateway/openai/embeddings/embeddings_request.h"
#include "services/gateway/openai/json/error_json.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/gateway/openai/rerank/rerank_members.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"

namespace continuo::gateway::openai {
namespace {

constexpr int64_t kMaxUint32 = std::numeric_limits<uint32_t>::max();
constexpr size_t kBytesPerToken = 4;  // about

// The members of /v1/score that name queries and documents, of which a body has one row.
struct ScoreNames {
  const char *query, *document;
};
constexpr ScoreNames kScoreNames[] = {
    {"text_1", "text_2"}, {"queries", "documents"}, {"data_1", "data_2"}};

const ObjectMembers& BodyOf(ScoreForm form) {
  switch (form) {
    case ScoreForm::kRerankV2:
      return rerank::kRerankV2Body;
    case ScoreForm::kScore:
      return rerank::kScoreBody;
    case ScoreForm::kRerank:
      break;
  }
  return rerank::kRerankBody;
}

absl::Status CheckCount(const std::string& name, const Json& array) {
  if (array.empty()) return protocol::FieldError(name, "is empty");
  if (array.size() <= kMaxScorePairs) return absl::OkStatus();
  return protocol::FieldError(
      name, absl::StrCat("has ", array.size(), " entries, the limit is ", kMaxScorePairs));
}

absl::Status ReadOptions(const Json& body, v1::EmbedRequest* request) {
  std::optional<std::string> text;
  RETURN_IF_ERROR(Read(body, "model", &text));
  request->set_model(text.value_or(""));
  text.reset();
  RETURN_IF_ERROR(Read(body, "instruction", &text));
  if (text.has_value()) request->set_instruction(*text);
  text.reset();
  RETURN_IF_ERROR(Read(body, "cache_salt", &text));
  if (text.has_value()) request->mutable_cache()->set_salt(*text);
  std::optional<int64_t> number;
  RETURN_IF_ERROR(ReadInteger(body, "max_tokens_per_doc", 1, kMaxUint32, &number));
  if (number.has_value()) request->set_max_document_tokens(static_cast<uint32_t>(*number));
  number.reset();
  RETURN_IF_ERROR(
      ReadInteger(body, "priority", -protocol::kMaxPriority, protocol::kMaxPriority, &number));
  if (number.has_value()) request->set_priority(static_cast<int32_t>(*number));
  return ReadTruncation(body, request);
}

// Reads a text, or an object that has one.
absl::Status ReadDocument(const Json& document, const std::string& path, std::string* text) {
  if (document.is_string()) {
    *text = document.get<std::string>();
    return absl::OkStatus();
  }
  if (!document.is_object()) return WrongType(path, "a string or an object with a text", document);
  return NeedText(document, "text", path, text);
}

// The same of a text of a pair, whose object has nothing else: no answer would show it.
absl::Status ReadPairText(const Json& value, const std::string& path, std::string* text) {
  RETURN_IF_ERROR(ReadDocument(value, path, text));
  if (!value.is_object()) return absl::OkStatus();
  for (const auto& [name, member] : value.items()) {
    if (name == "text" || member.is_null()) continue;
    return protocol::FieldError(absl::StrCat(path, ".", name), "is not read; the text alone is");
  }
  return absl::OkStatus();
}

absl::Status ReadDocuments(const Json& body, RerankCall* call) {
  std::optional<std::string> query;
  RETURN_IF_ERROR(Read(body, "query", &query));
  if (!query.has_value()) return protocol::FieldError("query", "is needed");
  call->queries.push_back(*std::move(query));
  const Json* const documents = Find(body, "documents");
  if (documents == nullptr) return protocol::FieldError("documents", "is needed");
  if (!documents->is_array()) return WrongType("documents", "an array", *documents);
  RETURN_IF_ERROR(CheckCount("documents", *documents));
  std::optional<bool> return_documents;
  RETURN_IF_ERROR(Read(body, "return_documents", &return_documents));
  for (size_t i = 0; i < documents->size(); ++i) {
    const Json& document = (*documents)[i];
    RETURN_IF_ERROR(
        ReadDocument(document, absl::StrCat("documents[", i, "]"), &call->texts.emplace_back()));
    if (!return_documents.value_or(false)) continue;
    call->documents.push_back(document.is_object() ? document.dump()
                                                   : Json{{"text", document}}.dump());
  }
  std::optional<int64_t> top_n;
  RETURN_IF_ERROR(ReadInteger(body, "top_n", 0, kMaxUint32, &top_n));
  call->top_n = std::min(static_cast<size_t>(top_n.value_or(0)), documents->size());
  if (call->top_n == 0) call->top_n = documents->size();
  return absl::OkStatus();
}

// Reads a text or an array of texts.
absl::Status ReadTexts(const Json& body, const std::string& name, bool* is_array,
                       std::vector<std::string>* texts) {
  const Json* const value = Find(body, name.c_str());
  if (value == nullptr) return protocol::FieldError(name, "is needed");
  *is_array = value->is_array();
  if (!*is_array) {
    texts->emplace_back();
    return ReadPairText(*value, name, &texts->back());
  }
  RETURN_IF_ERROR(CheckCount(name, *value));
  for (size_t i = 0; i < value->size(); ++i) {
    texts->emplace_back();
    RETURN_IF_ERROR(ReadPairText((*value)[i], absl::StrCat(name, "[", i, "]"), &texts->back()));
  }
  return absl::OkStatus();
}

absl::Status ReadPairs(const Json& body, RerankCall* call) {
  const ScoreNames* names = nullptr;
  for (const ScoreNames& row : kScoreNames) {
    if (Find(body, row.query) == nullptr && Find(body, row.document) == nullptr) continue;
    if (names != nullptr) {
      return protocol::FieldError(
          row.query, absl::StrCat("does not go with ", names->query, " and ", names->document,
                                  ", which say the same"));
    }
    names = &row;
  }
  if (names == nullptr) names = &kScoreNames[0];
  call->query_name = names->query;
  call->document_name = names->document;
  RETURN_IF_ERROR(ReadTexts(body, call->query_name, &call->many_queries, &call->queries));
  RETURN_IF_ERROR(ReadTexts(body, call->document_name, &call->many_documents, &call->texts));
  call->top_n = call->texts.size();
  if (call->queries.size() == 1 || call->queries.size() == call->texts.size()) {
    return absl::OkStatus();
  }
  return protocol::FieldError(call->document_name,
                              absl::StrCat("has ", call->texts.size(), " entries for the ",
                                           call->queries.size(), " of ", call->query_name));
}

// "inputs[3].pair.document" is "documents[5]" where input 0 is the body's pair 2.
std::string InputName(const RerankCall& call, size_t first, std::string_view field) {
  constexpr std::string_view kInputs = "inputs[";
  const bool is_query = field.ends_with(".query");
  const std::string& name = is_query ? call.query_name : call.document_name;
  size_t index = 0;
  const size_t end = field.find(']');
  if (!(is_query ? call.many_queries : call.many_documents) || !field.starts_with(kInputs) ||
      end == field.npos ||
      !absl::SimpleAtoi(std::string(field.substr(kInputs.size(), end - kInputs.size())), &index)) {
    return name;
  }
  return absl::StrCat(name, "[", first + index, "]");
}

}  // namespace

absl::StatusOr<RerankCall> ParseRerank(ScoreForm form, std::string_view text) {
  ASSIGN_OR_RETURN(const Json body, ParseObject(text));
  RETURN_IF_ERROR(CheckObject(BodyOf(form), body, ""));
  RerankCall call = {.form = form};
  RETURN_IF_ERROR(ReadOptions(body, &call.options));
  RETURN_IF_ERROR(form == ScoreForm::kScore ? ReadPairs(body, &call) : ReadDocuments(body, &call));
  return call;
}

v1::EmbedRequest TakePart(RerankCall& call, size_t first) {
  v1::EmbedRequest part = call.options;
  size_t bytes = 0;
  for (size_t i = first; i < call.texts.size() && part.inputs_size() < protocol::kMaxEmbedInputs;
       ++i) {
    const std::string& query = call.queries.size() == 1 ? call.queries.front() : call.queries[i];
    bytes += query.size() + call.texts[i].size() + call.options.instruction().size();
    if (i > first && bytes > static_cast<size_t>(kPartTokens) * kBytesPerToken) break;
    v1::TextPair& pair = *part.add_inputs()->mutable_pair();
    pair.set_query(query);
    pair.set_document(std::move(call.texts[i]));
  }
  return part;
}

absl::Status WithRerankName(const RerankCall& call, size_t first, const absl::Status& status) {
  const std::string field = protocol::FieldOf(status);
  if (field.starts_with("inputs")) return WithField(status, InputName(call, first, field));
  if (field.starts_with("truncation")) return WithField(status, "truncate_prompt_tokens");
  if (field == "max_document_tokens") return WithField(status, "max_tokens_per_doc");
  if (field == "cache.salt") return WithField(status, "cache_salt");
  return status;
}

}  // namespace continuo::gateway::openai
