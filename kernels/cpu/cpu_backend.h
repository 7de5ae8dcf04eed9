// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/isa/kernel_table.h"
#include "kernels/cpu/panel_parts.h"
#include "kernels/cpu/read_ahead.h"
#include "kernels/host/numa.h"
#include "kernels/host/scratch.h"
#include "kernels/host/thread_pool.h"

namespace continuo::kernels::cpu {

// The Backend of the host's CPU. Every call has done its work when it returns. A KernelTable does
// the arithmetic; this class divides rows and columns among the threads of its pool, which changes
// no bit since no sum crosses a division. Activations are f32 or bf16; weights, keys and values
// f32, bf16 or f16, weights also packed.
class CpuBackend : public Backend {
 public:
  // Its threads run, and its memory lies, at `place`.
  CpuBackend(const KernelTable& kernels, int num_threads, host::Place place = {});
  ~CpuBackend() override;

  std::string name() const override;
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* data) override;
  void CopyIn(Tensor dst, const void* host) override;
  void CopyOut(void* host, Tensor src) override;
  bool SharesHostMemory() const override { return true; }
  absl::Status Synchronize() override;
  absl::StatusOr<void*> AllocateHost(size_t bytes) override { return Allocate(bytes); }
  void FreeHost(void* data) override { Free(data); }
  void BindThread() override { host::BindThread(place_); }
  void ParallelFor(int n, absl::FunctionRef<void(int)> body) override;

  WeightFormat FormatOf(WeightType type) const override;
  size_t WeightBytes(const Weight& w, std::span<const int64_t> piece_begin) const override;
  void PackRows(const Weight& w, std::span<const int64_t> piece_begin, int64_t first_row,
                const float* rows, int64_t n) override;
  void Embed(Tensor out, const Weight& table, Tensor token_ids, int first_id, float scale) override;
  void RmsNorm(Tensor out, Tensor x, Tensor gain, float eps) override;
  void MatMul(Tensor out, Tensor x, const Weight& w, Tensor bias) override;
  void MatMuls(Tensor x, std::span<const Product> products) override;
  void GatedMatMul(Tensor x, const Product& gate, const Product& up,
                   GateFunction function) override;
  void MatMulPieces(Tensor out, Tensor x, const Weight& w,
                    std::span<const int64_t> piece_begin) override;
  void AddSum(Tensor x, Tensor sum, Tensor bias) override;
  void RopeAngles(Tensor angles, Tensor positions, Tensor frequencies, float scale) override;
  void Rope(Tensor x, Tensor angles, int head_dim) override;
  void WriteKv(const PagedKv& kv, Tensor k, Tensor v, Tensor slots) override;
  void CopyKvBlocks(const PagedKv& kv, Tensor pairs) override;
  void PagedAttention(Tensor out, Tensor q, const PagedKv& kv,
                      const AttentionParams& params) override;
  void SiluMul(Tensor out, Tensor gate, Tensor up) override;
  void GeluMul(Tensor out, Tensor gate, Tensor up) override;
  void SoftCap(Tensor x, float cap) override;
  void GatherRows(Tensor out, Tensor x, Tensor rows) override;
  void RouteExperts(const ExpertRoutes& routes, Tensor logits, bool normalise) override;
  void ExpertMatMul(Tensor out, Tensor x, std::span<const Weight> experts,
                    const ExpertRoutes& routes, bool by_entry) override;
  void GatedExpertMatMul(Tensor gate, Tensor up, Tensor x, std::span<const Weight> gates,
                         std::span<const Weight> ups, const ExpertRoutes& routes,
                         GateFunction function) override;
  void ExpertMatMulPieces(Tensor out, Tensor x, std::span<const Weight> experts,
                          const ExpertRoutes& routes,
                          std::span<const int64_t> piece_begin) override;
  void CombineExperts(Tensor out, Tensor x, const ExpertRoutes& routes) override;

 private:
  // Runs body(begin, end, thread) over parts of [0, n); `cost` is elements touched per unit. Small
  // work stays on the calling thread.
  void ForParts(int64_t n, int64_t cost, absl::FunctionRef<void(int64_t, int64_t, int)> body);

  void ActivateMul(GateLoop loop, Tensor out, Tensor gate, Tensor up);
  // x_rows: the row of x that each row of out is of, all below x.rows(); null: as they come.
  void MultiplyPieces(Tensor out, Tensor x, const Weight& w, std::span<const int64_t> piece_begin,
                      Tensor bias, const int32_t* x_rows);
  // Products with matrices of one packed format; num_rows, x_rows: the rows that they count, and
  // those of x.
  void MultiplyPanels(std::span<const PanelProduct> products, Tensor x, const int32_t* x_rows,
                      int64_t num_rows, std::span<const int64_t> piece_begin);
  PackedRows RoomForRows(const PanelLayout& layout, int64_t rows);
  // Packs rows [first, first + rows).
  void PackX(const PanelLayout& layout, Tensor x, const int32_t* x_rows, int64_t first,
             int64_t rows, const PackedRows& packed);
  // next_weights: what the thread likely reads next, or null.
  void MultiplyPart(const PanelLayout& layout, const PackedRows& packed, const PanelPart& part,
                    const uint8_t* next_weights, int thread);
  // Adds biases to the part's products `gates` and `ups`, [num_rows, stride] each, and writes what
  // its gate makes of their first num_columns to out. Behind ups is room for as much; all of it is
  // scratch afterwards.
  void FinishGated(const PanelPart& part, int64_t num_columns, int64_t stride, float* gates,
                   float* ups);
  // Adds the pieces' sums [num_pieces, num_rows, stride] and a bias, and writes the first
  // num_columns of each row to out from (row, column) on.
  void FinishPieces(Tensor out, int64_t row, int64_t num_rows, int64_t column, int64_t num_columns,
                    int64_t stride, float* pieces, int64_t num_pieces, Tensor bias);
  // Where `gate` is set, with packed `experts` and `ups`: PanelProduct says what out is.
  void MultiplyExperts(Tensor out, Tensor x, std::span<const Weight> experts,
                       const ExpertRoutes& routes, std::span<const int64_t> piece_begin,
                       bool by_entry, GateLoop gate = nullptr, std::span<const Weight> ups = {});
  GateLoop LoopOf(GateFunction function) const;
  // `span_results`: where the item's are kept for MergeSpans; null: out is written.
  void Attend(const AttentionItem& item, Tensor out, Tensor q, const PagedKv& kv,
              const AttentionParams& params, float* span_results, int thread);
  void MergeSpans(const AttentionItem& item, int query, Tensor out, const PagedKv& kv,
                  const AttentionParams& params, float* span_results, int thread);
  // Writes a query's result: `values`, merged, by `sum`. `buffer`: room for one.
  void Conclude(const AttentionItem& item, int query, const float* values, float sum, float* buffer,
                Tensor out, const PagedKv& kv, const AttentionParams& params);

  const KernelTable& kernels_;
  const host::Place place_;
  host::ThreadPool pool_;
  std::unordered_map<void*, size_t> allocations_;  // bytes mapped at each address
  host::Scratch packed_;                           // the packed activations of a MatMul
  PanelParts panel_parts_;                         // of the current products
  std::vector<PanelProduct> panel_products_;       // likewise
  std::vector<host::Scratch> scratch_;             // one per thread
  AttentionPlan attention_plan_;                   // of the current PagedAttention
  std::vector<ReadAhead> read_ahead_;              // one per thread
  host::Scratch span_results_;                     // of its shared items
};

}  // namespace continuo::kernels::cpu
