// SPDX-License-Identifier: Apache-2.0
// Ops of a CUDA device beside what its memory gives in the same run:
//   ops_bench [--device=cuda:0] [--deterministic] [--json=FILE] [--list]
// --list tells the device and ends.
// Each figure is the median of 7 rounds, in which everything is measured once, in turn; a round is
// some calls enqueued one after the other and waited for once. GB/s counts what the op has to read
// and write at least, TFLOP/s two for each product and sum. The ceiling is a copy on the device,
// read and write counted, and the largest product; both are among the cases.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/bfloat16.h"
#include "services/base/check.h"

namespace continuo {
namespace {

constexpr int kRounds = 7;
constexpr int64_t kWrittenRows = 4096;

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

struct Case {
  std::string name;
  double bytes = 0, flops = 0;  // of one call
  std::function<void()> call;
  std::vector<double> seconds = {};  // of a call, by round
};

class Bench {
 public:
  explicit Bench(Backend& backend) : b_(backend) {}

  // Numbers in [-1, 1) of a small generator, the same in every run.
  Tensor Random(DType dtype, std::array<int64_t, 3> shape) {
    Tensor t = {nullptr, dtype, shape};
    auto data = b_.Allocate(t.bytes());
    CONTINUO_CHECK(data.ok());
    t.data = *data;
    constexpr int64_t kPattern = int64_t{8} << 20;  // elements
    std::vector<uint8_t> host;
    uint32_t seed = 1;
    const int64_t n = std::min(t.size(), kPattern);
    for (int64_t i = 0; i < n; ++i) {
      seed = seed * 1664525u + 1013904223u;
      const float value = static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-31f;
      const uint16_t narrow = dtype == DType::kF16 ? ToF16(value) : ToBF16(value);
      const auto* from = dtype == DType::kF32 ? reinterpret_cast<const uint8_t*>(&value)
                                              : reinterpret_cast<const uint8_t*>(&narrow);
      host.insert(host.end(), from, from + SizeOf(dtype));
    }
    for (int64_t begin = 0; begin < t.size(); begin += n) {
      Tensor part = t;
      part.data = static_cast<char*>(t.data) + begin * static_cast<int64_t>(SizeOf(dtype));
      part.shape = {1, std::min(n, t.size() - begin), 1};
      b_.CopyIn(part, host.data());
    }
    CONTINUO_CHECK(b_.Synchronize().ok());
    return t;
  }
  Tensor Ints(const std::vector<int32_t>& values, int64_t cols = 1) {
    Tensor t = {nullptr, DType::kI32, {static_cast<int64_t>(values.size()) / cols, cols, 1}};
    auto data = b_.Allocate(t.bytes());
    CONTINUO_CHECK(data.ok());
    t.data = *data;
    b_.CopyIn(t, values.data());
    CONTINUO_CHECK(b_.Synchronize().ok());
    return t;
  }

  void Add(Case c) { cases_.push_back(std::move(c)); }

  void Products() {
    // Of Qwen3-0.6B, Llama-3.1-8B and, last, what shows the peak.
    struct Matrix {
      const char* name;
      int64_t columns, k;
    };
    for (const Matrix& m : {Matrix{"0.6B gate", 3072, 1024}, Matrix{"8B q", 4096, 4096},
                            Matrix{"8B gate", 14336, 4096}, Matrix{"8B down", 4096, 14336}}) {
      const Weight w = {Random(DType::kBF16, {m.columns, m.k, 1}), WeightFormat::kDense};
      for (const int64_t rows : {1, 8, 64, 256, 2048}) Product(m.name, w, rows);
    }
    Product("peak", {Random(DType::kBF16, {8192, 8192, 1}), WeightFormat::kDense}, 8192);
    const Weight half = {Random(DType::kF16, {14336, 4096, 1}), WeightFormat::kDense};
    for (const int64_t rows : {1, 64, 2048}) Product("8B gate fp16", half, rows, DType::kF16);
    std::vector<WeightType> types = {WeightType::kInt8, WeightType::kInt4};
    if (b_.Computes(WeightType::kFp8)) types.push_back(WeightType::kFp8);
    for (const WeightType type : types) {
      for (const Matrix& m : {Matrix{"8B gate", 14336, 4096}, Matrix{"8B down", 4096, 14336}}) {
        const Weight w = Quantised(type, m.columns, m.k);
        for (const int64_t rows : {1, 8, 32, 64, 256, 2048}) {
          Product(std::string(m.name) + " " + NameOf(type), w, rows);
        }
      }
    }
  }

