// SPDX-License-Identifier: Apache-2.0
// matmul_bench --layers=qwen3-0.6b --isa=auto --threads=2 --weights=bf16 --rows=1,4,8,16,32,64,256
//   [--n=3072 --k=1024 --splits=1] [--copies=N] [--rounds=7] [--clock=cpu] [--json=FILE]
// Measures MatMul with weights (f32, f16, bf16, int8, int4, or the integers of a type of GGUF:
// Q4_0, Q4_1, Q4_K, Q8_0, Q6_K) that come from memory (more of them than caches hold; --copies=1:
// from the cache where they fit), for each shape of a model's layers (qwen3-0.6b, llama-3.2-1b,
// llama-3.1-8b) or for one shape. Beside it stand the read bandwidth and the peak of the path's
// multiplications at the same moment: a round measures bandwidth, peak, MatMul, peak, bandwidth. A
// round counts where the ceiling moved by less than 5 % meanwhile. Figures are medians of the first
// --rounds such rounds, of at most four times as many; a * says that there were none, so that all
// count. --splits cuts k as that of attention's output and the MLP's last product is cut, by
// MatMulSplitK. The roofline is min(peak, 2 · rows · columns · k · bandwidth / bytes of the
// matrix).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "tests/bench/kernels/ceilings.h"

namespace continuo::bench {
namespace {

struct Shape {
  const char* name;
  int64_t n, k;
  int splits;
};

// Columns, k and K splits of each product of a layer, and of the head, from the models'
// config.json.
const std::map<std::string, std::vector<Shape>> kLayers = {{"qwen3-0.6b",
                                                            {{"q", 2048, 1024, 1},
                                                             {"k, v", 1024, 1024, 1},
                                                             {"o", 1024, 2048, 8},
                                                             {"gate, up", 3072, 1024, 1},
                                                             {"down", 1024, 3072, 8},
                                                             {"head", 151936, 1024, 1}}},
                                                           {"llama-3.2-1b",
                                                            {{"q", 2048, 2048, 1},
                                                             {"k, v", 512, 2048, 1},
                                                             {"o", 2048, 2048, 8},
                                                             {"gate, up", 8192, 2048, 1},
                                                             {"down", 2048, 8192, 8},
                                                             {"head", 128256, 2048, 1}}},
                                                           {"llama-3.1-8b",
                                                            {{"q", 4096, 4096, 1},
                                                             {"k, v", 1024, 4096, 1},
                                                             {"o", 4096, 4096, 8},
                                                             {"gate, up", 14336, 4096, 1},
                                                             {"down", 4096, 14336, 8},
                                                             {"head", 128256, 4096, 1}}}};

struct Kept {
  kernels::WeightFormat format;
  kernels::GroupFormat groups;
};

// How --weights=stored keeps the types of GGUF, where no K split cuts a group.
const std::map<std::string, Kept> kStored = {
    {"Q4_0", {kernels::WeightFormat::kInt4Panels, {32, 64, kernels::GroupScales::kF16, false}}},
    {"Q4_1", {kernels::WeightFormat::kInt4Panels, {32, 32, kernels::GroupScales::kF16, true}}},
    {"Q4_K", {kernels::WeightFormat::kInt4Panels, {32, 128, kernels::GroupScales::kShared, true}}},
    {"Q8_0", {kernels::WeightFormat::kInt8Panels, {32, 64, kernels::GroupScales::kF16, false}}},
    {"Q6_K",
     {kernels::WeightFormat::kInt8Panels, {16, 128, kernels::GroupScales::kShared, false}}}};

struct Round {
  double bandwidth, peak, seconds;
};

class Bench {
 public:
  Bench(kernels::Device& device, const Flags& flags)
      : device_(device),
        flags_(flags),
        type_(flags.Get("weights", std::string("bf16"))),
        ceilings_(flags.Get("threads", 2)) {
    const std::map<std::string, kernels::WeightType> packed = {
        {"bf16", kernels::WeightType::kBF16},
        {"int8", kernels::WeightType::kInt8},
        {"int4", kernels::WeightType::kInt4}};
    if (const auto it = packed.find(type_); it != packed.end()) {
      format_ = device.ops().matmul.FormatOf(it->second);
    }
    if (const auto it = kStored.find(type_); it != kStored.end()) {
      format_ = it->second.format;
      groups_ = it->second.groups;
    }
    const bool avx512 = device.name().find("avx512") != std::string::npos;
    unit_ = !avx512                                         ? Ceilings::Unit::kFma256
            : format_ == kernels::WeightFormat::kDense      ? Ceilings::Unit::kFma512
            : format_ == kernels::WeightFormat::kBF16Panels ? Ceilings::Unit::kBf16
                                                            : Ceilings::Unit::kVnni;
  }

