// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/embeddings/embeddings_json.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "services/gateway/openai/json/json_text.h"

namespace continuo::gateway::openai {
namespace {

constexpr size_t kMaxFloatBytes = 16;  // "-1.1754944e-38," and one more
constexpr size_t kMaxObjectBytes = 80, kMaxRestBytes = 512;

void AppendVector(const v1::Embedding& embedding, bool base64, std::string* json) {
  const auto& values = embedding.values();
  if (base64) {
    std::string bytes(static_cast<size_t>(values.size()) * sizeof(float), '\0');
    for (int i = 0; i < values.size(); ++i) {
      const auto bits = std::bit_cast<uint32_t>(values[i]);
      for (size_t b = 0; b < sizeof(float); ++b) {
        bytes[static_cast<size_t>(i) * sizeof(float) + b] = static_cast<char>(bits >> (8 * b));
      }
    }
    json->push_back('"');
    json->append(absl::Base64Escape(bytes));
    json->push_back('"');
    return;
  }
  json->push_back('[');
  for (int i = 0; i < values.size(); ++i) {
    if (i > 0) json->push_back(',');
    AppendFloat(values[i], json);
  }
  json->push_back(']');
}

}  // namespace

void AppendFloat(float value, std::string* json) {
  if (!std::isfinite(value)) {
    json->append("null");
    return;
  }
  // Parsers take "-0" for the whole number 0.
  if (value == 0 && std::signbit(value)) {
    json->append("-0.0");
    return;
  }
  std::array<char, 32> digits;
  const std::to_chars_result end = std::to_chars(digits.begin(), digits.end(), value);
  json->append(digits.begin(), end.ptr);
}

size_t EmbeddingsJsonBytes(size_t num_vectors, size_t dimensions, bool base64) {
  const size_t vector_bytes =
      base64 ? dimensions * sizeof(float) / 3 * 4 + 8 : dimensions * kMaxFloatBytes;
  return kMaxRestBytes + num_vectors * (kMaxObjectBytes + vector_bytes);
}

std::string EmbeddingsJson(const std::vector<v1::EmbedResponse>& parts, const std::string& model,
                           bool base64) {
  size_t num_vectors = 0, most_values = 0;
  for (const v1::EmbedResponse& part : parts) {
    for (const v1::Embedding& embedding : part.embeddings()) {
      ++num_vectors;
      most_values = std::max(most_values, static_cast<size_t>(embedding.values_size()));
    }
  }
  std::string json;
  json.reserve(EmbeddingsJsonBytes(num_vectors, most_values, base64) + model.size());
  json.append(R"({"object":"list","data":[)");
  int index = 0;
  uint64_t tokens = 0;
  for (const v1::EmbedResponse& part : parts) {
    tokens += part.usage().prompt_tokens();
    for (const v1::Embedding& embedding : part.embeddings()) {
      absl::StrAppend(&json, index == 0 ? "" : ",", R"({"object":"embedding","index":)", index,
                      R"(,"embedding":)");
      AppendVector(embedding, base64, &json);
      json.push_back('}');
      ++index;
    }
  }
  json.append(R"(],"model":)");
  AppendString(model, &json);
  absl::StrAppend(&json, R"(,"usage":{"prompt_tokens":)", tokens, R"(,"total_tokens":)", tokens,
                  "}}");
  return json;
}

}  // namespace continuo::gateway::openai
