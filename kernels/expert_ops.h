// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/row_ops.h"
#include "kernels/tensor.h"

namespace continuo::kernels {

// How RouteExperts chooses the experts of a row and weighs them.
struct Routing {
  enum class Scores : uint8_t {
    kSoftmax,  // of all logits
    kSigmoid,  // of each logit
  };
  Scores scores = Scores::kSoftmax;
  bool normalise = false;  // the weights of a row are divided by their sum
  // The logits themselves choose, though scores are sigmoids, of which large ones are equal. There
  // is neither a correction nor are there groups then.
  bool chooses_by_logits = false;
  // f32 [num_experts], added to the scores for the choice alone; empty: nothing is.
  Tensor correction = {};
  // The experts are num_groups groups of neighbours. Only those of the top_groups groups that come
  // first are chosen from, by the largest score of a group or, with by_top_two, by the sum of the
  // two largest; of equal groups the lower comes first.
  int num_groups = 1, top_groups = 1;
  bool by_top_two = false;
  float factor = 1;  // of all weights
  // f32 [num_experts]: of the weights of each expert; empty: there is none.
  Tensor expert_factors = {};
};

// The matrices of a product, one an expert, of one shape and format, and their biases.
struct ExpertMatrices {
  ExpertMatrices() = default;
  // Converts from matrices without biases.
  ExpertMatrices(std::span<const Weight> of_experts, Tensor biases = {})
      : weights(of_experts), bias(biases) {}
  ExpertMatrices(const std::vector<Weight>& of_experts, Tensor biases = {})
      : weights(of_experts), bias(biases) {}

  std::span<const Weight> weights;
  Tensor bias = {};  // f32 [num_experts, columns], or empty
};

// CombineExperts adds these to the products of a row's experts. Tensors may be empty.
struct ExpertAddends {
  Tensor bias = {};         // f32 [num_experts, cols], of each expert's product
  Tensor shared = {};       // f32 [rows, cols], of experts that all rows go to
  Tensor shared_gate = {};  // f32 [rows, 1]: logits whose sigmoids `shared` is multiplied by
};

// The experts that each row of a step goes to. An entry is one (row, expert) pair. Entries are
// ordered by expert, and those of an expert by row. RouteExperts fills the device arrays.
struct ExpertRoutes {
  Tensor weights;       // f32 [rows, experts_per_row], of a row's experts by ascending index
  Tensor entries;       // i32 [rows, experts_per_row]: which entry each of those is
  Tensor rows;          // i32 [rows * experts_per_row]: the row of each entry
  Tensor expert_begin;  // i32 [num_experts + 1]: the first entry of each expert, and the end
  // The caller's copy of expert_begin on the host. Products need it where NeedsHostRoutes says so.
  std::span<const int32_t> host_expert_begin = {};
};

// A mixture of experts: routing, products of each expert with its rows, and their weighted sum.
// Rules of all ops: ops.h.
class ExpertOps {
 public:
  virtual ~ExpertOps() = default;

  // Picks the experts of each row: those of the largest scores of its logits (f32 [rows,
  // num_experts]), of equal ones the lower index. Their scores are their weights, as `routing`
  // says. A softmax without correction and groups chooses by the logits themselves. Sums run over
  // ascending indices. NaN counts as -infinity.
  void RouteExperts(const ExpertRoutes& routes, Tensor logits, const Routing& routing);
  // Returns whether products of num_entries entries with such experts need host_expert_begin, for
  // which the caller copies expert_begin out and waits. They are then no part of a graph.
  virtual bool NeedsHostRoutes(DType /*activations*/, std::span<const Weight> /*experts*/,
                               int64_t /*num_entries*/) const {
    return false;
  }
  // out[entry] = weight · x[row] of each entry: x [rows, k], out [entries, k], of one type. For
  // experts whose inputs are weighed instead of their results.
  void WeighInputs(Tensor out, Tensor x, const ExpertRoutes& routes);
  // MatMul of each entry with its expert's weights and bias: out [entries, columns]; x has a row
  // for each row of the step, or, where `by_entry`, for each entry. On the CPU an entry's bits are
  // those that MatMul gives for its row; on any device they do not depend on the other entries if a
  // row's do not.
  void ExpertMatMul(Tensor out, Tensor x, const ExpertMatrices& experts, const ExpertRoutes& routes,
                    bool by_entry);
  // gate = function(x · gatesᵀ) * (x · upsᵀ) of each entry, x as the step's rows, with the bits
  // that ExpertMatMul and GateMul give. `up` is scratch of gate's shape and type.
  void GatedExpertMatMul(Tensor gate, Tensor up, Tensor x, const ExpertMatrices& gates,
                         const ExpertMatrices& ups, const ExpertRoutes& routes,
                         GateFunction function);
  // MatMulSplitK of each entry: x [entries, k], out f32 [entries, columns].
  void ExpertMatMulSplitK(Tensor out, Tensor x, std::span<const Weight> experts,
                          const ExpertRoutes& routes, std::span<const int64_t> split_begin);
  // out[r] = Σ weight · (x[entry] + bias of its expert) over the row's experts, ascending, from 0,
  // and then + shared[r] · sigmoid(shared_gate[r]); each product and sum is rounded. out f32 [rows,
  // cols], x f32 [entries, cols].
  void CombineExperts(Tensor out, Tensor x, const ExpertRoutes& routes,
                      const ExpertAddends& addends = {});

 protected:
  // `rows` outlives this.
  explicit ExpertOps(RowOps& rows) : rows_(rows) {}

  // The arguments of all Do… have been checked, and what is written is not empty. The default of
  // the joined op is two products and GateMul; a device that overrides it may call this for what it
  // does not join.
  virtual void DoGatedExpertMatMul(Tensor gate, Tensor up, Tensor x, const ExpertMatrices& gates,
                                   const ExpertMatrices& ups, const ExpertRoutes& routes,
                                   GateFunction function);

 private:
  virtual void DoRouteExperts(const ExpertRoutes& routes, Tensor logits,
                              const Routing& routing) = 0;
  virtual void DoWeighInputs(Tensor out, Tensor x, const ExpertRoutes& routes) = 0;
  virtual void DoExpertMatMul(Tensor out, Tensor x, const ExpertMatrices& experts,
                              const ExpertRoutes& routes, bool by_entry) = 0;
  virtual void DoExpertMatMulSplitK(Tensor out, Tensor x, std::span<const Weight> experts,
                                    const ExpertRoutes& routes,
                                    std::span<const int64_t> split_begin) = 0;
  virtual void DoCombineExperts(Tensor out, Tensor x, const ExpertRoutes& routes,
                                const ExpertAddends& addends) = 0;

  void CheckExperts(const Tensor& out, const Tensor& x, const ExpertMatrices& matrices,
                    const ExpertRoutes& routes, bool by_entry) const;

  RowOps& rows_;
};

}  // namespace continuo::kernels
