// SPDX-License-Identifier: Apache-2.0
// matmul_bench --isa=auto --threads=2 --n=3072 --k=1024 --weights=bf16 --rows=1,2,4,8,16,32,64,256
//   [--pieces=1] [--rounds=7] [--clock=cpu] [--json=FILE]
// MatMul with weights (f32, f16, bf16, int8, int4) that come from memory (more of them than caches
// hold; --copies=1: from where they fit), beside the read bandwidth and the peak of what the path
// multiplies with at the same moment: rounds of bandwidth, peak, MatMul in turn, medians. --pieces
// cuts k as attention's output and the MLP's last product are cut, by MatMulPieces. The roofline is
// min(peak, 2 · rows · columns · k · bandwidth / bytes of the matrix).
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/bench/kernels/ceilings.h"

namespace continuo::bench {
namespace {

int Main(const Flags& flags) {
  const int threads = flags.Get("threads", 2), rounds = flags.Get("rounds", 7);
  const int64_t n = flags.Get("n", 3072), k = flags.Get("k", 1024);
  const std::string type = flags.Get("weights", std::string("bf16"));
  const DType activations = type == "f32" ? DType::kF32 : DType::kBF16;
  auto made = MakeBackend({.num_threads = threads, .isa = flags.Get("isa", std::string("auto"))});
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", std::string(made.status().message()).c_str());
    return 2;
  }
  Backend& backend = **made;
  Ceilings ceilings(threads);

  Weight shape;
  shape.data = {nullptr,
                type == "f32"   ? DType::kF32
                : type == "f16" ? DType::kF16
                                : DType::kBF16,
                {n, k, 1}};
  const std::map<std::string, WeightType> packed = {
      {"bf16", WeightType::kBF16}, {"int8", WeightType::kInt8}, {"int4", WeightType::kInt4}};
  if (const auto it = packed.find(type); it != packed.end()) {
    shape.format = backend.FormatOf(it->second);
  }
  const bool avx512 = backend.name().find("avx512") != std::string::npos;
  const Ceilings::Unit unit = !avx512                                     ? Ceilings::Unit::kFma256
                              : shape.format == WeightFormat::kDense      ? Ceilings::Unit::kFma512
                              : shape.format == WeightFormat::kBF16Panels ? Ceilings::Unit::kBf16
                                                                          : Ceilings::Unit::kVnni;
  const int pieces = flags.Get("pieces", 1);
  std::vector<int64_t> piece_begin;
  for (int i = 0; i <= pieces; ++i) piece_begin.push_back(k * i / pieces);
  const int64_t bytes = static_cast<int64_t>(backend.WeightBytes(shape, piece_begin));
  const int64_t copies =
      flags.Get("copies", static_cast<int>(std::max<int64_t>(1, (int64_t{400} << 20) / bytes)));
  const auto allocate = [&](DType d, int64_t rows, int64_t cols) {
    Tensor t{nullptr, d, {rows, cols, 1}};
    t.data = *backend.Allocate(t.bytes());
    std::memset(t.data, 0x3c, t.bytes());
    return t;
  };
  const Tensor weights = allocate(DType::kI8, copies, bytes);

  nlohmann::json results;
  results["path"] = backend.name();
  results["threads"] = threads;
  results["shape"] = {n, k};
  results["weights"] = type;
  std::printf("%s, %d threads, [%lld, %lld] %s weights\n", backend.name().c_str(), threads,
              static_cast<long long>(n), static_cast<long long>(k), type.c_str());
  std::printf("%6s %10s %8s %8s | %8s %8s | %9s\n", "rows", "us", "GB/s", "GFLOP/s", "read", "peak",
              "roofline");
  int64_t next = 0;
  for (const int rows : flags.GetList("rows", "1,2,4,8,16,32,64,256,512")) {
    const Tensor x = allocate(activations, rows, k);
    const Tensor out = allocate(pieces > 1 ? DType::kF32 : activations, rows, n);
    std::vector<double> read, fma, seconds;
    for (int round = -1; round < rounds; ++round) {
      const double bandwidth = ceilings.ReadBandwidth();
      const double peak = ceilings.Peak(unit);
      int calls = 0;
      const double start = Seconds();
      do {
        Weight w = shape;
        w.data.data = static_cast<char*>(weights.data) + next * bytes;
        next = (next + 1) % copies;
        if (pieces > 1) {
          backend.MatMulPieces(out, x, w, piece_begin);
        } else {
          backend.MatMul(out, x, w, Tensor());
        }
        ++calls;
      } while (Seconds() - start < 0.03);
      if (round < 0) continue;  // warms up
      seconds.push_back((Seconds() - start) / calls);
      read.push_back(bandwidth);
      fma.push_back(peak);
    }
    const double t = Median(seconds), bandwidth = Median(read), peak = Median(fma);
    const double flops = 2.0 * rows * static_cast<double>(n * k) / t * 1e-9;
    const double moved = static_cast<double>(bytes) / t * 1e-9;
    const double roof = std::min(
        peak, 2.0 * rows * static_cast<double>(n * k) * bandwidth / static_cast<double>(bytes));
    std::printf("%6d %10.1f %8.1f %8.1f | %8.1f %8.1f | %8.1f%%\n", rows, t * 1e6, moved, flops,
                bandwidth, peak, 100 * flops / roof);
    results["rows"].push_back({{"rows", rows},
                               {"seconds", t},
                               {"gb_per_s", moved},
                               {"gflop_per_s", flops},
                               {"read_gb_per_s", bandwidth},
                               {"peak_gflop_per_s", peak},
                               {"of_roofline", flops / roof}});
    backend.Free(x.data);
    backend.Free(out.data);
  }
  flags.WriteJson(results);
  return 0;
}

}  // namespace
}  // namespace continuo::bench

int main(int argc, char** argv) {
  return continuo::bench::Main(continuo::bench::Flags(argc, argv));
}
