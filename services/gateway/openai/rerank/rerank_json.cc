// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/rerank/rerank_json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/gateway/openai/embeddings/embeddings_json.h"
#include "services/gateway/openai/json/json_text.h"

namespace continuo::gateway::openai {
namespace {

constexpr size_t kMaxResultBytes = 96, kMaxRestBytes = 2048;

// A pair's score, from 0 to 1, and the logit behind it, which orders those that round to the same
// float. What a worker did not tell is no number.
struct Score {
  float value = std::numeric_limits<float>::quiet_NaN();
  double logit = std::numeric_limits<double>::quiet_NaN();
};

std::vector<Score> ScoresOf(const std::vector<v1::EmbedResponse>& responses) {
  std::vector<Score> scores;
  for (const v1::EmbedResponse& response : responses) {
    for (const v1::Embedding& embedding : response.embeddings()) {
      Score& score = scores.emplace_back();
      if (embedding.values_size() == 1) score.value = embedding.values(0);
      // One that tells no logit has it in its score, as far as a float does.
      score.logit = embedding.has_logit() ? embedding.logit()
                                          : std::log(score.value) - std::log1p(-score.value);
    }
  }
  return scores;
}

// The indices of the best `most`, the best first.
std::vector<size_t> Ranked(const std::vector<Score>& scores, size_t most) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // What is no number is behind all that are.
  const auto key = [&](size_t i) {
    const double logit = scores[i].logit;
    return std::pair(!std::isnan(logit), std::isnan(logit) ? 0 : logit);
  };
  std::ranges::stable_sort(order, std::ranges::greater{}, key);
  order.resize(std::min(most, order.size()));
  return order;
}

}  // namespace

size_t RerankJsonBytes(const RerankCall& call) {
  size_t bytes = kMaxRestBytes + call.top_n * kMaxResultBytes;
  for (const std::string& document : call.documents) bytes += document.size();
  return bytes;
}

std::string RerankJson(const RerankCall& call, const std::vector<v1::EmbedResponse>& responses,
                       const std::string& id, const std::string& model, int64_t created) {
  const std::vector<Score> scores = ScoresOf(responses);
  uint64_t tokens = 0;
  for (const v1::EmbedResponse& response : responses) tokens += response.usage().prompt_tokens();
  std::string json = R"({"id":)";
  AppendString(id, &json);
  json.append(R"(,"model":)");
  AppendString(model, &json);
  if (call.form == ScoreForm::kScore) {
    absl::StrAppend(&json, R"(,"object":"list","created":)", created, R"(,"data":[)");
    for (size_t i = 0; i < scores.size(); ++i) {
      absl::StrAppend(&json, i == 0 ? "" : ",", R"({"index":)", i, R"(,"object":"score","score":)");
      AppendFloat(scores[i].value, &json);
      json.push_back('}');
    }
    json.push_back(']');
  } else {
    json.append(R"(,"results":[)");
    bool is_first = true;
    for (const size_t i : Ranked(scores, call.top_n)) {
      absl::StrAppend(&json, is_first ? "" : ",", R"({"index":)", i, R"(,"relevance_score":)");
      is_first = false;
      AppendFloat(scores[i].value, &json);
      if (!call.documents.empty()) {
        absl::StrAppend(&json, R"(,"document":)", call.documents[i]);
      }
      json.push_back('}');
    }
    absl::StrAppend(&json, R"(],"meta":{"api_version":{"version":")",
                    call.form == ScoreForm::kRerankV2 ? 2 : 1, R"("},"tokens":{"input_tokens":)",
                    tokens, R"(,"output_tokens":0}})");
  }
  absl::StrAppend(&json, R"(,"usage":{"prompt_tokens":)", tokens, R"(,"total_tokens":)", tokens,
                  "}}");
  return json;
}

}  // namespace continuo::gateway::openai
