// SPDX-License-Identifier: Apache-2.0
// exactness_bench [--isa=auto] [--threads=2] [--weights=bf16] [--hidden=1024] [--heads=16]
//   [--head_dim=128] [--inner=3072] [--vocab=151936] [--layers=28] [--kv_heads=8]
//   [--rows=1,4,16,64,256] [--rounds=9] [--clock=cpu] [--json=FILE]
// Measures the price of results that depend on nothing but a row itself. The same kernels run with
// two freedoms:
//   whole     attention's output and the MLP's last product are one sum over k each, in the
//             activations' type, instead of eight K splits in f32 that are added in a tree (so that
//             1, 2, 4 and 8 ranks agree)
//   split     the threads share the k of the same products where there are few columns for each,
//   and
//             their sums are added afterwards: a free kernel would do so where it is faster
// All other products have one sum over k already, and tiles that differ with the number of rows
// change no bit, so neither has a price. Rounds of exact, whole and split alternate; figures are
// medians. "layers" is the price as a share of all products of a model of this shape, with the
// faster freedom for each.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "tests/bench/kernels/ceilings.h"

namespace continuo::bench {
namespace {

constexpr int64_t kMemory = int64_t{400} << 20;  // of copies of a matrix, beyond any cache

class Bench {
 public:
  explicit Bench(const Flags& flags) : flags_(flags), rounds_(flags.Get("rounds", 9)) {
    device_ = DeviceOf(flags);
    const std::string type = flags.Get("weights", std::string("bf16"));
    type_ = type == "int8"   ? kernels::WeightType::kInt8
            : type == "int4" ? kernels::WeightType::kInt4
                             : kernels::WeightType::kBF16;
  }

  int Run() {
    const int64_t hidden = flags_.Get("hidden", 1024), inner = flags_.Get("inner", 3072);
    const int64_t head_dim = flags_.Get("head_dim", 128);
    const int64_t heads = flags_.Get("heads", 16) * head_dim;
    const int64_t kv = flags_.Get("kv_heads", 8) * head_dim;
    const int layers = flags_.Get("layers", 28);
    const int64_t vocab = flags_.Get("vocab", 151936);
    std::printf("%s, %s weights\n", device_->name().c_str(),
                flags_.Get("weights", std::string("bf16")).c_str());
    std::printf("%6s %14s %10s %10s %10s %8s\n", "rows", "k", "exact us", "whole us", "split us",
                "price");
    nlohmann::json results = {{"path", device_->name()}};
    for (const int rows : flags_.GetList("rows", "1,4,16,64,256")) {
      double price = 0, splits = 0;  // seconds
      for (const int64_t k : {heads, inner}) {
        const auto [exact, whole, split] = Freedoms(rows, hidden, k);
        const double best = std::min(whole, split);
        splits += exact;
        price += layers * std::max(0.0, exact - best);
        std::printf("%6d %14lld %10.1f %10.1f %10.1f %7.1f%%\n", rows, static_cast<long long>(k),
                    exact * 1e6, whole * 1e6, split * 1e6, 100 * (exact / best - 1));
        results["products"].push_back(
            {{"rows", rows}, {"k", k}, {"exact_s", exact}, {"whole_s", whole}, {"split_s", split}});
      }
      // The products of a step, with exactness.
      const double all =
          layers * (splits + One(rows, heads + 2 * kv, hidden) + One(rows, 2 * inner, hidden)) +
          One(std::min(rows, 64), vocab, hidden);
      std::printf("%6d %14s %10.1f %29.2f%%\n", rows, "layers", all * 1e6, 100 * price / all);
      results["steps"].push_back({{"rows", rows}, {"products_s", all}, {"price", price / all}});
    }
    flags_.WriteJson(results);
    return 0;
  }

 private:
  kernels::Tensor Allocate(kernels::DType type, int64_t rows, int64_t cols) {
    kernels::Tensor t{nullptr, type, {rows, cols, 1}};
    t.data = *device_->Allocate(t.bytes());
    std::memset(t.data, 0x3c, t.bytes());
    tensors_.push_back(t.data);
    return t;
  }
  void FreeAll() {
    for (void* data : tensors_) device_->Free(data);
    tensors_.clear();
  }

