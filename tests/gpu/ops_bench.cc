// SPDX-License-Identifier: Apache-2.0
// Ops of a CUDA device beside what its memory and its cores give in the same run:
//   ops_bench [--device=cuda:0] [--deterministic] [--fp8_fast_accumulation] [--late_grids]
//     [--warpgroup_attention] [--only=GROUP] [--json=FILE] [--list]
// Groups: ceilings, rows, chains, products, attention, draws. --late_grids: no kernel is started
// before the one in front of it has ended. --list tells the device and ends.
// Each figure is the median of 7 rounds; a round is one CUDA graph of many calls, so that the
// host's time counts only in draws, which are enqueued call by call. Calls take copies of weights,
// caches and rows in turn, 200 MB together, which the second-level cache does not hold; activations
// of products, queries and logits stay there, as they do in a model, and so do prompts' keys and
// values. GB/s counts what the op has to read and write at least, TFLOP/s two for each product and
// sum. The ceilings, measured first and last: cudaMemcpyAsync on the device (read and write
// counted), cudaMemsetAsync, a product of one row with 1 GiB of weights (read), and the largest
// product.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cuda_runtime_api.h"
#include "kernels/backend.h"
#include "kernels/bfloat16.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/early_grids.h"
#include "tests/gpu/case_runner.h"

namespace continuo {
namespace {

using Calls = std::vector<std::function<void()>>;

constexpr int64_t kWrittenRows = 4096;
constexpr double kColdBytes = 200e6;  // the second-level cache, 50 MB on Hopper, four times over

// So many copies of what a call reads.
int CopiesOf(double bytes) { return std::max(1, static_cast<int>(std::ceil(kColdBytes / bytes))); }

// Of a KV cache.
struct KvType {
  std::string name;
  DType dtype;
};
const KvType kKvTypes[] = {
    {"", DType::kBF16}, {" fp16", DType::kF16}, {" int8", DType::kI8}, {" fp8", DType::kF8}};
// Of queries, keys and values beside it.
DType NumberOf(const KvType& type) {
  return type.dtype == DType::kF16 ? DType::kF16 : DType::kBF16;
}

class Bench : public CaseSource {
 public:
  Bench(std::unique_ptr<Backend> backend, bool is_cuda) : backend_(std::move(backend)) {
    if (is_cuda) Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    Ceilings("");
    Rows();
    Chains();
    Products();
    JoinedProducts();
    Attention();
    Draws();
    Ceilings(", again");
  }

  Backend& backend() override { return b_; }
  std::span<const Case> cases() const override { return cases_; }
  void Wait() override {
    EndOnFailure(b_.Synchronize());
    if (stream_ != nullptr) Check(cudaStreamSynchronize(stream_));
    for (const DrawnToken& drawn : drawn_) {
      if (drawn.token_id < 0) EndOnFailure(absl::InternalError("the device left a draw"));
    }
  }
  void FreeArguments() override {
    drawn_ = {};
    for (void* data : arguments_) b_.Free(data);
    for (void* data : host_arguments_) b_.FreeHost(data);
    arguments_.clear();
    host_arguments_.clear();
  }

 private:
  static void Check(cudaError_t error) {
    if (error != cudaSuccess) EndOnFailure(absl::InternalError(cudaGetErrorString(error)));
  }

