// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/worker/embedding/dense_layer.h"
#include "services/worker/embedding/sentence_modules.h"
#include "services/worker/model/checkpoint/safetensors.h"
#include "services/worker/model/description/config.h"

namespace continuo::embedding {

// What a worker's model of scores is made of.
struct ScoreOptions {
  // Unset: the head of scores, or else the tokens "yes" and "no".
  std::optional<ScoreTokens> tokens;
  bool has_head = false;    // of scores
  bool lowercases = false;  // as SentenceModules has it
  std::string instruction;  // of a request without one; empty: its template's
};

// Makes the score of a pair of texts from the final hidden state that its pooling says: the sigmoid
// of the difference of two tokens' logits, which is the softmax of the two, or of one product where
// the files have a head of scores, which may have layers in front of it (ScoreHeadConfig). Sums are
// of doubles in one order, so a score depends on its state alone (exactness: no-borrowed-bits).
// Immutable.
class ScoreHead {
 public:
  // Reads the rows of the head that belong to `tokens`, or without them the head of scores, of the
  // model at `path`, a folder or a GGUF file, whose configuration is `config`. InvalidArgument
  // names the tensor that is missing or has another shape, Unimplemented what is stored in a way
  // that is not read here.
  static absl::StatusOr<std::shared_ptr<const ScoreHead>> Load(
      const std::string& path, const std::optional<ScoreTokens>& tokens,
      const model::ModelConfig& config);

  int state_size() const { return static_cast<int>(relevant_.size()); }
  // Which of a pair's states is read.
  Pooling pooling() const { return pooling_; }
  // The number of parts of a text that the model tells apart; 0: none.
  int num_token_types() const { return num_token_types_; }
  // What the score is the sigmoid of. It orders states whose scores are the same float. `state` has
  // state_size() values.
  double Logit(std::span<const float> state) const;
  // The score of a logit, from 0 to 1.
  static float ScoreOf(double logit);
  // ScoreOf(Logit(state)).
  float Apply(std::span<const float> state) const { return ScoreOf(Logit(state)); }
  // The weights that a score depends on. Part of the worker's fingerprint.
  const std::string& digest() const { return digest_; }

 private:
  ScoreHead() = default;
  absl::Status ReadTokens(const model::Checkpoint& checkpoint, const ScoreTokens& tokens,
                          const model::ModelConfig& config);
  absl::Status ReadHead(const model::Checkpoint& checkpoint, const model::ModelConfig& config);
  double LogitOf(std::span<const float> row, std::span<const float> state) const;
  // LayerNorm by gain_ and shift_, in place.
  void Normalise(std::span<float> values) const;
  std::string MakeDigest() const;

  Pooling pooling_ = Pooling::kLast;
  int num_token_types_ = 0;
  std::optional<DenseLayer> dense_;  // in front of the product
  // The gain and the shift of the norm behind `dense_` have [hidden] values each, or none where
  // there is no norm.
  std::vector<float> gain_, shift_;
  double norm_eps_ = 0;
  std::vector<float> relevant_;    // [hidden]
  std::vector<float> irrelevant_;  // [hidden]; empty: nothing is subtracted
  double bias_ = 0;                // of the product
  // As ModelConfig has them; those of a head of scores are 1 and 0.
  double logit_scale_ = 1, final_softcap_ = 0;
  std::string digest_;
};

}  // namespace continuo::embedding