  // The product at each number of rows.
  nlohmann::json Measure(const Shape& shape) {
    kernels::Weight w;
    w.data = {nullptr,
              type_ == "f32"   ? kernels::DType::kF32
              : type_ == "f16" ? kernels::DType::kF16
                               : kernels::DType::kBF16,
              {shape.n, shape.k, 1}};
    w.format = format_;
    w.groups = groups_;
    std::vector<int64_t> split_begin;
    for (int i = 0; i <= shape.splits; ++i) split_begin.push_back(shape.k * i / shape.splits);
    const auto bytes = static_cast<int64_t>(device_.ops().matmul.WeightBytes(w, split_begin));
    const int64_t copies =
        flags_.Get("copies", static_cast<int>(std::max<int64_t>(1, (int64_t{400} << 20) / bytes)));
    const kernels::Tensor weights = Allocate(kernels::DType::kI8, copies, bytes);
    std::printf("%s [%lld, %lld]\n", shape.name, static_cast<long long>(shape.n),
                static_cast<long long>(shape.k));
    nlohmann::json result = {{"name", shape.name}, {"shape", {shape.n, shape.k}}};
    int64_t next = 0;
    for (const int rows : flags_.GetList("rows", "1,2,4,8,16,32,48,64,256,512")) {
      const kernels::DType activations =
          type_ == "f32" ? kernels::DType::kF32 : kernels::DType::kBF16;
      const kernels::Tensor x = Allocate(activations, rows, shape.k);
      const kernels::Tensor out =
          Allocate(shape.splits > 1 ? kernels::DType::kF32 : activations, rows, shape.n);
      const double operations = 2.0 * rows * static_cast<double>(shape.n * shape.k);
      const auto roof = [&](double bandwidth, double peak) {
        return std::min(peak, operations * bandwidth / static_cast<double>(bytes));
      };
      const auto multiply = [&] {
        w.data.data = static_cast<char*>(weights.data) + next * bytes;
        next = (next + 1) % copies;
        if (shape.splits > 1) {
          device_.ops().matmul.MatMulSplitK(out, x, w, split_begin);
        } else {
          device_.ops().matmul.MatMul(out, x, w, kernels::Tensor());
        }
      };
      result["rows"].push_back(
          Report(rows, operations, static_cast<double>(bytes), Rounds(multiply, roof), roof));
      device_.Free(x.data);
      device_.Free(out.data);
    }
    device_.Free(weights.data);
    return result;
  }

 private:
  kernels::Tensor Allocate(kernels::DType d, int64_t rows, int64_t cols) {
    kernels::Tensor t{nullptr, d, {rows, cols, 1}};
    t.data = *device_.Allocate(t.bytes());
    std::memset(t.data, 0x3c, t.bytes());
    return t;
  }