  Tensor Zeros(DType dtype, std::array<int64_t, 3> shape) {
    Tensor t = {nullptr, dtype, shape};
    auto data = b_.Allocate(t.bytes());
    EndOnFailure(data.status());
    t.data = *data;
    arguments_.push_back(t.data);
    return t;
  }
  // Numbers in [-1, 1) of a small generator, the same in every run; of other types any bytes.
  Tensor Random(DType dtype, std::array<int64_t, 3> shape) {
    const Tensor t = Zeros(dtype, shape);
    const std::vector<uint8_t>& host = Pattern(dtype);
    const auto size = static_cast<int64_t>(SizeOf(dtype));
    const int64_t n = static_cast<int64_t>(host.size()) / size;
    for (int64_t begin = 0; begin < t.size(); begin += n) {
      Tensor part = t;
      part.data = static_cast<char*>(t.data) + begin * size;
      part.shape = {1, std::min(n, t.size() - begin), 1};
      b_.CopyIn(part, host.data());
    }
    EndOnFailure(b_.Synchronize());
    return t;
  }
  const std::vector<uint8_t>& Pattern(DType dtype) {
    constexpr int kElements = 8 << 20;
    std::vector<uint8_t>& bytes = patterns_[dtype];
    if (!bytes.empty()) return bytes;
    uint32_t seed = 1;
    for (int i = 0; i < kElements; ++i) {
      seed = seed * 1664525u + 1013904223u;
      const float value = static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-31f;
      const uint16_t narrow = dtype == DType::kF16 ? ToF16(value) : ToBF16(value);
      const auto* from = dtype == DType::kF32 ? reinterpret_cast<const uint8_t*>(&value)
                                              : reinterpret_cast<const uint8_t*>(&narrow);
      bytes.insert(bytes.end(), from, from + SizeOf(dtype));
    }
    return bytes;
  }
  Tensor Ints(const std::vector<int32_t>& values, int64_t cols = 1) {
    const Tensor t = Zeros(DType::kI32, {static_cast<int64_t>(values.size()) / cols, cols, 1});
    b_.CopyIn(t, values.data());
    EndOnFailure(b_.Synchronize());
    return t;
  }
  Tensor Slots(int64_t begin, int64_t end) {
    std::vector<int32_t> slots;
    for (int64_t i = begin; i < end; ++i) slots.push_back(static_cast<int32_t>(i));
    return Ints(slots);
  }

  // A case whose calls are `make`'s, which is asked for as many as there are to be copies of `cold`
  // bytes.
  template <typename Make>
  void Add(const std::string& group, const std::string& name, double bytes, double flops,
           double cold, Make make) {
    cases_.push_back({group, name, bytes, flops, [=, this] {
                        Calls calls;
                        for (int i = 0; i < CopiesOf(cold); ++i) calls.push_back(make());
                        return calls;
                      }});
  }

  void Ceilings(const std::string& when) {
    constexpr int64_t kBytes = int64_t{1} << 30;
    if (stream_ != nullptr) {
      Add("ceilings", "copy of 1 GiB" + when, 2.0 * kBytes, 0, kBytes, [=, this] {
        void* const from = Random(DType::kBF16, {1, kBytes / 2, 1}).data;
        void* const to = Zeros(DType::kBF16, {1, kBytes / 2, 1}).data;
        return [=, this] {
          Check(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice, stream_));
        };
      });
      cases_.back().repeats = false;
      Add("ceilings", "memset of 1 GiB" + when, kBytes, 0, kBytes, [=, this] {
        void* const to = Zeros(DType::kBF16, {1, kBytes / 2, 1}).data;
        return [=, this] { Check(cudaMemsetAsync(to, 1, kBytes, stream_)); };
      });
      cases_.back().repeats = false;
    }
    Product("ceilings", "1 GiB" + when, WeightType::kBF16, kBytes / 2 / 8192, 8192, 1);
    Product("ceilings", "peak" + when, WeightType::kBF16, 8192, 8192, 8192);
  }