  // A matrix [n, k] in copies from memory, cut at `begins`.
  struct Matrix {
    kernels::Weight w;
    int64_t bytes, copies, next = 0;
    std::vector<int64_t> begins;
  };
  Matrix Make(int64_t n, int64_t k, int splits) {
    Matrix m;
    for (int i = 0; i <= splits; ++i) m.begins.push_back(k * i / splits);
    m.w.data = {nullptr, kernels::DType::kBF16, {n, k, 1}};
    m.w.format = device_->ops().matmul.FormatOf(type_);
    m.bytes = static_cast<int64_t>(device_->ops().matmul.WeightBytes(m.w, m.begins));
    m.copies = std::max<int64_t>(1, kMemory / m.bytes);
    m.w.data.data = Allocate(kernels::DType::kI8, m.copies, m.bytes).data;
    return m;
  }
  static kernels::Weight Next(Matrix& m) {
    kernels::Weight w = m.w;
    w.data.data = static_cast<char*>(w.data.data) + m.next * m.bytes;
    m.next = (m.next + 1) % m.copies;
    return w;
  }

  // Returns medians of things done in turn.
  std::vector<double> Turns(const std::vector<std::function<void()>>& things) const {
    std::vector<std::vector<double>> seconds(things.size());
    for (int round = -1; round < rounds_; ++round) {
      for (size_t i = 0; i < things.size(); ++i) {
        int calls = 0;
        const double start = Seconds();
        do {
          things[i]();
          ++calls;
        } while (Seconds() - start < 0.02);
        if (round >= 0) seconds[i].push_back((Seconds() - start) / calls);
      }
    }
    std::vector<double> medians;
    for (auto& s : seconds) medians.push_back(Median(s));
    return medians;
  }

  struct Times {
    double exact, whole, split;
  };
  Times Freedoms(int64_t rows, int64_t n, int64_t k) {
    const kernels::Tensor x = Allocate(kernels::DType::kBF16, rows, k),
                          sum = Allocate(kernels::DType::kF32, rows, n);
    const kernels::Tensor out = Allocate(kernels::DType::kBF16, rows, n);
    Matrix splits = Make(n, k, 8), one = Make(n, k, 1);
    // The halves of k are rows of a matrix that is twice as high, so the threads share twice as
    // many columns.
    const kernels::Tensor half_x = Allocate(kernels::DType::kBF16, rows, k / 2);
    const kernels::Tensor halves = Allocate(kernels::DType::kF32, rows, 2 * n);
    Matrix half = Make(2 * n, k / 2, 1);
    const kernels::Tensor left{halves.data, kernels::DType::kF32, {rows, n, 1}};
    const kernels::Tensor right{
        static_cast<char*>(halves.data) + left.bytes(), kernels::DType::kF32, {rows, n, 1}};
    const std::vector<double> times = Turns({
        [&] { device_->ops().matmul.MatMulSplitK(sum, x, Next(splits), splits.begins); },
        [&] { device_->ops().matmul.MatMul(out, x, Next(one), kernels::Tensor()); },
        [&] {
          device_->ops().matmul.MatMul(halves, half_x, Next(half), kernels::Tensor());
          device_->ops().rows.AddSum(left, right, kernels::Tensor());
        },
    });
    FreeAll();
    return {times[0], times[1], times[2]};
  }
  double One(int64_t rows, int64_t n, int64_t k) {
    const kernels::Tensor x = Allocate(kernels::DType::kBF16, rows, k),
                          out = Allocate(kernels::DType::kBF16, rows, n);
    Matrix m = Make(n, k, 1);
    const double time =
        Turns({[&] { device_->ops().matmul.MatMul(out, x, Next(m), kernels::Tensor()); }})[0];
    FreeAll();
    return time;
  }

  const Flags& flags_;
  const int rounds_;
  std::unique_ptr<kernels::Device> device_;
  kernels::WeightType type_;
  std::vector<void*> tensors_;
};

}  // namespace
}  // namespace continuo::bench

int main(int argc, char** argv) {
  const continuo::bench::Flags flags(argc, argv);
  return continuo::bench::Bench(flags).Run();
}
