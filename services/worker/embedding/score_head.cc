// SPDX-License-Identifier: Apache-2.0
#include "services/worker/embedding/score_head.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/worker/embedding/host_math.h"
#include "services/worker/model/checkpoint/fingerprint.h"
#include "services/worker/model/checkpoint/safetensors.h"
#include "services/worker/model/checkpoint/stored_types.h"
#include "services/worker/model/checkpoint/weights.h"

namespace continuo::embedding {
namespace {

using model::StoredTensor;

// Reads row `row` of a matrix as f32.
absl::StatusOr<std::vector<float>> ReadRow(const StoredTensor& stored, int64_t row,
                                           int64_t columns) {
  std::vector<float> values(static_cast<size_t>(columns));
  if (stored.quantised != nullptr) {
    (void)model::ConvertQuantised(values.data(), kernels::DType::kF32, *stored.quantised, row, 1, 0,
                                  columns);
    return values;
  }
  const model::StoredType* const type = model::FindStoredType(stored.dtype);
  if (type == nullptr || stored.is_view() || columns % type->block != 0) {
    return absl::UnimplementedError(absl::StrCat("weights: tensor ", stored.name, " is ",
                                                 stored.dtype, ", whose rows are not read alone"));
  }
  const int64_t row_bytes = columns / type->block * type->bytes;
  (void)type->convert(values.data(), kernels::DType::kF32, stored.bytes.data() + row * row_bytes, 0,
                      columns);
  return values;
}

absl::Status CheckShape(const StoredTensor* stored, const char* what, int64_t columns) {
  if (stored == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("weights: ", what, " is missing"));
  }
  if (stored->shape.size() == 2 && stored->shape[0] > 0 && stored->shape[1] == columns) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("weights: tensor ", stored->name, " has the shape [",
                   absl::StrJoin(stored->shape, ", "), "], its rows must have ", columns));
}

std::string DigestOfRow(const std::vector<float>& values) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(values.data());
  return model::ToHex(
      model::DigestOf(std::span<const uint8_t>(bytes, values.size() * sizeof(float))));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ScoreHead>> ScoreHead::Load(
    const std::string& path, const std::optional<ScoreTokens>& tokens,
    const model::ModelConfig& config) {
  std::shared_ptr<ScoreHead> head(new ScoreHead);
  ASSIGN_OR_RETURN(const model::Checkpoint checkpoint, model::Checkpoint::Open(path));
  const int64_t columns = config.hidden_size;
  if (tokens.has_value()) {
    const StoredTensor* const stored = model::FindHead(config, checkpoint);
    RETURN_IF_ERROR(CheckShape(stored, "the head, lm_head.weight,", columns));
    for (const int32_t id : {tokens->relevant, tokens->irrelevant.value_or(0)}) {
      if (id >= 0 && id < stored->shape[0]) continue;
      return absl::InvalidArgumentError(absl::StrCat("weights: tensor ", stored->name, " has ",
                                                     stored->shape[0], " rows, a score needs row ",
                                                     id));
    }
    ASSIGN_OR_RETURN(head->relevant_, ReadRow(*stored, tokens->relevant, columns));
    if (tokens->irrelevant.has_value()) {
      ASSIGN_OR_RETURN(head->irrelevant_, ReadRow(*stored, *tokens->irrelevant, columns));
    }
    head->logit_scale_ = config.logit_scale;
    head->final_softcap_ = static_cast<double>(config.final_softcap);
  } else {
    const StoredTensor* const stored = model::FindScoreHead(checkpoint);
    RETURN_IF_ERROR(CheckShape(stored, "the head of scores, score.weight,", columns));
    if (stored->shape[0] != 1) {
      return absl::UnimplementedError(absl::StrCat("weights: tensor ", stored->name, " has ",
                                                   stored->shape[0],
                                                   " labels; a score is made of one"));
    }
    ASSIGN_OR_RETURN(head->relevant_, ReadRow(*stored, 0, columns));
  }
  head->digest_ = model::ToHex(model::DigestOf(
      absl::StrCat("score=", DigestOfRow(head->relevant_), ",", DigestOfRow(head->irrelevant_))));
  return head;
}

double ScoreHead::LogitOf(std::span<const float> row, std::span<const float> state) const {
  const double logit = Dot(row, state) * logit_scale_;
  return final_softcap_ > 0 ? final_softcap_ * Tanh(logit / final_softcap_) : logit;
}

double ScoreHead::Logit(std::span<const float> state) const {
  CONTINUO_CHECK(state.size() == relevant_.size());
  const double logit = LogitOf(relevant_, state);
  return irrelevant_.empty() ? logit : logit - LogitOf(irrelevant_, state);
}

float ScoreHead::ScoreOf(double logit) { return static_cast<float>(Sigmoid(logit)); }

}  // namespace continuo::embedding