  void Rows() {
    constexpr int64_t kRows = 4096, kHidden = 4096, kInner = 14336;
    constexpr double kElements = kRows * kHidden;
    const auto add = [this](const std::string& name, double bytes, auto make) {
      Add("rows", name, bytes, 0, bytes, make);
    };
    const auto hidden = [this](DType type) { return Random(type, {kRows, kHidden, 1}); };
    add("GatherRows f32, every other row", kElements * 4, [=, this] {
      std::vector<int32_t> rows;
      for (int i = 0; i < kRows / 2; ++i) rows.push_back(i * 2);
      const Tensor x = hidden(DType::kF32), taken = Ints(rows);
      const Tensor out = Zeros(DType::kF32, {kRows / 2, kHidden, 1});
      return [=, this] { b_.GatherRows(out, x, taken); };
    });
    add("RmsNorm", kElements * 4, [=, this] {
      const Tensor x = hidden(DType::kBF16), out = Zeros(DType::kBF16, x.shape);
      const Tensor gain = Random(DType::kF32, {1, kHidden, 1});
      return [=, this] { b_.RmsNorm(out, x, gain, 1e-5f); };
    });
    add("AddSum", kElements * 8, [=, this] {
      const Tensor x = hidden(DType::kBF16), sum = hidden(DType::kF32);
      return [=, this] { b_.AddSum(x, sum, Tensor()); };
    });
    add("SiluMul", 6.0 * kRows * kInner, [=, this] {
      const Tensor gate = Random(DType::kBF16, {kRows, kInner, 1});
      const Tensor up = Random(DType::kBF16, {kRows, kInner, 1});
      return [=, this] { b_.SiluMul(gate, gate, up); };
    });
    add("Rope", kElements * 4 + 4.0 * kRows * 128, [=, this] {
      const Tensor x = hidden(DType::kBF16), angles = Random(DType::kF32, {kRows, 128, 1});
      return [=, this] { b_.Rope(x, angles, 128); };
    });
    for (const KvType& type : kKvTypes) {
      const int64_t row = KvRowElements(type.dtype, 128);
      const double bytes =
          2.0 * 8 * kWrittenRows * (128 * 2 + static_cast<double>(row) * SizeOf(type.dtype));
      add("WriteKv, rows " + std::to_string(kWrittenRows) + type.name, bytes, [=, this] {
        const Tensor k = Random(NumberOf(type), {kWrittenRows, 8 * 128, 1});
        const Tensor v = Random(NumberOf(type), {kWrittenRows, 8 * 128, 1});
        PagedKv kv;
        kv.block_size = 16;
        kv.cache = Zeros(type.dtype, {kWrittenRows / 16, 8, 2 * 16 * row});
        const Tensor slots = Slots(0, kWrittenRows);
        return [=, this] { b_.WriteKv(kv, k, v, slots); };
      });
    }
  }

  // Of one row: a norm is bound by what is between two kernels, a product is begun meanwhile.
  void Chains() {
    constexpr int64_t kHidden = 4096;
    constexpr double kWeightBytes = 2.0 * kHidden * kHidden;
    const auto norm = [this] {
      const Tensor x = Random(DType::kBF16, {1, kHidden, 1}), out = Zeros(DType::kBF16, x.shape);
      const Tensor gain = Random(DType::kF32, {1, kHidden, 1});
      return std::pair(out, [=, this] { b_.RmsNorm(out, x, gain, 1e-5f); });
    };
    Add("chains", "RmsNorm", 8.0 * kHidden, 0, kColdBytes, [=] { return norm().second; });
    Add("chains", "RmsNorm, MatMuls 8B o", 12.0 * kHidden + kWeightBytes, 0, kWeightBytes,
        [=, this] {
          const auto [x, make_x] = norm();
          const continuo::Product product[] = {
              {Zeros(DType::kBF16, x.shape),
               {Random(DType::kBF16, {kHidden, kHidden, 1}), WeightFormat::kDense},
               Tensor()}};
          return [=, this] {
            make_x();
            b_.MatMuls(x, product);
          };
        });
  }

  // Of Qwen3-0.6B and Llama-3.1-8B.
  void Products() {
    struct Matrix {
      const char* name;
      int64_t columns, k;
    };
    for (const Matrix& m : {Matrix{"0.6B gate", 3072, 1024}, Matrix{"8B q", 4096, 4096},
                            Matrix{"8B gate", 14336, 4096}, Matrix{"8B down", 4096, 14336}}) {
      for (const int64_t rows : {1, 8, 64, 256, 2048}) {
        Product("products", m.name, WeightType::kBF16, m.columns, m.k, rows);
      }
    }
    for (const int64_t rows : {1, 64, 2048}) {
      if (!b_.Computes(WeightType::kF16)) break;
      Product("products", "8B gate fp16", WeightType::kF16, 14336, 4096, rows);
    }
    for (const WeightType type : {WeightType::kInt8, WeightType::kInt4, WeightType::kFp8}) {
      if (!b_.Computes(type)) continue;
      for (const Matrix& m : {Matrix{"8B gate", 14336, 4096}, Matrix{"8B down", 4096, 14336}}) {
        for (const int64_t rows : {1, 8, 32, 64, 256, 2048}) {
          Product("products", std::string(m.name) + " " + NameOf(type), type, m.columns, m.k, rows);
        }
      }
    }
  }

