// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/embedding/dense_layer.h"
#include "services/worker/embedding/sentence_modules.h"

namespace continuo::embedding {

// Makes the vector of an input from its final hidden state, pooled: dense layers, the cut to fewer
// dimensions, and the scaling to length 1. Sums are of doubles in one order, so a vector depends on
// its state alone (exactness: no-borrowed-bits). Immutable.
class EmbeddingHead {
 public:
  // Reads the dense layers' weights below `dir`. `state_size` is the model's hidden size.
  // InvalidArgument names the file, the tensor or the field that does not fit.
  static absl::StatusOr<std::shared_ptr<const EmbeddingHead>> Load(const std::string& dir,
                                                                   const SentenceModules& modules,
                                                                   int state_size);

  int state_size() const { return state_size_; }
  // The number of values of a vector that is not cut.
  int dimensions() const;
  Pooling pooling() const { return modules_.pooling; }
  // Vectors are scaled to length 1 where a request does not say.
  bool normalises() const { return modules_.normalises; }
  // Ascending by name.
  const std::vector<Prompt>& prompts() const { return modules_.prompts; }
  // Null where there is no prompt of that name.
  const Prompt* FindPrompt(std::string_view name) const;
  const std::string& default_prompt() const { return modules_.default_prompt; }

  // Returns the first `dimensions` values of the vector, scaled to length 1 if `normalises`; a
  // vector of zeros stays. 1 ≤ dimensions ≤ dimensions(); state has state_size() values.
  std::vector<float> Apply(std::span<const float> state, int dimensions, bool normalises) const;

  // What a vector depends on here: layers, weights, prompts. Part of the worker's fingerprint.
  const std::string& digest() const { return digest_; }

 private:
  EmbeddingHead(SentenceModules modules, int state_size)
      : modules_(std::move(modules)), state_size_(state_size) {}
  std::string MakeDigest() const;

  SentenceModules modules_;
  int state_size_;
  std::vector<DenseLayer> layers_;
  std::string digest_;
};

}  // namespace continuo::embedding