  // The rounds in which the ceiling was steady, or all.
  template <typename Multiply, typename Roof>
  std::vector<Round> Rounds(Multiply multiply, Roof roof) {
    const auto wanted = static_cast<size_t>(flags_.Get("rounds", 7));
    std::vector<Round> all, still;
    multiply();  // warms up
    while (still.size() < wanted && all.size() < 4 * wanted) {
      const double bandwidth = ceilings_.ReadBandwidth(), peak = ceilings_.Peak(unit_);
      int calls = 0;
      const double start = Seconds();
      do {
        multiply();
        ++calls;
      } while (Seconds() - start < 0.03);
      const double seconds = (Seconds() - start) / calls;
      const double peak_after = ceilings_.Peak(unit_), bandwidth_after = ceilings_.ReadBandwidth();
      const double before = roof(bandwidth, peak), after = roof(bandwidth_after, peak_after);
      all.push_back({(bandwidth + bandwidth_after) / 2, (peak + peak_after) / 2, seconds});
      if (std::abs(after / before - 1) < 0.05) still.push_back(all.back());
    }
    num_still_ = still.size();
    return still.empty() ? all : still;
  }

  template <typename Roof>
  nlohmann::json Report(int rows, double operations, double bytes, const std::vector<Round>& rounds,
                        Roof roof) {
    std::vector<double> read, peaks, seconds, shares;
    for (const Round& round : rounds) {
      read.push_back(round.bandwidth);
      peaks.push_back(round.peak);
      seconds.push_back(round.seconds);
      shares.push_back(operations / round.seconds * 1e-9 / roof(round.bandwidth, round.peak));
    }
    const double t = Median(seconds), share = Median(shares);
    std::printf("%6d %10.1f %8.1f %8.1f | %8.1f %8.1f | %8.1f%%%s\n", rows, t * 1e6,
                bytes / t * 1e-9, operations / t * 1e-9, Median(read), Median(peaks), 100 * share,
                num_still_ == 0 ? " *" : "");
    std::fflush(stdout);
    return {{"rows", rows},
            {"seconds", t},
            {"gb_per_s", bytes / t * 1e-9},
            {"gflop_per_s", operations / t * 1e-9},
            {"read_gb_per_s", Median(read)},
            {"peak_gflop_per_s", Median(peaks)},
            {"of_roofline", share},
            {"still_rounds", num_still_}};
  }

  kernels::Device& device_;
  const Flags& flags_;
  const std::string type_;
  kernels::WeightFormat format_ = kernels::WeightFormat::kDense;
  kernels::GroupFormat groups_;
  Ceilings::Unit unit_;
  Ceilings ceilings_;
  size_t num_still_ = 0;
};

int Main(const Flags& flags) {
  const int threads = flags.Get("threads", 2);
  const std::unique_ptr<kernels::Device> made = DeviceOf(flags);
  std::vector<Shape> shapes = {
      {"product", flags.Get("n", 3072), flags.Get("k", 1024), flags.Get("splits", 1)}};
  if (const std::string layers = flags.Get("layers", std::string()); !layers.empty()) {
    const auto it = kLayers.find(layers);
    if (it == kLayers.end()) {
      std::fprintf(stderr, "no layers are known of %s\n", layers.c_str());
      return 2;
    }
    shapes = it->second;
  }
  Bench bench(*made, flags);
  nlohmann::json results = {{"path", made->name()},
                            {"threads", threads},
                            {"weights", flags.Get("weights", std::string("bf16"))}};
  std::printf("%s, %d threads, %s weights\n", made->name().c_str(), threads,
              flags.Get("weights", std::string("bf16")).c_str());
  std::printf("%6s %10s %8s %8s | %8s %8s | %9s\n", "rows", "us", "GB/s", "GFLOP/s", "read", "peak",
              "roofline");
  for (const Shape& shape : shapes) results["products"].push_back(bench.Measure(shape));
  flags.WriteJson(results);
  return 0;
}

}  // namespace
}  // namespace continuo::bench

int main(int argc, char** argv) {
  return continuo::bench::Main(continuo::bench::Flags(argc, argv));
}