  // Several products of one x, which may be one launch: queries, keys and values, gate and up; and
  // one that may go the same way alone.
  void JoinedProducts() {
    struct Shape {
      const char* name;
      std::vector<int64_t> columns;
      int64_t k;
    };
    for (const Shape& s :
         {Shape{"8B q, k, v", {4096, 1024, 1024}, 4096}, Shape{"8B gate, up", {14336, 14336}, 4096},
          Shape{"0.6B q, k, v", {2048, 1024, 1024}, 1024}, Shape{"8B down", {4096}, 14336}}) {
      for (const int64_t rows : {1, 8, 16}) {
        const int64_t columns = std::accumulate(s.columns.begin(), s.columns.end(), int64_t{0});
        const double bytes = 2.0 * static_cast<double>(columns * s.k);
        cases_.push_back(
            {"products", std::string("MatMuls ") + s.name + ", rows " + std::to_string(rows),
             bytes + 2.0 * static_cast<double>(rows * (columns + s.k)),
             2.0 * static_cast<double>(rows * columns * s.k), [=, this] {
               const Tensor x = Random(DType::kBF16, {rows, s.k, 1});
               Calls calls;
               for (int i = 0; i < CopiesOf(bytes); ++i) {
                 std::vector<continuo::Product> products;
                 for (const int64_t n : s.columns) {
                   products.push_back({Zeros(DType::kBF16, {rows, n, 1}),
                                       {Random(DType::kBF16, {n, s.k, 1}), WeightFormat::kDense},
                                       Tensor()});
                 }
                 calls.push_back([=, this] { b_.MatMuls(x, products); });
               }
               return calls;
             }});
      }
    }
  }

  // Of random bytes: scales and elements of quantised weights are any.
  void Product(const std::string& group, const std::string& name, WeightType type, int64_t columns,
               int64_t k, int64_t rows) {
    const bool dense = type == WeightType::kBF16 || type == WeightType::kF16;
    const DType number = type == WeightType::kF16 ? DType::kF16 : DType::kBF16;
    const Weight shape = {{nullptr, dense ? number : DType::kI8, {columns, k, 1}},
                          dense ? WeightFormat::kDense : b_.FormatOf(type)};
    const int64_t pieces[] = {0, k};
    const auto weight_bytes = static_cast<int64_t>(b_.WeightBytes(shape, pieces));
    cases_.push_back(
        {group, "MatMul " + name + ", rows " + std::to_string(rows),
         static_cast<double>(weight_bytes) + 2.0 * static_cast<double>(rows * (columns + k)),
         2.0 * static_cast<double>(rows * columns * k), [=, this] {
           const Tensor x = Random(number, {rows, k, 1}), out = Zeros(number, {rows, columns, 1});
           Calls calls;
           for (int i = 0; i < CopiesOf(static_cast<double>(weight_bytes)); ++i) {
             Weight w = shape;
             w.data.data = Random(number, {1, (weight_bytes + 1) / 2, 1}).data;
             calls.push_back([=, this] { b_.MatMul(out, x, w, Tensor()); });
           }
           return calls;
         }});
  }

  // 8B's heads: 32 on 8 of 128. Of bytes what has to be read is half as much, and scales.
  void Attention() {
    for (const auto& [seqs, context] : std::vector<std::array<int, 2>>{
             {1, 4096}, {16, 1024}, {64, 1024}, {64, 4096}, {8, 32768}}) {
      for (const KvType& type : kKvTypes) Attend("decode", seqs, 1, context, type);
    }
    for (const auto& [rows, context] :
         std::vector<std::array<int, 2>>{{512, 512}, {2048, 2048}, {2048, 16384}}) {
      for (const KvType& type : kKvTypes) Attend("prefill", 1, rows, context, type);
    }
  }

