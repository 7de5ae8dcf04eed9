// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/ops_source.h"

namespace continuo {
namespace {

constexpr int64_t kHead = 128, kWrittenRows = 4096;
constexpr int kBlockSize = 16;

struct Heads {
  std::string name;
  int queries, kv;
};
const Heads kHeads8B = {"8B", 32, 8};

// Sequences of `context` positions, the last `rows` of which are computed.
struct Attended {
  Heads heads;
  int seqs, rows, context;
  KvType type;
};

// With a block_size of the whole context there is one block for each sequence, in order. Smaller
// blocks are scattered.
kernels::PagedKv CacheOf(OpsSource& s, const Attended& a, int block_size) {
  kernels::PagedKv kv;
  kv.block_size = block_size;
  const int blocks = a.context / block_size;
  kv.cache = s.Random(a.type.dtype, {int64_t{a.seqs} * blocks, a.heads.kv,
                                     2 * block_size * kernels::KvRowElements(a.type.dtype, kHead)});
  if (kernels::SizeOf(a.type.dtype) == 1) {  // random bytes are no scales
    const kernels::Tensor k =
        s.Random(kernels::DType::kBF16, {kWrittenRows, a.heads.kv * kHead, 1});
    const int64_t positions = int64_t{a.seqs} * a.context;
    for (int64_t begin = 0; begin < positions; begin += kWrittenRows) {
      const int64_t end = std::min(positions, begin + kWrittenRows);
      kernels::Tensor part = k;
      part.shape[0] = end - begin;
      s.b.ops().attention.WriteKv(kv, part, part, s.Slots(begin, end));
    }
  }
  std::vector<int32_t> tables, lengths, begins = {0};
  const int64_t all = int64_t{a.seqs} * blocks;
  for (int seq = 0; seq < a.seqs; ++seq) {
    // Blocks are scattered by a step that has no divisor in common with their number.
    for (int i = 0; i < blocks; ++i) {
      const int64_t block = int64_t{seq} * blocks + i;
      tables.push_back(static_cast<int32_t>(blocks == 1 ? block : block * 1'000'003 % all));
    }
    lengths.push_back(a.context);
    begins.push_back(begins.back() + a.rows);
  }
  kv.block_tables = s.Ints(tables, blocks);
  kv.kv_len = s.Ints(lengths);
  kv.query_begin = s.Ints(begins);
  kv.num_decodes = kernels::CountDecodes(begins);
  return kv;
}

Calls Attentions(OpsSource& s, const Attended& a, int block_size, int copies) {
  const int64_t rows = int64_t{a.seqs} * a.rows;
  const kernels::Tensor q = s.Random(NumberOf(a.type), {rows, a.heads.queries * kHead, 1});
  const kernels::Tensor out = s.Zeros(NumberOf(a.type), {rows, a.heads.queries * kHead, 1});
  Calls calls;
  for (int i = 0; i < copies; ++i) {
    const kernels::PagedKv kv = CacheOf(s, a, block_size);
    calls.push_back([=, &s] {
      s.b.ops().attention.PagedAttention(out, q, kv,
                                         {.num_heads = a.heads.queries,
                                          .num_kv_heads = a.heads.kv,
                                          .head_dim = kHead,
                                          .heads_per_kv_head = a.heads.queries / a.heads.kv,
                                          .scale = 0.088f});
    });
  }
  return calls;
}

// With bytes half as much has to be read, and the scales.
void AddAttended(OpsSource& s, const Attended& a) {
  if (!s.b.ops().attention.SupportsKvType(a.type.dtype, NumberOf(a.type))) return;
  const bool decodes = a.rows == 1;
  const double kept = static_cast<double>(a.seqs) * a.context * a.heads.kv * 2 *
                      static_cast<double>(kernels::KvRowElements(a.type.dtype, kHead)) *
                      static_cast<double>(kernels::SizeOf(a.type.dtype));
  // pairs of a row and a position
  const double pairs = a.rows * (a.context - (a.rows - 1) / 2.0) * a.seqs;
  const double values = static_cast<double>(a.heads.queries) * kHead;
  const int copies = decodes ? CopiesOf(kept) : 1;
  Case& c = s.Add({.group = decodes ? "decode" : "prefill",
                   .name = std::string(decodes ? "decode " : "prefill ") + a.heads.name + " " +
                           std::to_string(a.seqs) + " x " + std::to_string(a.rows) + " at " +
                           std::to_string(a.context) + a.type.name,
                   .bytes = kept + static_cast<double>(a.seqs) * a.rows * values * 4,
                   .flops = pairs * values * 4,
                   .make = [=, &s] { return Attentions(s, a, kBlockSize, copies); },
                   .ceilings = {kReading, PeakOf(a.type.dtype == kernels::DType::kF16
                                                     ? kernels::WeightType::kF16
                                                     : kernels::WeightType::kBF16)}});
  if (!decodes) return;
  // The same kernel over blocks of a whole context shows what pages cost.
  c.rival = "dense";
  c.make_rival = [=, &s] { return Attentions(s, a, a.context, copies); };
}

}  // namespace

// The heads are those of Llama-3.1-8B, of Qwen3-0.6B and of an eighth of Llama-3.1-70B.
void AddAttention(OpsSource& s) {
  const Heads others[] = {{"0.6B", 16, 8}, {"70B / 8", 8, 1}};
  for (const auto& [seqs, context] :
       std::vector<std::array<int, 2>>{{1, 4096}, {16, 1024}, {64, 1024}, {64, 4096}, {8, 32768}}) {
    for (const KvType& type : kKvTypes) AddAttended(s, {kHeads8B, seqs, 1, context, type});
  }
  for (const Heads& heads : others) {
    for (const auto& [seqs, context] : std::vector<std::array<int, 2>>{{1, 4096}, {64, 4096}}) {
      AddAttended(s, {heads, seqs, 1, context, kKvTypes[0]});
    }
  }
  for (const auto& [rows, context] :
       std::vector<std::array<int, 2>>{{512, 512}, {2048, 2048}, {2048, 16384}}) {
    for (const KvType& type : kKvTypes) AddAttended(s, {kHeads8B, 1, rows, context, type});
  }
  for (const Heads& heads : others) AddAttended(s, {heads, 1, 2048, 2048, kKvTypes[0]});
}

}  // namespace continuo
