// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/worker/model/checkpoint/weights.h"

namespace continuo::model {

// Collects the specs of ListWeights, in the order of the calls.
class Lister {
 public:
  void Matrix(const std::string& name, int64_t out, int64_t in, Cut cut, kernels::Weight& w) {
    specs_.push_back({.name = absl::StrCat(name, ".weight"),
                      .shape = {out, in},
                      .rows = {0, out},
                      .cut = cut,
                      .matrix = &w});
  }
  void Vector(std::string name, int64_t n, Cut cut, kernels::Tensor& tensor) {
    specs_.push_back(
        {.name = std::move(name), .shape = {n}, .rows = {0, n}, .cut = cut, .vector = &tensor});
  }
  // Adds a vector that is the next row of `stack`.
  void Row(std::string name, int64_t n, Cut cut, kernels::Tensor& stack) {
    Vector(std::move(name), n, cut, stack);
    last().stacked_vector = &stack;
  }
  void Add(WeightSpec spec) { specs_.push_back(std::move(spec)); }
  struct Rows {
    int64_t count;
    Cut cut;
    kernels::Weight& w;
  };
  // Adds several matrices that are stored as one, stacked as rows.
  void Joined(const std::string& name, int64_t in, std::initializer_list<Rows> parts) {
    int64_t out = 0, begin = 0;
    for (const Rows& part : parts) out += part.count;
    for (const Rows& part : parts) {
      specs_.push_back({.name = absl::StrCat(name, ".weight"),
                        .shape = {out, in},
                        .rows = {begin, begin + part.count},
                        .cut = part.cut,
                        .matrix = &part.w});
      begin += part.count;
    }
  }

  // Says where the last n specs lie if the device joins them.
  void JoinLast(size_t n, kernels::Weight& matrix, kernels::Tensor& vector) {
    for (WeightSpec& spec : std::span(specs_).last(n)) {
      if (spec.matrix != nullptr) {
        spec.joined_matrix = &matrix;
      } else {
        spec.joined_vector = &vector;
      }
    }
  }

  WeightSpec& last() { return specs_.back(); }
  std::vector<WeightSpec> Take() { return std::move(specs_); }

 private:
  std::vector<WeightSpec> specs_;
};

// Adds the tensors of a layer's experts; `layer` is "model.layers.0.".
void ListExperts(const ModelConfig& config, const std::string& layer, ExpertsWeights& weights,
                 Lister& list);

// Adds the tensors that a layer with state has in place of attention's, the output projection too.
void ListStates(const ModelConfig& config, const std::string& layer, LayerWeights& weights,
                Lister& list);

}  // namespace continuo::model
