// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/row_ops.h"
#include "kernels/tensor.h"

namespace continuo::kernels {

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

  // Picks the experts of each row: those of the largest of its logits (f32 [rows, num_experts]), of
  // equal ones the lower index. Their weights are softmax(logits) over all experts, divided by
  // their own sum if `normalise`. Sums run over ascending indices. NaN counts as -infinity.
  void RouteExperts(const ExpertRoutes& routes, Tensor logits, bool normalise);
  // Returns whether products of num_entries entries with such experts need host_expert_begin, for
  // which the caller copies expert_begin out and waits. They are then no part of a graph.
  virtual bool NeedsHostRoutes(DType /*activations*/, std::span<const Weight> /*experts*/,
                               int64_t /*num_entries*/) const {
    return false;
  }
  // MatMul of each entry with its expert's weights: out [entries, columns]; x has a row for each
  // row of the step, or, where `by_entry`, for each entry. Experts have one shape and format. On
  // the CPU an entry's bits are those that MatMul gives for its row; on any device they do not
  // depend on the other entries if a row's do not.
  void ExpertMatMul(Tensor out, Tensor x, std::span<const Weight> experts,
                    const ExpertRoutes& routes, bool by_entry);
  // gate = function(x · gatesᵀ) * (x · upsᵀ) of each entry, x as the step's rows, with the bits
  // that ExpertMatMul and GateMul give. `up` is scratch of gate's shape and type.
  void GatedExpertMatMul(Tensor gate, Tensor up, Tensor x, std::span<const Weight> gates,
                         std::span<const Weight> ups, const ExpertRoutes& routes,
                         GateFunction function);
  // MatMulSplitK of each entry: x [entries, k], out f32 [entries, columns].
  void ExpertMatMulSplitK(Tensor out, Tensor x, std::span<const Weight> experts,
                          const ExpertRoutes& routes, std::span<const int64_t> split_begin);
  // out[r] = Σ weight · x[entry] over the row's experts, ascending, from 0; each product and sum is
  // rounded. out f32 [rows, cols], x f32 [entries, cols].
  void CombineExperts(Tensor out, Tensor x, const ExpertRoutes& routes);

 protected:
  // `rows` outlives this.
  explicit ExpertOps(RowOps& rows) : rows_(rows) {}

  // The arguments of all Do… have been checked, and what is written is not empty. The default of
  // the joined op is two products and GateMul; a device that overrides it may call this for what it
  // does not join.
  virtual void DoGatedExpertMatMul(Tensor gate, Tensor up, Tensor x, std::span<const Weight> gates,
                                   std::span<const Weight> ups, const ExpertRoutes& routes,
                                   GateFunction function);

 private:
  virtual void DoRouteExperts(const ExpertRoutes& routes, Tensor logits, bool normalise) = 0;
  virtual void DoExpertMatMul(Tensor out, Tensor x, std::span<const Weight> experts,
                              const ExpertRoutes& routes, bool by_entry) = 0;
  virtual void DoExpertMatMulSplitK(Tensor out, Tensor x, std::span<const Weight> experts,
                                    const ExpertRoutes& routes,
                                    std::span<const int64_t> split_begin) = 0;
  virtual void DoCombineExperts(Tensor out, Tensor x, const ExpertRoutes& routes) = 0;

  void CheckExperts(const Tensor& out, const Tensor& x, std::span<const Weight> experts,
                    const ExpertRoutes& routes, bool by_entry) const;

  RowOps& rows_;
};

}  // namespace continuo::kernels
