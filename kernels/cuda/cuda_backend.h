// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/attention/query_tile.h"
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/fp8.h"
#include "kernels/cuda/runtime/graph_cache.h"
#include "kernels/cuda/runtime/pinned_buffer.h"
#include "kernels/cuda/runtime/stream.h"
#include "kernels/host/thread_pool.h"

namespace continuo::kernels::cuda {

// Raised whenever a kernel's bits change for some input; with `deterministic` part of the worker's
// fingerprint.
inline constexpr int kCudaArithmeticVersion = 4;

struct CudaBackendOptions {
  Device device;
  int num_threads = 1;  // of the host, for ParallelFor
  // Each row's bits do not depend on the others.
  bool deterministic = false;
  bool fp8_fast_accumulation = false;       // as MatMulOptions has it
  size_t scratch_bytes = size_t{64} << 20;  // that ops work with; more where one needs it
  // Whether dense products of few rows are kernels of ours, where nothing is `deterministic`.
  // Unless given: where that is faster, which is measured at the first one of a shape; never those
  // of MatMul.
  std::optional<bool> few_rows;
  // Whether attention of prompts is by warpgroups' products where the device has them (compute
  // capability 9.0), nothing is `deterministic`, and keys and values are no bytes.
  bool warpgroup_attention = false;
  // Of int8 or int4 weights that are made bf16 at a time, for a product of many rows: little enough
  // to stay in the device's second cache (50 MB on an H100) until they are read.
  size_t slice_bytes = size_t{16} << 20;
};

// The Backend of one CUDA device. Activations are f32, bf16 or f16, weights of the same type, or
// f32, int8 or int4 with bf16 activations, which stay bf16, or fp8 with bf16 activations, which are
// made fp8 row by row; Embed makes f32 of any. Keys and values are bytes, f16 where activations
// are, or else f32 or bf16. MatMulPieces sums K in one go: its result depends on the number of
// ranks.
//
// The first call that fails is kept, later ones do nothing, and Synchronize() tells of it.
class CudaBackend : public Backend {
 public:
  // ResourceExhausted where the device has not enough memory for workspaces.
  static absl::StatusOr<std::unique_ptr<CudaBackend>> Make(const CudaBackendOptions& options);
  ~CudaBackend() override;

  int device() const { return options_.device.index; }
  cudaStream_t stream() const { return stream_.get(); }
  const Stream& stream_object() const { return stream_; }  // whose handle that is

  std::string name() const override;
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* data) override;
  void CopyIn(Tensor dst, const void* host) override;
  void CopyOut(void* host, Tensor src) override;
  absl::Status Synchronize() override;
  int64_t Mark() override;
  absl::Status WaitFor(int64_t mark) override;
  double TakeBusySeconds() override;
  absl::StatusOr<void*> AllocateHost(size_t bytes) override;
  void FreeHost(void* data) override;
  void ParallelFor(int n, absl::FunctionRef<void(int)> body) override;
  // As CUDA graphs, from the second time on.
  absl::Status Repeat(std::span<const int64_t> key,
                      absl::FunctionRef<absl::Status()> work) override;
  void ForgetRepeated() override;

  bool Computes(WeightType type) const override;
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
  void AddSumNorm(Tensor out, Tensor x, Tensor sum, Tensor bias, Tensor gain, float eps) override;
  void RopeAngles(Tensor angles, Tensor positions, Tensor frequencies, float scale) override;
  void Rope(Tensor x, Tensor angles, int head_dim) override;
  bool Keeps(DType type, DType activations) const override;
  void WriteKv(const PagedKv& kv, Tensor k, Tensor v, Tensor slots) override;
  void RotateAndWriteKv(const PagedKv& kv, Tensor q, Tensor k, Tensor v, Tensor slots,
                        const HeadRotation& how) override;
  void CopyKvBlocks(const PagedKv& kv, Tensor pairs) override;
  void PagedAttention(Tensor out, Tensor q, const PagedKv& kv,
                      const AttentionParams& params) override;
  void SiluMul(Tensor out, Tensor gate, Tensor up) override;
  void GeluMul(Tensor out, Tensor gate, Tensor up) override;
  void SoftCap(Tensor x, float cap) override;
  void GatherRows(Tensor out, Tensor x, Tensor rows) override;
  void RouteExperts(const ExpertRoutes& routes, Tensor logits, bool normalise) override;
  bool WaitsForExperts(DType activations, std::span<const Weight> experts,
                       int64_t num_entries) const override;
  void ExpertMatMul(Tensor out, Tensor x, std::span<const Weight> experts,
                    const ExpertRoutes& routes, bool by_entry) override;
  void ExpertMatMulPieces(Tensor out, Tensor x, std::span<const Weight> experts,
                          const ExpertRoutes& routes,
                          std::span<const int64_t> piece_begin) override;
  void CombineExperts(Tensor out, Tensor x, const ExpertRoutes& routes) override;
  // False beyond kMaxDraws draws, for vocabularies above 2^20 and for lists above 32 MiB.
  bool DrawTokens(std::span<DrawnToken> drawn, Tensor tokens, Tensor logits, Tensor row_tokens,
                  const DrawBatch& batch) override;
  void TakeTokens(Tensor ids, Tensor tokens) override;

