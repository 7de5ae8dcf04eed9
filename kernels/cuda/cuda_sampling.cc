// SPDX-License-Identifier: Apache-2.0
// Drawing tokens where the logits are.
#include <algorithm>
#include <cstddef>
#include <span>

#include "kernels/cuda/backend_calls.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/sampling.h"
#include "services/base/check.h"

namespace continuo::cuda {
namespace {

// Of biases, seen tokens and masks: batches with more are the host's.
constexpr size_t kMaxListBytes = size_t{32} << 20;

// Lays out arrays one behind the other; from null on it counts.
class Layout {
 public:
  explicit Layout(void* memory) : memory_(static_cast<char*>(memory)) {}
  template <typename T>
  T* Add(size_t n) {
    constexpr size_t kAlignment = 256;
    char* const at = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ += (n * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(at);
  }
  size_t bytes() const { return bytes_; }

 private:
  char* memory_;
  size_t bytes_ = 0;
};

// Where the device has a batch, and what else is for the kernels.
struct DeviceDraws {
  TokenDraw* draws;
  LogitBias* biases;
  SeenToken* seen;
  uint32_t* masks;
  DrawArrays arrays;
};

DeviceDraws LayOut(Layout& layout, const DrawBatch& batch, const Tensor& logits) {
  const size_t n = batch.draws.size(), jobs = 2 * n;
  const auto vocab = static_cast<size_t>(logits.cols());
  DeviceDraws d;
  d.draws = layout.Add<TokenDraw>(n);
  d.biases = layout.Add<LogitBias>(batch.biases.size());
  d.seen = layout.Add<SeenToken>(batch.seen.size());
  d.masks = layout.Add<uint32_t>(batch.masks.size());
  d.arrays = {.logits = Data<const float>(logits),
              .vocab = logits.cols(),
              .draws = d.draws,
              .num_draws = static_cast<int32_t>(n),
              .biases = d.biases,
              .seen = d.seen,
              .masks = d.masks,
              .drawn = layout.Add<DrawnToken>(n),
              .maxima = layout.Add<Candidate>(jobs * ((vocab + kDrawPart - 1) / kDrawPart)),
              .block_sums = layout.Add<double>(jobs * ((vocab + kSumBlock - 1) / kSumBlock)),
              .histograms = layout.Add<uint64_t>(jobs * kDrawBuckets),
              .num_candidates = layout.Add<uint32_t>(jobs),
              .candidates = layout.Add<Candidate>(jobs * kMaxCandidates)};
  return d;
}

// n of them as words, which is what is copied.
template <typename T>
Tensor Words(T* data, size_t n) {
  static_assert(sizeof(T) % sizeof(int32_t) == 0);
  return {data, DType::kI32, {static_cast<int64_t>(n * sizeof(T) / sizeof(int32_t)), 1, 1}};
}

// Copied at a time, as larger copies come from where the caller has the bytes, and may wait for the
// stream first.
constexpr size_t kCopyWords = size_t{128} << 10;

void CheckBatch(const DrawBatch& batch, const Tensor& logits) {
  const auto words = static_cast<size_t>((logits.cols() + 31) / 32);
  CONTINUO_CHECK(logits.dtype == DType::kF32);
  for (const TokenDraw& draw : batch.draws) {
    CONTINUO_CHECK(draw.row >= 0 && draw.row < logits.rows() && draw.target < logits.cols());
    CONTINUO_CHECK(draw.bias_begin >= 0 && draw.bias_begin <= draw.bias_end &&
                   static_cast<size_t>(draw.bias_end) <= batch.biases.size());
    CONTINUO_CHECK(draw.seen_begin >= 0 && draw.seen_begin <= draw.seen_end &&
                   static_cast<size_t>(draw.seen_end) <= batch.seen.size());
    CONTINUO_CHECK(draw.mask < 0 ||
                   (static_cast<size_t>(draw.mask) + 1) * words <= batch.masks.size());
    CONTINUO_CHECK(draw.num_alternatives <= kMaxAlternatives);
  }
}

}  // namespace

bool CudaBackend::DrawTokens(std::span<DrawnToken> drawn, Tensor logits, const DrawBatch& batch) {
  const size_t n = batch.draws.size();
  CheckBatch(batch, logits);
  CONTINUO_CHECK(drawn.size() == n);
  const size_t list_bytes =
      batch.biases.size_bytes() + batch.seen.size_bytes() + batch.masks.size_bytes();
  if (n == 0 || n > kMaxDraws || logits.cols() > kMaxDrawVocabulary || list_bytes > kMaxListBytes) {
    return false;
  }
  Layout counted(nullptr);
  LayOut(counted, batch, logits);
  void* const memory = Scratch(counted.bytes());
  if (!failure_.ok()) return true;
  Layout layout(memory);
  const DeviceDraws d = LayOut(layout, batch, logits);
  const auto copy = [this]<typename T>(T* to, std::span<const T> from) {
    constexpr size_t kElements = kCopyWords * sizeof(int32_t) / sizeof(T);
    for (size_t i = 0; i < from.size(); i += kElements) {
      CopyIn(Words(to + i, std::min(kElements, from.size() - i)), from.data() + i);
    }
  };
  copy(d.draws, batch.draws);
  copy(d.biases, batch.biases);
  copy(d.seen, batch.seen);
  copy(d.masks, batch.masks);
  Enqueue("DrawTokens", [&] { return cuda::DrawTokens(d.arrays, batch.draws, stream()); });
  CopyOut(drawn.data(), Words(d.arrays.drawn, n));
  return true;
}

}  // namespace continuo::cuda
