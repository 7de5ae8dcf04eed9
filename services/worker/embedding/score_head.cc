// SPDX-License-Identifier: Apache-2.0
#include "services/worker/embedding/score_head.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/worker/embedding/host_math.h"
#include "services/worker/model/checkpoint/fingerprint.h"
#include "services/worker/model/checkpoint/safetensors.h"
#include "services/worker/model/checkpoint/stored_types.h"
#include "services/worker/model/checkpoint/tensor_names.h"
#include "services/worker/model/checkpoint/weights.h"

namespace continuo::embedding {
namespace {

using model::StoredTensor;

// Reads rows [row, row + num_rows) of a matrix as f32.
absl::StatusOr<std::vector<float>> ReadRows(const StoredTensor& stored, int64_t row,
                                            int64_t num_rows, int64_t columns) {
  std::vector<float> values(static_cast<size_t>(num_rows * columns));
  if (stored.quantised != nullptr) {
    (void)model::ConvertQuantised(values.data(), kernels::DType::kF32, *stored.quantised, row,
                                  num_rows, 0, columns);
    return values;
  }
  const model::StoredType* const type = model::FindStoredType(stored.dtype);
  if (type == nullptr || stored.is_view() || columns % type->block != 0) {
    return absl::UnimplementedError(absl::StrCat("weights: tensor ", stored.name, " is ",
                                                 stored.dtype, ", whose rows are not read alone"));
  }
  const int64_t row_bytes = columns / type->block * type->bytes;
  (void)type->convert(values.data(), kernels::DType::kF32, stored.bytes.data() + row * row_bytes, 0,
                      num_rows * columns);
  return values;
}

// Reads the tensor MODULE.weight or MODULE.bias of this shape as f32.
absl::StatusOr<std::vector<float>> ReadTensor(const model::Checkpoint& checkpoint,
                                              std::string_view module, std::string_view end,
                                              const std::vector<int64_t>& shape) {
  const std::string name = absl::StrCat(std::string(module), std::string(end));
  const StoredTensor* const stored = checkpoint.Find(name);
  if (stored == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights: ", name, ", of the head of scores, is missing"));
  }
  if (stored->shape != shape) {
    return absl::InvalidArgumentError(absl::StrCat(
        "weights: tensor ", stored->name, " has the shape [", absl::StrJoin(stored->shape, ", "),
        "], the head of scores needs [", absl::StrJoin(shape, ", "), "]"));
  }
  return ReadRows(*stored, 0, shape.size() == 2 ? shape[0] : 1, shape.back());
}

absl::Status CheckShape(const StoredTensor* stored, std::string_view what, int64_t columns) {
  if (stored == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("weights: ", std::string(what), " is missing"));
  }
  if (stored->shape.size() == 2 && stored->shape[0] > 0 && stored->shape[1] == columns) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("weights: tensor ", stored->name, " has the shape [",
                   absl::StrJoin(stored->shape, ", "), "], its rows must have ", columns));
}

// A number as all of its bits.
absl::Hex Bits(double value) { return absl::Hex(std::bit_cast<uint64_t>(value)); }

