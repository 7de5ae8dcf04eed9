// SPDX-License-Identifier: Apache-2.0
// attention_bench --isa=auto --threads=2 --heads=16 --kv_heads=8 --head_dim=128
//   --context=512,4096 [--sequences=16] [--mode=decode] [--kv=int8] [--rounds=7] [--clock=cpu]
//   [--json=FILE]
// Measures PagedAttention over bf16 or int8 keys and values in blocks of 16: sequences that decode
// one row each, and one sequence that prefills 512 rows, at each context length (--mode: one of the
// two). The read bandwidth and the multiply-add peak are measured in alternation with it.
#include <cstdio>
#include <string>

#include "kernels/device.h"
#include "tests/bench/kernels/ceilings.h"

namespace continuo::bench {
namespace {

int Main(const Flags& flags) {
  const int threads = flags.Get("threads", 2), rounds = flags.Get("rounds", 7);
  kernels::AttentionParams params;
  params.num_heads = flags.Get("heads", 16);
  params.num_kv_heads = flags.Get("kv_heads", 8);
  params.head_dim = flags.Get("head_dim", 128);
  params.heads_per_kv_head = params.num_heads / params.num_kv_heads;
  params.scale = 0.088f;
  const std::unique_ptr<kernels::Device> made = DeviceOf(flags);
  kernels::Device& device = *made;
  const bool avx512 = device.name().find("avx512") != std::string::npos;
  const kernels::DType kv_type =
      flags.Get("kv", std::string("bf16")) == "int8" ? kernels::DType::kI8 : kernels::DType::kBF16;
  Ceilings ceilings(threads);
  const auto allocate = [&](kernels::DType d, int64_t a, int64_t b, int64_t c) {
    kernels::Tensor t{nullptr, d, {a, b, c}};
    t.data = *device.Allocate(t.bytes());
    std::memset(t.data, d == kernels::DType::kI32 ? 0 : 0x3c, t.bytes());
    return t;
  };

  nlohmann::json results;
  results["path"] = device.name();
  results["threads"] = threads;
  std::printf("%s, %d threads, %d/%d heads of %d\n", device.name().c_str(), threads,
              params.num_heads, params.num_kv_heads, params.head_dim);
  std::printf("%8s %8s %10s %8s %8s | %8s %8s\n", "context", "rows", "us", "GB/s", "GFLOP/s",
              "read", "fma");
  constexpr int64_t kBlock = 16;
  for (const int context : flags.GetList("context", "512,4096")) {
    for (const bool decode : {true, false}) {
      const std::string mode = decode ? "decode" : "prefill";
      if (flags.Get("mode", mode) != mode) continue;
      const int64_t seqs = decode ? flags.Get("sequences", 16) : 1,
                    rows_each = decode ? 1 : std::min(512, context);
      const int64_t blocks = (context + kBlock - 1) / kBlock, rows = seqs * rows_each;
      kernels::PagedKv kv;
      kv.cache = allocate(kv_type, seqs * blocks, params.num_kv_heads,
                          2 * kBlock * kernels::KvRowElements(kv_type, params.head_dim));
      kv.block_size = kBlock;
      kv.block_tables = allocate(kernels::DType::kI32, seqs, blocks, 1);
      kv.kv_len = allocate(kernels::DType::kI32, seqs, 1, 1);
      kv.query_begin = allocate(kernels::DType::kI32, seqs + 1, 1, 1);
      for (int64_t i = 0; i < seqs * blocks; ++i) {
        // Blocks are scattered: 7 and the number of blocks have no common factor if that is a power
        // of two.
        static_cast<int32_t*>(kv.block_tables.data)[i] =
            static_cast<int32_t>(i * 7 % (seqs * blocks));
      }
      for (int64_t i = 0; i < seqs; ++i) {
        static_cast<int32_t*>(kv.kv_len.data)[i] = context;
        static_cast<int32_t*>(kv.query_begin.data)[i + 1] =
            static_cast<int32_t>((i + 1) * rows_each);
      }
      const kernels::Tensor q =
          allocate(kernels::DType::kBF16, rows, params.num_heads, params.head_dim);
      const kernels::Tensor out =
          allocate(kernels::DType::kBF16, rows, params.num_heads, params.head_dim);
      std::vector<double> read, fma, seconds;
      for (int round = -1; round < rounds; ++round) {
        const double bandwidth = ceilings.ReadBandwidth();
        const double peak = ceilings.MultiplyAdds(avx512);
        int calls = 0;
        const double start = Seconds();
        do {
          device.ops().attention.PagedAttention(out, q, kv, params);
          ++calls;
        } while (Seconds() - start < 0.03);
        if (round < 0) continue;  // warms up
        seconds.push_back((Seconds() - start) / calls);
        read.push_back(bandwidth);
        fma.push_back(peak);
      }
      const double t = Median(seconds);
      const double pairs =
          static_cast<double>(rows) * (context - static_cast<double>(rows_each - 1) / 2);
      const double flops = 4.0 * pairs * params.num_heads * params.head_dim / t * 1e-9;
      const double moved = static_cast<double>(kv.cache.bytes()) / t * 1e-9;
      std::printf("%8d %8lld %10.1f %8.1f %8.1f | %8.1f %8.1f\n", context,
                  static_cast<long long>(rows), t * 1e6, moved, flops, Median(read), Median(fma));
      results["cases"].push_back({{"context", context},
                                  {"sequences", seqs},
                                  {"rows", rows},
                                  {"seconds", t},
                                  {"gb_per_s", moved},
                                  {"gflop_per_s", flops},
                                  {"read_gb_per_s", Median(read)},
                                  {"fma_gflop_per_s", Median(fma)}});
      for (const kernels::Tensor& tensor :
           {kv.cache, kv.block_tables, kv.kv_len, kv.query_begin, q, out}) {
        device.Free(tensor.data);
      }
    }
  }
  flags.WriteJson(results);
  return 0;
}

}  // namespace
}  // namespace continuo::bench

int main(int argc, char** argv) {
  return continuo::bench::Main(continuo::bench::Flags(argc, argv));
}