  void Attend(const std::string& name, int seqs, int rows, int context, const KvType& type) {
    const int64_t row = KvRowElements(type.dtype, 128), num_rows = int64_t{seqs} * rows;
    const double kept =
        static_cast<double>(seqs) * context * 8 * 2 * static_cast<double>(row) * SizeOf(type.dtype);
    const double seen = rows * (context - (rows - 1) / 2.0) * seqs;  // positions, of all rows
    cases_.push_back({"attention",
                      name + " " + std::to_string(seqs) + " x " + std::to_string(rows) + " at " +
                          std::to_string(context) + type.name,
                      kept + static_cast<double>(num_rows) * 32 * 128 * 4, seen * 32 * 128 * 4,
                      [=, this] {
                        const Tensor q = Random(NumberOf(type), {num_rows, 32 * 128, 1});
                        const Tensor out = Zeros(NumberOf(type), {num_rows, 32 * 128, 1});
                        Calls calls;
                        for (int i = 0; i < (rows == 1 ? CopiesOf(kept) : 1); ++i) {
                          const PagedKv kv = Cache(seqs, rows, context, type);
                          calls.push_back([=, this] {
                            b_.PagedAttention(out, q, kv,
                                              {.num_heads = 32,
                                               .num_kv_heads = 8,
                                               .head_dim = 128,
                                               .heads_per_kv_head = 4,
                                               .scale = 0.088f});
                          });
                        }
                        return calls;
                      }});
  }

  PagedKv Cache(int seqs, int rows, int context, const KvType& type) {
    PagedKv kv;
    kv.block_size = 16;
    const int blocks = context / kv.block_size;
    kv.cache =
        Random(type.dtype, {int64_t{seqs} * blocks, 8, 2 * 16 * KvRowElements(type.dtype, 128)});
    if (SizeOf(type.dtype) == 1) {  // random bytes are no scales
      const Tensor k = Random(DType::kBF16, {kWrittenRows, 8 * 128, 1});
      for (int64_t begin = 0; begin < int64_t{seqs} * context; begin += kWrittenRows) {
        const int64_t end = std::min(int64_t{seqs} * context, begin + kWrittenRows);
        Tensor part = k;
        part.shape[0] = end - begin;
        b_.WriteKv(kv, part, part, Slots(begin, end));
      }
    }
    std::vector<int32_t> tables, lengths, begins = {0};
    for (int s = 0; s < seqs; ++s) {
      // Blocks lie scattered: a step that has no divisor in common with their number.
      for (int i = 0; i < blocks; ++i) {
        tables.push_back(
            static_cast<int32_t>((int64_t{s} * blocks + i) * 1'000'003 % (int64_t{seqs} * blocks)));
      }
      lengths.push_back(context);
      begins.push_back(begins.back() + rows);
    }
    kv.block_tables = Ints(tables, blocks);
    kv.kv_len = Ints(lengths);
    kv.query_begin = Ints(begins);
    kv.num_single = NumSingle(begins);
    return kv;
  }

  // Tokens of a vocabulary of 151,936; what has to be read is the logits.
  void Draws() {
    for (const auto& [name, draw] : std::vector<std::pair<std::string, TokenDraw>>{
             {"greedy", {.temperature = 0}},
             {"plain", {.uniform = 0.7}},
             {"top_k 50", {.uniform = 0.7, .temperature = 0.2f, .top_k = 50}},
             {"top_p 0.95", {.uniform = 0.7, .top_p = 0.95f}},
             {"top_k 20, top_p 0.95",
              {.uniform = 0.7, .temperature = 0.6f, .top_k = 20, .top_p = 0.95f}},
             {"greedy, 5 logprobs", {.temperature = 0, .num_alternatives = 5}}}) {
      for (const int64_t rows : {1, 16, 64}) {
        std::vector<TokenDraw> draws(static_cast<size_t>(rows), draw);
        for (int64_t r = 0; r < rows; ++r) {
          draws[static_cast<size_t>(r)].row = static_cast<int32_t>(r);
        }
        cases_.push_back({"draws", "DrawTokens " + name + ", rows " + std::to_string(rows),
                          4.0 * static_cast<double>(rows * kVocabulary), 0,
                          [=, this] { return Calls{Draw(draws)}; }, /*repeats=*/false});
      }
    }
  }

