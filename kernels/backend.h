// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/sampling.h"
#include "kernels/tensor.h"

namespace continuo::kernels {

// Raised whenever any op's bits change for some input; part of the worker's fingerprint.
inline constexpr int kArithmeticVersion = 3;

// Where tensor parallelism splits K, K is cut into this many pieces whatever the number of ranks
// (exactness: fixed-k-order). Ranks own whole subtrees, so sizes 1, 2, 4 and 8 give the same bits.
inline constexpr int kNumPieces = 8;

// Tokens whose attention is reduced by itself before spans are merged in ascending order
// (exactness: fixed-attention-chunks). Independent of the KV cache's block size.
inline constexpr int kAttentionSpan = 128;

// Elements that a KV cache of a type keeps for one position and head. Bytes have a scale, too.
constexpr int64_t KvRowElements(DType dtype, int64_t head_dim) {
  return SizeOf(dtype) == 1 ? head_dim + static_cast<int64_t>(sizeof(float)) : head_dim;
}

// Where each sequence of a step keeps its keys and values. All device arrays.
struct PagedKv {
  // [num_blocks, num_kv_heads, 2 * block_size * KvRowElements]: a head's keys of the block's
  // positions, then its values, which are read soon after. f32, bf16 or f16; i8 and f8: of each the
  // rows, then their scales, f32 — an element is its byte's number times the scale, the largest of
  // a row is ±127 or, of f8, ±448.
  Tensor cache;
  int block_size = 0;   // positions
  Tensor block_tables;  // [num_seqs, max_blocks] i32, -1 padded
  Tensor kv_len;        // [num_seqs] i32: tokens in the cache, this step's included
  Tensor query_begin;   // [num_seqs + 1] i32: rows of each sequence, back to back
  int num_single = 0;   // so many sequences, the first ones, have one row each; others may, too
};

// What num_single is for such a query_begin.
inline int NumSingle(std::span<const int32_t> query_begin) {
  size_t n = 0;
  while (n + 1 < query_begin.size() && query_begin[n + 1] == query_begin[n] + 1) ++n;
  return static_cast<int>(n);
}

struct AttentionParams {
  int num_heads = 0;     // of q and out: [rows, num_heads * head_dim]
  int num_kv_heads = 0;  // of keys and values
  int head_dim = 0;
  // Query head h of this rank reads kv head (first_head + h) / heads_per_kv_head - first_kv_head;
  // with one rank both firsts are 0.
  int heads_per_kv_head = 1;
  int first_head = 0, first_kv_head = 0;
  float scale = 1.0f;  // of q·k
  // Where it is not 0, a scaled score s becomes softcap · tanh(s / softcap).
  float softcap = 0.0f;
  int window = 0;  // a query at p sees positions in (p - window, p]; 0: all up to p
};

// Which experts each row of a step goes to. An entry is one (row, expert) pair; entries are ordered
// by expert, those of an expert by row. All device arrays; RouteExperts fills them.
struct ExpertRoutes {
  Tensor weights;       // f32 [rows, experts_per_row], of a row's experts by ascending index
  Tensor entries;       // i32 [rows, experts_per_row]: which entry each of those is
  Tensor rows;          // i32 [rows * experts_per_row]: the row of each entry
  Tensor expert_begin;  // i32 [num_experts + 1]: the first entry of each expert, and the end
};

// out = x · wᵀ + bias, as Backend::MatMul has it.
struct Product {
  Tensor out;
  Weight w;
  Tensor bias;
};

// What becomes of a step's queries and keys before attention: per head of q_gain's and k_gain's
// length RmsNorm with eps, where they are not empty, then Rope.
struct HeadRotation {
  Tensor q_gain, k_gain;
  float eps = 0;
  Tensor angles;
  int head_dim = 0;
};

// What a gate becomes before it is multiplied: as Backend::SiluMul has it, or GeluMul (tanh form).
enum class GateFunction { kSilu, kGelu };

// One device and one in-order queue of work. Calls enqueue; Synchronize() and WaitFor() wait for
// it. So may products: at the first one of a shape that is no part of Repeat, to find out what is
// fastest, and where WaitsForExperts says so. Not thread-safe: each rank owns its own Backend.
//
// Shapes are row-major; `rows` is the number of tokens in the step. Activations are f32, bf16 or,
// where f16 is computed with, f16, as the tensors say; sums are f32, rounded to the output's type
// once, at the end. Every row's result is independent of the other rows, of their number and of the
// number of threads.
class Backend {
 public:
  virtual ~Backend() = default;