// The activation between a head's layers.
absl::StatusOr<Activation> ActivationOf(const model::ScoreHeadConfig& head) {
  if (head.form != model::ScoreHeadConfig::Form::kPrediction) return Activation::kTanh;
  switch (head.activation) {
    case model::Activation::kGeluErf:
      return Activation::kGelu;
    case model::Activation::kGeluTanh:
      return Activation::kGeluTanh;
    default:
      return absl::UnimplementedError("the activation of the head of scores is not known");
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ScoreHead>> ScoreHead::Load(
    const std::string& path, const std::optional<ScoreTokens>& tokens,
    const model::ModelConfig& config) {
  std::shared_ptr<ScoreHead> head(new ScoreHead);
  ASSIGN_OR_RETURN(const model::Checkpoint checkpoint, model::Checkpoint::Open(path));
  RETURN_IF_ERROR(tokens.has_value() ? head->ReadTokens(checkpoint, *tokens, config)
                                     : head->ReadHead(checkpoint, config));
  head->digest_ = head->MakeDigest();
  return head;
}

absl::Status ScoreHead::ReadTokens(const model::Checkpoint& checkpoint, const ScoreTokens& tokens,
                                   const model::ModelConfig& config) {
  const int64_t columns = config.hidden_size;
  const StoredTensor* const stored = model::FindHead(config, checkpoint);
  RETURN_IF_ERROR(CheckShape(stored, "the head, lm_head.weight,", columns));
  for (const int32_t id : {tokens.relevant, tokens.irrelevant.value_or(0)}) {
    if (id >= 0 && id < stored->shape[0]) continue;
    return absl::InvalidArgumentError(absl::StrCat("weights: tensor ", stored->name, " has ",
                                                   stored->shape[0], " rows, a score needs row ",
                                                   id));
  }
  ASSIGN_OR_RETURN(relevant_, ReadRows(*stored, tokens.relevant, 1, columns));
  if (tokens.irrelevant.has_value()) {
    ASSIGN_OR_RETURN(irrelevant_, ReadRows(*stored, *tokens.irrelevant, 1, columns));
  }
  logit_scale_ = config.logit_scale;
  final_softcap_ = static_cast<double>(config.final_softcap);
  return absl::OkStatus();
}

absl::Status ScoreHead::ReadHead(const model::Checkpoint& checkpoint,
                                 const model::ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const model::ScoreHeadNames names = model::NamesOfScoreHead(config.score_head);
  if (config.encoder.is_encoder) {
    num_token_types_ = config.encoder.num_token_types;
    pooling_ = config.score_head.reads_mean ? Pooling::kMean : Pooling::kFirst;
  }
  if (!names.dense.empty()) {
    dense_.emplace();
    dense_->in = dense_->out = config.hidden_size;
    ASSIGN_OR_RETURN(dense_->activation, ActivationOf(config.score_head));
    ASSIGN_OR_RETURN(dense_->weight,
                     ReadTensor(checkpoint, names.dense, ".weight", {hidden, hidden}));
    dense_->bias.resize(static_cast<size_t>(hidden));
    if (names.dense_bias) {
      ASSIGN_OR_RETURN(dense_->bias, ReadTensor(checkpoint, names.dense, ".bias", {hidden}));
    }
  }
  if (!names.norm.empty()) {
    norm_eps_ = static_cast<double>(config.norm_eps);
    ASSIGN_OR_RETURN(gain_, ReadTensor(checkpoint, names.norm, ".weight", {hidden}));
    shift_.resize(static_cast<size_t>(hidden));
    if (config.norm_bias) {
      ASSIGN_OR_RETURN(shift_, ReadTensor(checkpoint, names.norm, ".bias", {hidden}));
    }
  }
  const std::string product = absl::StrCat(std::string(names.product), ".weight");
  const StoredTensor* const stored = checkpoint.Find(product);
  RETURN_IF_ERROR(CheckShape(stored, absl::StrCat("the head of scores, ", product, ","), hidden));
  if (stored->shape[0] != 1) {
    return absl::UnimplementedError(absl::StrCat("weights: tensor ", stored->name, " has ",
                                                 stored->shape[0],
                                                 " labels; a score is made of one"));
  }
  ASSIGN_OR_RETURN(relevant_, ReadRows(*stored, 0, 1, hidden));
  if (names.product_bias) {
    ASSIGN_OR_RETURN(const std::vector<float> bias,
                     ReadTensor(checkpoint, names.product, ".bias", {1}));
    bias_ = static_cast<double>(bias[0]);
  }
  return absl::OkStatus();
}

std::string ScoreHead::MakeDigest() const {
  constexpr const char* kPoolings[] = {"last", "first", "mean"};
  std::string text =
      absl::StrCat("score=", DigestOfValues(relevant_), ",", DigestOfValues(irrelevant_),
                   " pooling=", kPoolings[static_cast<size_t>(pooling_)], " bias=", Bits(bias_));
  if (dense_.has_value()) absl::StrAppend(&text, dense_->Summary());
  absl::StrAppend(&text, " norm=", Bits(norm_eps_), ",", DigestOfValues(gain_), ",",
                  DigestOfValues(shift_));
  return model::ToHex(model::DigestOf(text));
}

double ScoreHead::LogitOf(std::span<const float> row, std::span<const float> state) const {
  const double logit = Dot(row, state) * logit_scale_;
  return final_softcap_ > 0 ? final_softcap_ * Tanh(logit / final_softcap_) : logit;
}

double ScoreHead::Logit(std::span<const float> state) const {
  CONTINUO_CHECK(state.size() == relevant_.size());
  std::vector<float> made;
  if (dense_.has_value()) {
    made = dense_->Apply(state);
    if (!gain_.empty()) Normalise(made);
    state = made;
  }
  const double logit = LogitOf(relevant_, state) + bias_;
  return irrelevant_.empty() ? logit : logit - LogitOf(irrelevant_, state);
}

void ScoreHead::Normalise(std::span<float> values) const {
  const auto count = static_cast<double>(values.size());
  const double mean = Sum(values) / count;
  const double scale = 1 / std::sqrt(SumOfSquares(values, mean) / count + norm_eps_);
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = (static_cast<double>(values[i]) - mean) * scale;
    values[i] =
        static_cast<float>(value * static_cast<double>(gain_[i]) + static_cast<double>(shift_[i]));
  }
}

float ScoreHead::ScoreOf(double logit) { return static_cast<float>(Sigmoid(logit)); }

}  // namespace continuo::embedding