  std::function<void()> Draw(std::vector<TokenDraw> draws) {
    const auto rows = static_cast<int64_t>(draws.size());
    const Tensor logits = Logits(rows), tokens = Zeros(DType::kI32, {rows, 1, 1});
    auto memory = b_.AllocateHost(draws.size() * sizeof(DrawnToken));
    EndOnFailure(memory.status());
    host_arguments_.push_back(*memory);
    drawn_ = {static_cast<DrawnToken*>(*memory), draws.size()};
    return [=, this, draws = std::move(draws)] {
      if (!b_.DrawTokens(drawn_, tokens, logits, {}, {.draws = draws})) {
        EndOnFailure(absl::UnimplementedError("the device does not draw tokens"));
      }
    };
  }

  // As models' are: a few large ones, the others far below.
  Tensor Logits(int64_t rows) {
    constexpr int64_t kLarge = 50;
    const Tensor logits = Zeros(DType::kF32, {rows, kVocabulary, 1});
    std::vector<float> row(kVocabulary);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < kVocabulary; ++i) {
        const auto place = (i * 7919 + r) % kVocabulary;
        row[static_cast<size_t>(i)] = place < kLarge ? -0.3f * static_cast<float>(place)
                                                     : -20 - static_cast<float>(place) * 0x1p-16f;
      }
      Tensor one = logits;
      one.shape[0] = 1;
      one.data = static_cast<float*>(logits.data) + r * kVocabulary;
      b_.CopyIn(one, row.data());
      EndOnFailure(b_.Synchronize());
    }
    return logits;
  }

  static constexpr int64_t kVocabulary = 151936;

  const std::unique_ptr<Backend> backend_;
  Backend& b_ = *backend_;
  cudaStream_t stream_ = nullptr;  // of calls that are not the Backend's
  std::vector<Case> cases_;
  std::map<DType, std::vector<uint8_t>> patterns_;
  std::span<DrawnToken> drawn_;  // what the case's calls draw
  std::vector<void*> arguments_, host_arguments_;
};

absl::StatusOr<std::unique_ptr<Backend>> WithWarpgroups(const BackendOptions& options) {
  const auto indices = cuda::ParseDevices(options.device);
  if (!indices.ok()) return indices.status();
  const auto devices = cuda::FindDevices(*indices);
  if (!devices.ok()) return devices.status();
  return cuda::CudaBackend::Make({.device = devices->front(),
                                  .deterministic = options.deterministic,
                                  .fp8_fast_accumulation = options.fp8_fast_accumulation,
                                  .warpgroup_attention = true});
}

int Main(int argc, char** argv) {
  BackendOptions options;
  options.device = "cuda:0";
  std::string json, only;
  bool list = false, warpgroup_attention = false;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--device=", 0) == 0) {
      options.device = arg.substr(9);
    } else if (arg.rfind("--json=", 0) == 0) {
      json = arg.substr(7);
    } else if (arg.rfind("--only=", 0) == 0) {
      only = arg.substr(7);
    } else if (arg == "--deterministic") {
      options.deterministic = true;
    } else if (arg == "--fp8_fast_accumulation") {
      options.fp8_fast_accumulation = true;
    } else if (arg == "--warpgroup_attention") {
      warpgroup_attention = true;
    } else if (arg == "--late_grids") {
      cuda::AllowEarlyGrids(false);
    } else if (arg == "--list") {
      list = true;
    } else {
      std::fprintf(stderr, "ops_bench does not know %s\n", argv[i]);
      return 2;
    }
  }
  const auto open = [&]() -> std::unique_ptr<Backend> {
    auto backend = warpgroup_attention ? WithWarpgroups(options) : MakeBackend(options);
    if (backend.ok()) return *std::move(backend);
    std::fprintf(stderr, "%s\n", backend.status().ToString().c_str());
    return nullptr;
  };
  if (list) {
    const auto backend = open();
    if (backend == nullptr) return 1;
    std::printf("%s\n", backend->name().c_str());
    return 0;
  }
  return RunCases(
      [&]() -> std::unique_ptr<CaseSource> {
        auto backend = open();
        if (backend == nullptr) return nullptr;
        return std::make_unique<Bench>(std::move(backend), options.device.starts_with("cuda"));
      },
      only, json);
}

}  // namespace
}  // namespace continuo

int main(int argc, char** argv) { return continuo::Main(argc, argv); }