  // "cpu/avx2": device and instruction-set path, part of the worker's fingerprint.
  virtual std::string name() const = 0;

  // Memory, 64-byte aligned, zeroed. ResourceExhausted with the number of bytes where there is
  // not enough.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual void Free(void* data) = 0;
  virtual void CopyIn(Tensor dst, const void* host) = 0;
  virtual void CopyOut(void* host, Tensor src) = 0;
  virtual absl::Status Synchronize() = 0;
  // A point behind all that has been enqueued so far, and to wait until the work before it is done,
  // as Synchronize does. The last four points can be waited for.
  virtual int64_t Mark() { return 0; }
  virtual absl::Status WaitFor(int64_t /*mark*/) { return Synchronize(); }
  // Seconds that the device took since this was last asked for what lay between two Marks, of those
  // that have been waited for: each from when it began with the first of it. Not the time between
  // them, in which it had nothing to do. The first call, while idle, is what turns this on, as it
  // costs a little; 0 then, and where the device does not measure.
  virtual double TakeBusySeconds() { return 0; }
  // Whether tensors lie in the host's own memory: after Synchronize it reads them where they are,
  // and nothing need be copied out.
  virtual bool SharesHostMemory() const { return false; }
  // Memory of the host that CopyOut reaches at full speed; ResourceExhausted as Allocate.
  virtual absl::StatusOr<void*> AllocateHost(size_t bytes) = 0;
  virtual void FreeHost(void* data) = 0;
  // Makes the calling thread one of those that compute for this device: on a machine of several
  // NUMA nodes it runs beside the device's memory from then on.
  virtual void BindThread() {}
  // Runs body(0) … body(n-1) on the host threads that belong to this device, for host work that
  // the step waits for (sampling). Returns when all are done.
  virtual void ParallelFor(int n, absl::FunctionRef<void(int)> body) = 0;

  // Enqueues what work() enqueues. Equal keys promise the same ops with the same arguments,
  // addresses included, and that none of them copies from or to the host, allocates or waits: a
  // device may do again what an earlier call enqueued, and not call work(). An error of work(),
  // which says that it has not enqueued all, or of the device is the result: nothing is done again.
  virtual absl::Status Repeat(std::span<const int64_t> /*key*/,
                              absl::FunctionRef<absl::Status()> work) {
    return work();
  }
  // While idle: nothing that was repeated is kept, since memory that it works on goes.
  virtual void ForgetRepeated() {}

  // Packed matrices. `piece_begin`: as MatMulPieces will take it, or {0, in} for the other ops; the
  // pieces of a matrix are packed one by one, so that ranks hold the same numbers.
  //
  // Whether this device computes with matrices of a type.
  virtual bool Computes(WeightType type) const {
    return type != WeightType::kFp8 && type != WeightType::kF16;
  }
  // The format in which it does.
  virtual WeightFormat FormatOf(WeightType type) const = 0;
  // Bytes of a matrix of w's shape and format.
  virtual size_t WeightBytes(const Weight& w, std::span<const int64_t> piece_begin) const = 0;
  // Fills rows [first_row, first_row + n) of a packed w from f32 rows on the host. first_row is a
  // multiple of kPackedRows, n too unless they are the last rows.
  virtual void PackRows(const Weight& w, std::span<const int64_t> piece_begin, int64_t first_row,
                        const float* rows, int64_t n) = 0;