  // Of random bytes: scales and elements are any.
  Weight Quantised(WeightType type, int64_t columns, int64_t k) {
    Weight w = {{nullptr, DType::kI8, {columns, k, 1}}, b_.FormatOf(type)};
    const int64_t pieces[] = {0, k};
    const auto bytes = static_cast<int64_t>(b_.WeightBytes(w, pieces));
    w.data.data = Random(DType::kBF16, {1, bytes / 2, 1}).data;
    return w;
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
    for (const KvType& type : kKvTypes) {
      const Tensor k = Random(NumberOf(type), {kWrittenRows, 8 * 128, 1});
      const Tensor v = Random(NumberOf(type), {kWrittenRows, 8 * 128, 1});
      PagedKv kv;
      kv.block_size = 16;
      const int64_t row = KvRowElements(type.dtype, 128);
      kv.cache = Random(type.dtype, {kWrittenRows / 16, 8, 2 * 16 * row});
      const double bytes =
          2.0 * 8 * kWrittenRows * (128 * 2 + static_cast<double>(row) * SizeOf(type.dtype));
      const Tensor slots = Slots(0, kWrittenRows);
      Add({"WriteKv, rows " + std::to_string(kWrittenRows) + type.name, bytes, 0,
           [=, this] { b_.WriteKv(kv, k, v, slots); }});
    }
  }

  void Rows() {
    constexpr int64_t kRows = 4096, kHidden = 4096, kInner = 14336;
    const Tensor x = Random(DType::kBF16, {kRows, kHidden, 1});
    const Tensor out = Random(DType::kBF16, {kRows, kHidden, 1});
    const Tensor sum = Random(DType::kF32, {kRows, kHidden, 1});
    const Tensor gain = Random(DType::kF32, {1, kHidden, 1});
    const Tensor gate = Random(DType::kBF16, {kRows, kInner, 1});
    const Tensor up = Random(DType::kBF16, {kRows, kInner, 1});
    const Tensor angles = Random(DType::kF32, {kRows, 128, 1});
    const double elements = kRows * kHidden;
    // Half of the rows, read and written.
    Add({"copy", elements * 4, 0, [=, this] {
           Tensor half = sum;
           half.shape[0] = kRows / 2;
           b_.GatherRows(half, sum, some_rows_);
         }});
    Add({"RmsNorm", elements * 4, 0, [=, this] { b_.RmsNorm(out, x, gain, 1e-5f); }});
    Add({"AddSum", elements * 8, 0, [=, this] { b_.AddSum(x, sum, Tensor()); }});
    Add({"SiluMul", 6.0 * kRows * kInner, 0, [=, this] { b_.SiluMul(gate, gate, up); }});
    Add({"Rope", elements * 4 + 4.0 * kRows * 128, 0, [=, this] { b_.Rope(x, angles, 128); }});
  }

  // Tokens of a vocabulary of 151,936; what has to be read is the logits. As models' are: a few
  // large ones, the others far below.
  void Draws() {
    constexpr int64_t kVocab = 151936, kLarge = 50;
    Tensor logits = Random(DType::kF32, {64, kVocab, 1});
    std::vector<float> row(kVocab);
    for (int64_t r = 0; r < logits.rows(); ++r) {
      for (int64_t i = 0; i < kVocab; ++i) {
        const auto place = (i * 7919 + r) % kVocab;
        row[static_cast<size_t>(i)] = place < kLarge ? -0.3f * static_cast<float>(place)
                                                     : -20 - static_cast<float>(place) * 0x1p-16f;
      }
      Tensor one = logits;
      one.shape[0] = 1;
      one.data = static_cast<float*>(logits.data) + r * kVocab;
      b_.CopyIn(one, row.data());
      CONTINUO_CHECK(b_.Synchronize().ok());
    }
    auto memory = b_.AllocateHost(64 * sizeof(DrawnToken));
    CONTINUO_CHECK(memory.ok());
    drawn_ = {static_cast<DrawnToken*>(*memory), 64};
    auto tokens = b_.Allocate(64 * sizeof(int32_t));
    CONTINUO_CHECK(tokens.ok());
    tokens_ = *tokens;
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
        Add({"DrawTokens " + name + ", rows " + std::to_string(rows),
             4.0 * static_cast<double>(rows * kVocab), 0, [=, this] {
               const Tensor tokens = {tokens_, DType::kI32, {rows, 1, 1}};
               CONTINUO_CHECK(
                   b_.DrawTokens(drawn_.first(draws.size()), tokens, logits, {}, {.draws = draws}));
             }});
      }
    }
  }

  int Run(const std::string& json) {
    std::vector<int32_t> rows;
    for (int i = 0; i < 2048; ++i) rows.push_back(i * 2);
    some_rows_ = Ints(rows);
    Rows();
    Products();
    Attention();
    Draws();
    for (int round = -1; round < kRounds; ++round) {  // the first one loads code
      for (Case& c : cases_) {
        const double seconds = Time(c.call, 1);
        const int calls = std::clamp(static_cast<int>(0.02 / seconds), 1, 1000);
        const double one = Time(c.call, calls);
        if (round >= 0) c.seconds.push_back(one);
      }
    }
    for (const DrawnToken& drawn : drawn_) CONTINUO_CHECK(drawn.token_id >= 0);  // not left
    std::ofstream file(json.empty() ? "/dev/null" : json);
    file << "{\"device\": \"" << b_.name() << "\", \"ops\": [";
    bool first = true;
    for (Case& c : cases_) {
      std::sort(c.seconds.begin(), c.seconds.end());
      const double s = c.seconds[kRounds / 2];
      std::printf("%-40s %10.2f us  %8.1f GB/s  %8.2f TFLOP/s  (%.2f to %.2f us)\n", c.name.c_str(),
                  s * 1e6, c.bytes / s * 1e-9, c.flops / s * 1e-12, c.seconds.front() * 1e6,
                  c.seconds.back() * 1e6);
      file << (first ? "" : ",") << "\n  {\"op\": \"" << c.name << "\", \"us\": " << s * 1e6
           << ", \"gb_per_s\": " << c.bytes / s * 1e-9
           << ", \"tflop_per_s\": " << c.flops / s * 1e-12 << "}";
      first = false;
    }
    file << "\n]}\n";
    const absl::Status status = b_.Synchronize();
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return status.ok() ? 0 : 1;
  }

