// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/embeddings/embeddings_request.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/gateway/openai/embeddings/embeddings_members.h"
#include "services/gateway/openai/json/error_json.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/gateway/openai/json/prompt_json.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"

namespace continuo::gateway::openai {
namespace {

constexpr int64_t kMaxUint32 = std::numeric_limits<uint32_t>::max();

absl::Status ReadInput(const Json& json, const std::string& path, v1::EmbedInput* input) {
  if (json.is_string()) {
    input->set_text(json.get<std::string>());
    return absl::OkStatus();
  }
  if (!json.is_array()) return WrongType(path, "a string or an array of token ids", json);
  if (json.empty()) return protocol::FieldError(path, "is empty");
  v1::TokenIds& ids = *input->mutable_token_ids();
  ids.mutable_ids()->Reserve(static_cast<int>(json.size()));
  for (size_t i = 0; i < json.size(); ++i) {
    ASSIGN_OR_RETURN(const uint32_t id, TokenIdAt(json, i, path));
    ids.add_ids(id);
  }
  return absl::OkStatus();
}

absl::Status ReadInputs(const Json& body, EmbeddingsCall* call) {
  const Json* const input = Find(body, "input");
  if (input == nullptr) return protocol::FieldError("input", "is needed");
  const bool is_ids = input->is_array() && !input->empty() && (*input)[0].is_number();
  call->is_array = input->is_array() && !is_ids;
  if (!call->is_array) return ReadInput(*input, "input", call->request.add_inputs());
  if (input->empty()) return protocol::FieldError("input", "is empty");
  if (input->size() > static_cast<size_t>(protocol::kMaxEmbedInputs)) {
    return protocol::FieldError(
        "input",
        absl::StrCat("has ", input->size(), " entries, the limit is ", protocol::kMaxEmbedInputs));
  }
  for (size_t i = 0; i < input->size(); ++i) {
    RETURN_IF_ERROR(
        ReadInput((*input)[i], absl::StrCat("input[", i, "]"), call->request.add_inputs()));
  }
  return absl::OkStatus();
}

absl::Status ReadOptions(const Json& body, EmbeddingsCall* call) {
  v1::EmbedRequest& request = call->request;
  std::optional<std::string> text;
  RETURN_IF_ERROR(Read(body, "model", &text));
  request.set_model(text.value_or(""));
  text.reset();
  RETURN_IF_ERROR(Read(body, "encoding_format", &text));
  if (text.has_value() && text != "float" && text != "base64") {
    return protocol::FieldError("encoding_format", "must be \"float\" or \"base64\"");
  }
  call->base64 = text == "base64";
  std::optional<int64_t> number;
  RETURN_IF_ERROR(ReadInteger(body, "dimensions", 1, kMaxUint32, &number));
  if (number.has_value()) request.set_dimensions(static_cast<uint32_t>(*number));
  std::optional<bool> normalize;
  RETURN_IF_ERROR(Read(body, "normalize", &normalize));
  if (normalize.has_value()) request.set_normalize(*normalize);
  text.reset();
  RETURN_IF_ERROR(Read(body, "prompt_name", &text));
  if (text.has_value()) request.set_prompt_name(*text);
  text.reset();
  RETURN_IF_ERROR(Read(body, "cache_salt", &text));
  if (text.has_value()) request.mutable_cache()->set_salt(*text);
  number.reset();
  RETURN_IF_ERROR(
      ReadInteger(body, "priority", -protocol::kMaxPriority, protocol::kMaxPriority, &number));
  if (number.has_value()) request.set_priority(static_cast<int32_t>(*number));
  return ReadTruncation(body, &request);
}

// "inputs[3].text" is "input[5]" where input 0 is the body's input 2.
std::string InputName(const EmbeddingsCall& call, int first, std::string_view field) {
  constexpr std::string_view kInputs = "inputs[";
  int index = 0;
  const size_t end = field.find(']');
  if (!field.starts_with(kInputs) || end == field.npos ||
      !absl::SimpleAtoi(std::string(field.substr(kInputs.size(), end - kInputs.size())), &index)) {
    return "input";
  }
  std::string name = call.is_array ? absl::StrCat("input[", first + index, "]") : "input";
  constexpr std::string_view kIds = ".token_ids.ids";
  const std::string_view rest = field.substr(end + 1);
  if (rest.starts_with(kIds)) name.append(rest.substr(kIds.size()));
  return name;
}

int64_t TokensOf(const v1::EmbedInput& input) {
  return input.has_text() ? static_cast<int64_t>(input.text().size()) / 4 + 1
                          : input.token_ids().ids_size();
}

}  // namespace

absl::Status ReadTruncation(const Json& body, v1::EmbedRequest* request) {
  std::optional<int64_t> most;
  std::optional<std::string> side;
  RETURN_IF_ERROR(ReadInteger(body, "truncate_prompt_tokens", -1, kMaxUint32, &most));
  RETURN_IF_ERROR(Read(body, "truncation_side", &side));
  if (side.has_value() && side != "left" && side != "right") {
    return protocol::FieldError("truncation_side", "must be \"left\" or \"right\"");
  }
  if (!most.has_value()) {
    if (!side.has_value()) return absl::OkStatus();
    return protocol::FieldError("truncation_side", "goes with truncate_prompt_tokens");
  }
  if (*most == 0) return protocol::FieldError("truncate_prompt_tokens", "is 0, must be above");
  v1::Truncation& truncation = *request->mutable_truncation();
  if (*most > 0) truncation.set_max_tokens(static_cast<uint32_t>(*most));
  truncation.set_keep_first(side.value_or("right") == "right");
  return absl::OkStatus();
}

absl::StatusOr<EmbeddingsCall> ParseEmbeddings(std::string_view text) {
  ASSIGN_OR_RETURN(const Json body, ParseObject(text));
  RETURN_IF_ERROR(CheckObject(embeddings::kBody, body, ""));
  EmbeddingsCall call;
  RETURN_IF_ERROR(ReadOptions(body, &call));
  RETURN_IF_ERROR(ReadInputs(body, &call));
  return call;
}

absl::Status WithEmbeddingsName(const EmbeddingsCall& call, int first, const absl::Status& status) {
  const std::string field = protocol::FieldOf(status);
  if (field.starts_with("inputs")) return WithField(status, InputName(call, first, field));
  if (field.starts_with("truncation")) return WithField(status, "truncate_prompt_tokens");
  if (field == "cache.salt") return WithField(status, "cache_salt");
  return status;
}

std::vector<v1::EmbedRequest> Divide(v1::EmbedRequest request, uint32_t dimensions) {
  // Beside its values a vector has a few bytes of tags and lengths.
  const size_t vector_bytes = size_t{dimensions} * sizeof(float) + 32;
  const size_t most_inputs = std::max<size_t>(1, protocol::kMaxUnsplitResponseBytes / vector_bytes);
  google::protobuf::RepeatedPtrField<v1::EmbedInput> inputs;
  inputs.Swap(request.mutable_inputs());
  std::vector<v1::EmbedRequest> parts;
  int64_t tokens = 0;
  for (v1::EmbedInput& input : inputs) {
    const int64_t more = TokensOf(input);
    const bool is_full = parts.empty() ||
                         static_cast<size_t>(parts.back().inputs_size()) >= most_inputs ||
                         tokens + more > kPartTokens;
    if (is_full) {
      parts.push_back(request);
      tokens = 0;
    }
    tokens += more;
    parts.back().add_inputs()->Swap(&input);
  }
  return parts;
}

}  // namespace continuo::gateway::openai