  // out[r] = table[token_ids[r] - first_id] * scale; a row of -0.0 (the neutral element of
  // addition) where the id is outside this rank's part of the table.
  virtual void Embed(Tensor out, const Weight& table, Tensor token_ids, int first_id,
                     float scale) = 0;
  // out[r] = x[r] / sqrt(mean(x[r]²) + eps) * gain, per row of gain's length: x may be
  // [rows, heads * gain] for a norm per head. In place allowed.
  virtual void RmsNorm(Tensor out, Tensor x, Tensor gain, float eps) = 0;
  // out = x · wᵀ (+ bias, f32 [out], may be empty). out's type: activations' or f32. Ranks on equal
  // devices that multiply the same get the same bits, which is what routing to experts stands on.
  virtual void MatMul(Tensor out, Tensor x, const Weight& w, Tensor bias) = 0;
  // Several products of one x, each with the bits that MatMul gives it, on a device whose bits do
  // not depend on the step: it may read x, prepare it and wait for its threads once for all of
  // them.
  virtual void MatMuls(Tensor x, std::span<const Product> products) {
    for (const Product& product : products) MatMul(product.out, x, product.w, product.bias);
  }
  // gate.out = function(x · gate.wᵀ) * (x · up.wᵀ), biases added: what MatMuls and then SiluMul or
  // GeluMul in place give, with the same bits. gate.out and up.out: [rows, columns], of one type
  // and apart from x and each other; up.out is scratch and holds anything afterwards.
  virtual void GatedMatMul(Tensor x, const Product& gate, const Product& up,
                           GateFunction function) {
    const Product products[] = {gate, up};
    MatMuls(x, products);
    Gate(gate.out, up.out, function);
  }
  // As MatMul, for a K that tensor parallelism splits: x and w hold this rank's columns;
  // piece i is columns [piece_begin[i], piece_begin[i+1]) of them (perhaps empty), their number a
  // power of two. The pieces' f32 sums meet in a balanced binary tree; out is f32. No bias.
  virtual void MatMulPieces(Tensor out, Tensor x, const Weight& w,
                            std::span<const int64_t> piece_begin) = 0;
  // x = round(x + round(sum + bias)): sum f32 [rows, cols], bias f32 [cols] or empty; the inner
  // rounding is to x's type.
  virtual void AddSum(Tensor x, Tensor sum, Tensor bias) = 0;
  // AddSum of x, sum and bias, then out = RmsNorm(x, gain), with the same bits. out has x's type
  // and shape and is apart from it.
  virtual void AddSumNorm(Tensor out, Tensor x, Tensor sum, Tensor bias, Tensor gain, float eps) {
    AddSum(x, sum, bias);
    RmsNorm(out, x, gain, eps);
  }
  // angles f32 [rows, 2 * num_frequencies]: the cosines then the sines of
  // positions[r] * frequencies[i] (f64 product and reduction, rounded to f32), times `scale`.
  virtual void RopeAngles(Tensor angles, Tensor positions, Tensor frequencies, float scale) = 0;
  // Rotates pairs (i, i + n) of the first 2n elements of each head (Hugging Face's half-split
  // layout), n = num_frequencies. x: [rows, num_heads * head_dim], in place.
  virtual void Rope(Tensor x, Tensor angles, int head_dim) = 0;
  // Whether this device keeps keys and values of a type beside activations of one.
  virtual bool Keeps(DType type, DType /*activations*/) const {
    return type != DType::kF8 && type != DType::kF16;
  }
  // keys/values[slot[r]] = k[r], v[r]; a slot is block * block_size + offset.
  virtual void WriteKv(const PagedKv& kv, Tensor k, Tensor v, Tensor slots) = 0;
  // What `how` says to q and k, then WriteKv of k and v, with the bits that the single ops give. q
  // [rows, num_heads * head_dim] is changed in place, k holds anything afterwards.
  virtual void RotateAndWriteKv(const PagedKv& kv, Tensor q, Tensor k, Tensor v, Tensor slots,
                                const HeadRotation& how) {
    if (how.q_gain.size() > 0) {
      RmsNorm(q, q, how.q_gain, how.eps);
      RmsNorm(k, k, how.k_gain, how.eps);
    }
    Rope(q, how.angles, how.head_dim);
    Rope(k, how.angles, how.head_dim);
    WriteKv(kv, k, v, slots);
  }
  // Copies whole KV blocks of one layer: pairs i32 [n, 2] of (from, to), in order.
  virtual void CopyKvBlocks(const PagedKv& kv, Tensor pairs) = 0;
  // Causal attention of each row over its sequence's cache. out, q: [rows, num_heads * head_dim].
  virtual void PagedAttention(Tensor out, Tensor q, const PagedKv& kv,
                              const AttentionParams& params) = 0;
  // out = silu(gate) * up. In place allowed.
  virtual void SiluMul(Tensor out, Tensor gate, Tensor up) = 0;
  // out = gelu(gate) * up, gelu by its tanh form: g / (1 + e^(-2√(2/π)(g + 0.044715 g³))). In
  // place allowed.
  virtual void GeluMul(Tensor out, Tensor gate, Tensor up) = 0;
  // x = cap · tanh(x / cap), f32, in place; cap > 0.
  virtual void SoftCap(Tensor x, float cap) = 0;
  // out[i] = x[rows[i]].
  virtual void GatherRows(Tensor out, Tensor x, Tensor rows) = 0;