 private:
  double Time(const std::function<void()>& call, int calls) {
    CONTINUO_CHECK(b_.Synchronize().ok());
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    CONTINUO_CHECK(b_.Synchronize().ok());
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    return taken.count() / calls;
  }

  void Product(const std::string& name, const Weight& w, int64_t rows, DType type = DType::kBF16) {
    const int64_t columns = w.data.rows(), k = w.data.cols();
    const int64_t pieces[] = {0, k};
    const Tensor x = Random(type, {rows, k, 1}), out = Random(type, {rows, columns, 1});
    Add({"MatMul " + name + ", rows " + std::to_string(rows),
         static_cast<double>(b_.WeightBytes(w, pieces)) +
             2.0 * static_cast<double>(rows * (columns + k)),
         2.0 * static_cast<double>(rows * columns * k),
         [=, this] { b_.MatMul(out, x, w, Tensor()); }});
  }

  Tensor Slots(int64_t begin, int64_t end) {
    std::vector<int32_t> slots;
    for (int64_t i = begin; i < end; ++i) slots.push_back(static_cast<int32_t>(i));
    return Ints(slots);
  }

  void Attend(const std::string& name, int seqs, int rows, int context, const KvType& type) {
    AttentionParams params;
    params.num_heads = 32;
    params.num_kv_heads = 8;
    params.head_dim = 128;
    params.heads_per_kv_head = 4;
    params.scale = 0.088f;
    PagedKv kv;
    kv.block_size = 16;
    const int blocks = context / kv.block_size;
    const int64_t row = KvRowElements(type.dtype, 128);
    kv.cache = Random(type.dtype, {int64_t{seqs} * blocks, 8, 2 * 16 * row});
    if (SizeOf(type.dtype) == 1) {  // random bytes are no scales
      const Tensor k = Random(DType::kBF16, {kWrittenRows, 8 * 128, 1});
      for (int64_t begin = 0; begin < int64_t{seqs} * context; begin += kWrittenRows) {
        const int64_t end = std::min(int64_t{seqs} * context, begin + kWrittenRows);
        Tensor part = k;
        part.shape[0] = end - begin;
        const Tensor slots = Slots(begin, end);
        b_.WriteKv(kv, part, part, slots);
        CONTINUO_CHECK(b_.Synchronize().ok());
        b_.Free(slots.data);
      }
      b_.Free(k.data);
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
    const int64_t num_rows = int64_t{seqs} * rows;
    const Tensor q = Random(NumberOf(type), {num_rows, 32 * 128, 1});
    const Tensor out = Random(NumberOf(type), {num_rows, 32 * 128, 1});
    const double seen = rows * (context - (rows - 1) / 2.0) * seqs;  // positions, of all rows
    Add({name + " " + std::to_string(seqs) + " x " + std::to_string(rows) + " at " +
             std::to_string(context) + type.name,
         static_cast<double>(seqs) * context * 8 * 2 * static_cast<double>(row) *
                 SizeOf(type.dtype) +
             num_rows * 32.0 * 128 * 4,
         seen * 32 * 128 * 4, [=, this] { b_.PagedAttention(out, q, kv, params); }});
  }

  Backend& b_;
  Tensor some_rows_;
  std::span<DrawnToken> drawn_;
  void* tokens_ = nullptr;
  std::vector<Case> cases_;
};

int Main(int argc, char** argv) {
  BackendOptions options;
  options.device = "cuda:0";
  std::string json;
  bool list = false;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--device=", 0) == 0) options.device = arg.substr(9);
    if (arg.rfind("--json=", 0) == 0) json = arg.substr(7);
    if (arg == "--deterministic") options.deterministic = true;
    list = list || arg == "--list";
  }
  const auto backend = MakeBackend(options);
  if (!backend.ok()) {
    std::fprintf(stderr, "%s\n", backend.status().ToString().c_str());
    return 1;
  }
  if (list) {
    std::printf("%s\n", (*backend)->name().c_str());
    return 0;
  }
  return Bench(**backend).Run(json);
}

}  // namespace
}  // namespace continuo

int main(int argc, char** argv) { return continuo::Main(argc, argv); }
