// SPDX-License-Identifier: Apache-2.0
// mlp_bench --weights=bf16 --rows=1,8,16,64,240 [--hidden=1024 --intermediate=3072 --splits=8]
//   [--threads=2 --isa=auto --rounds=200] [--json=FILE]
// Measures the MLP of a layer, GatedMatMul and the product behind it, alternating with the ops that
// GatedMatMul joins, MatMuls and then GateMul: medians of --rounds of each, and their ratio.
// Weights (bf16, int8, int4) come from memory: there are more of them than caches hold.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "tests/bench/kernels/ceilings.h"

namespace continuo::bench {
namespace {

class Bench {
 public:
  Bench(kernels::Device& device, const Flags& flags)
      : device_(device),
        hidden_(flags.Get("hidden", 1024)),
        intermediate_(flags.Get("intermediate", 3072)),
        rounds_(flags.Get("rounds", 200)) {
    const std::map<std::string, kernels::WeightType> types = {{"bf16", kernels::WeightType::kBF16},
                                                              {"int8", kernels::WeightType::kInt8},
                                                              {"int4", kernels::WeightType::kInt4}};
    const auto type = types.find(flags.Get("weights", std::string("bf16")));
    if (type == types.end()) {
      std::fprintf(stderr, "--weights is bf16, int8 or int4\n");
      std::exit(2);
    }
    format_ = device.ops().matmul.FormatOf(type->second);
    const int splits = flags.Get("splits", 8);
    for (int i = 0; i <= splits; ++i) down_splits_.push_back(intermediate_ * i / splits);
    const size_t bytes = Layer(0).bytes;
    num_layers_ = static_cast<int>(std::max<size_t>(1, (size_t{400} << 20) / bytes));
    memory_ = *device.Allocate(num_layers_ * bytes);
    std::memset(memory_, 0x3c, num_layers_ * bytes);
  }
  ~Bench() { device_.Free(memory_); }

  nlohmann::json Measure(int rows) {
    x_ = Allocate(kernels::DType::kBF16, rows, hidden_);
    gate_ = Allocate(kernels::DType::kBF16, rows, intermediate_);
    up_ = Allocate(kernels::DType::kBF16, rows, intermediate_);
    out_ = Allocate(kernels::DType::kF32, rows, hidden_);
    std::vector<double> joined, apart;
    Once(true), Once(false);  // warms up
    for (int i = 0; i < rounds_; ++i) {
      // The order alternates, since otherwise one of them would always find the other's caches.
      for (const bool first : {i % 2 == 0, i % 2 != 0})
        (first ? joined : apart).push_back(Once(first));
    }
    for (const kernels::Tensor& t : {x_, gate_, up_, out_}) device_.Free(t.data);
    const double a = Median(joined), b = Median(apart);
    std::printf("%6d %10.1f %10.1f %8.3f\n", rows, a * 1e6, b * 1e6, a / b);
    std::fflush(stdout);
    return {{"rows", rows}, {"joined_seconds", a}, {"apart_seconds", b}, {"ratio", a / b}};
  }

 private:
  struct Weights {
    kernels::Weight gate, up, down;
    size_t bytes;
  };

  Weights Layer(int number) const {
    Weights w;
    w.gate.data = {nullptr, kernels::DType::kBF16, {intermediate_, hidden_, 1}};
    w.gate.format = format_;
    w.up = w.gate;
    w.down.data = {nullptr, kernels::DType::kBF16, {hidden_, intermediate_, 1}};
    w.down.format = format_;
    const size_t wide = device_.ops().matmul.WeightBytes(w.gate, std::vector<int64_t>{0, hidden_});
    w.bytes = 2 * wide + device_.ops().matmul.WeightBytes(w.down, down_splits_);
    if (memory_ == nullptr) return w;  // only to know how large it is
    char* at = static_cast<char*>(memory_) + number * w.bytes;
    w.gate.data.data = at;
    w.up.data.data = at + wide;
    w.down.data.data = at + 2 * wide;
    return w;
  }

  double Once(bool joined) {
    const Weights w = Layer(next_);
    next_ = (next_ + 1) % num_layers_;
    const double start = Seconds();
    const kernels::Product gate{gate_, w.gate, kernels::Tensor()}, up{up_, w.up, kernels::Tensor()};
    if (joined) {
      device_.ops().matmul.GatedMatMul(x_, gate, up, kernels::GateFunction::kSilu);
    } else {
      const kernels::Product products[] = {gate, up};
      device_.ops().matmul.MatMuls(x_, products);
      device_.ops().rows.GateMul(kernels::GateFunction::kSilu, gate_, gate_, up_);
    }
    device_.ops().matmul.MatMulSplitK(out_, gate_, w.down, down_splits_);
    return Seconds() - start;
  }

  kernels::Tensor Allocate(kernels::DType type, int64_t rows, int64_t columns) {
    kernels::Tensor t{nullptr, type, {rows, columns, 1}};
    t.data = *device_.Allocate(t.bytes());
    std::memset(t.data, 0x3c, t.bytes());
    return t;
  }

  kernels::Device& device_;
  const int64_t hidden_, intermediate_;
  const int rounds_;
  kernels::WeightFormat format_;
  std::vector<int64_t> down_splits_;
  void* memory_ = nullptr;
  int num_layers_ = 0, next_ = 0;
  kernels::Tensor x_, gate_, up_, out_;
};

int Main(const Flags& flags) {
  const int threads = flags.Get("threads", 2);
  const std::unique_ptr<kernels::Device> made = DeviceOf(flags);
  Bench bench(*made, flags);
  nlohmann::json results = {{"path", made->name()}, {"threads", threads}};
  std::printf("%s, %d threads\n%6s %10s %10s %8s\n", made->name().c_str(), threads, "rows",
              "joined us", "apart us", "ratio");
  for (const int rows : flags.GetList("rows", "1,8,16,64,240")) {
    results["rows"].push_back(bench.Measure(rows));
  }
  flags.WriteJson(results);
  return 0;
}

}  // namespace
}  // namespace continuo::bench

int main(int argc, char** argv) {
  return continuo::bench::Main(continuo::bench::Flags(argc, argv));
}