  // Picks the experts of each row: those of the largest of its logits (f32 [rows, num_experts]),
  // of equal ones the lower index. Their weights are softmax(logits) over all experts, divided by
  // their own sum if `normalise`. Sums run over ascending indices. NaN counts as -infinity.
  virtual void RouteExperts(const ExpertRoutes& routes, Tensor logits, bool normalise) = 0;
  // Whether products of so many entries with such experts wait until the host knows how many rows
  // each expert has; they are then no part of what Repeat is given.
  virtual bool WaitsForExperts(DType /*activations*/, std::span<const Weight> /*experts*/,
                               int64_t /*num_entries*/) const {
    return false;
  }
  // MatMul of each entry with its expert's weights: out [entries, columns]; x has a row for each
  // row of the step, or, where `by_entry`, for each entry. On the CPU an entry's bits are those
  // that MatMul gives for its row; on any device they do not depend on the other entries if a
  // row's do not.
  virtual void ExpertMatMul(Tensor out, Tensor x, std::span<const Weight> experts,
                            const ExpertRoutes& routes, bool by_entry) = 0;
  // gate = function(x · gatesᵀ) * (x · upsᵀ) of each entry, x as the step's rows: what ExpertMatMul
  // and then SiluMul or GeluMul in place give, with the same bits. `up` is scratch of gate's shape
  // and type.
  virtual void GatedExpertMatMul(Tensor gate, Tensor up, Tensor x, std::span<const Weight> gates,
                                 std::span<const Weight> ups, const ExpertRoutes& routes,
                                 GateFunction function) {
    ExpertMatMul(gate, x, gates, routes, /*by_entry=*/false);
    ExpertMatMul(up, x, ups, routes, /*by_entry=*/false);
    Gate(gate, up, function);
  }
  // The same of MatMulPieces: x [entries, k], out f32 [entries, columns].
  virtual void ExpertMatMulPieces(Tensor out, Tensor x, std::span<const Weight> experts,
                                  const ExpertRoutes& routes,
                                  std::span<const int64_t> piece_begin) = 0;
  // out[r] = Σ weight · x[entry] over the row's experts, ascending, from 0; each product and sum
  // rounded. f32 [rows, cols] and [entries, cols].
  virtual void CombineExperts(Tensor out, Tensor x, const ExpertRoutes& routes) = 0;

  // Draws and scores tokens from rows of logits, f32 [rows, vocabulary], as kernels/sampling.h
  // says; bit by bit, but what it leaves to the host. `drawn`, one for each draw and memory of
  // AllocateHost, is written when what is enqueued here is done; the batch's views last as long.
  // `tokens`, i32 [draws], are the ids for TakeTokens, -1 where left; `row_tokens`, i32 [rows of
  // the step], those that TokenDraw::answered_row names. False where the device does not draw, or
  // not such a batch: nothing happened.
  virtual bool DrawTokens(std::span<DrawnToken> /*drawn*/, Tensor /*tokens*/, Tensor /*logits*/,
                          Tensor /*row_tokens*/, const DrawBatch& /*batch*/) {
    return false;
  }
  // ids[i], i32 [n], below 0 becomes max(0, tokens[-1 - ids[i]]), or 0 beyond the last token.
  virtual void TakeTokens(Tensor /*ids*/, Tensor /*tokens*/) {}

 private:
  // gate = function(gate) * up
  void Gate(Tensor gate, Tensor up, GateFunction function) {
    if (function == GateFunction::kSilu) {
      SiluMul(gate, gate, up);
    } else {
      GeluMul(gate, gate, up);
    }
  }
};

struct BackendOptions {
  std::string device = "cpu";  // or "cuda:0", in builds with CUDA
  int num_threads = 1;         // host threads of this device, the caller's included
  std::string isa = "auto";    // cpu: auto, scalar, avx2, avx512, …
  // cuda: each row's bits do not depend on the other rows. The CPU's never do.
  bool deterministic = false;
  // cuda: products of fp8 are added up in tensor cores alone, faster and less exactly.
  bool fp8_fast_accumulation = false;
};

// InvalidArgument names a device or instruction set that this build or machine does not have.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options);

}  // namespace continuo::kernels