 private:
  CudaBackend(const CudaBackendOptions& options, Stream stream)
      : options_(options),
        stream_(std::move(stream)),
        pool_(options.num_threads),
        graphs_(options.device.index) {}

  // Calls `call`, which enqueues work and returns a cudaError_t, unless something has failed.
  template <typename Call>
  void Enqueue(const char* what, Call call);
  void Keep(const absl::Status& status);
  // In front of what may be the first work behind a mark, outside of a graph.
  void BeginPart() {
    if (measures_busy_ && !part_begun_) RecordBegin();
  }
  void RecordBegin();
  // At least so many bytes for one op at a time; null where they are not to be had.
  void* Scratch(size_t bytes);
  // Products of x; of any types, in the way that fits (cuda_products.cc). alike: the same way on
  // every rank.
  void Multiply(Tensor x, std::span<const Product> products, std::span<const int64_t> piece_begin,
                bool alike);
  void MultiplyOne(Tensor x, const Product& product, std::span<const int64_t> piece_begin,
                   bool alike);
  void MultiplyDense(Tensor x, const Product& product);
  bool GoByFewRows(Tensor x, std::span<const Product> products, bool alike);
  // Waits for some twenty products where it does not know yet.
  bool AreFewRowsFaster(Tensor x, std::span<const Product> products);
  void MultiplyFewRows(Tensor x, std::span<const Product> products,
                       std::span<const int64_t> piece_begin);
  // Of int8 and int4: whether what the matrix stands for is made first, in bf16.
  bool GoesWidened(Tensor x, const Product& product) const;
  int64_t SliceColumns(int64_t k) const;
  void MultiplyWidened(Tensor x, const Product& product, std::span<const int64_t> piece_begin);
  void PackFp8(const Weight& w, int64_t first_row, const float* rows, int64_t n);
  void MultiplyFp8(Tensor x, std::span<const Product> products);
  // Calls an op that writes x; where products in e4m3 may come next with scratch in which it is to
  // leave x so, else without memory.
  void WithFp8Rows(Tensor x, absl::FunctionRef<void(const Fp8Rows&)> op);
  // PagedAttention of some of the sequences, on tensor cores. single: each has one row.
  void TileAttentionOf(Tensor out, Tensor q, const PagedKv& kv, const AttentionStep& step,
                       bool single);
  // By way of f32 sums [out.rows(), columns filled up].
  void MultiplyFp8Apart(Tensor out, float* sums, const Fp8Matrix& x, const Fp8Matrix& w,
                        Tensor bias, bool has_scales);
  void EmbedQuantised(Tensor out, const Weight& table, Tensor token_ids, int first_id, float scale);
  void MultiplyExperts(Tensor out, Tensor x, std::span<const Weight> experts,
                       const ExpertRoutes& routes, std::span<const int64_t> piece_begin,
                       bool by_entry);
  // Waits for the device, once for all products of a layer; nothing where that fails.
  const std::vector<int32_t>& ReadExpertBegin(Tensor expert_begin);

  const CudaBackendOptions options_;
  Stream stream_;
  host::ThreadPool pool_;
  std::unique_ptr<cuda::MatMul> matmul_;
  std::map<std::array<int64_t, 7>, bool> few_rows_faster_;  // by rows, k, types and columns
  GraphCache graphs_;
  std::unordered_map<void*, DeviceBuffer> allocations_;
  std::unordered_map<void*, PinnedBuffer> host_allocations_;
  DeviceBuffer scratch_;
  std::vector<DeviceBuffer> smaller_scratch_;  // that graphs and work under way know
  // What CopyIn has been given, a ring. Counted from the start: bytes put there, and those of them
  // that have been copied for sure.
  PinnedBuffer staging_;
  uint64_t staged_ = 0, copied_ = 0;
  struct Point {
    std::optional<Event> event;  // timed where busy is measured
    uint64_t staged = 0;
    bool has_begun = false;  // so its part is to be counted
  };
  std::array<Point, 4> points_;
  // Where the parts in front of the points begin and of the one behind the last, where busy is
  // measured.
  std::array<std::optional<Event>, 5> begins_;
  int64_t num_marks_ = 0;
  bool measures_busy_ = false, part_begun_ = false;
  double busy_seconds_ = 0;
  // ExpertRoutes::expert_begin that the host has read, and where it lies on the device, until
  // anything may write there: routes of the next layer, in the same arrays, or a copy.
  struct {
    const void* device = nullptr;
    std::vector<int32_t> expert_begin;
  } known_routes_;
  bool packs_fp8_ = false;
  // Activations whose rows scratch begins with, in e4m3 as MultiplyFp8 puts them there: what the
  // last op wrote. Any other op may write either.
  struct {
    const void* x = nullptr;
    int64_t rows = 0, k = 0;
  } known_fp8_;
  absl::Status failure_;
};

}  // namespace continuo::kernels::cuda
