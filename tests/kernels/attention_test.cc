// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <optional>

#include "gtest/gtest.h"
#include "kernels/math/arithmetic.h"
#include "tests/kernels/host_tensor.h"
#include "tests/kernels/paged_case.h"

namespace continuo::testing {
namespace {

using AttentionTest = IsaTest;
INSTANTIATE_FOR_ISAS(AttentionTest);

// Types of queries and results, and of the cache where it is another one.
struct Types {
  kernels::DType type;
  std::optional<kernels::DType> kept;
};
constexpr Types kTypes[] = {{kernels::DType::kF32, {}},
                            {kernels::DType::kBF16, {}},
                            {kernels::DType::kF32, kernels::DType::kI8},
                            {kernels::DType::kBF16, kernels::DType::kI8}};

// Scores are sums of head_dim products of at most 4 each times the scale, weights at most 1 that
// sum to 1, values at most 2: an error of e in a score moves the result by at most 4e. A sum of k
// products in one accumulator may lose (k + 2)·2^-24 of their sizes. Where bf16 is multiplied in
// pairs, a weight is rounded to bf16, of whose 8 significant bits the last is worth up to 2^-7 of a
// number, and so loses up to 2^-8 of itself.
void ExpectMatches(const std::string& isa, const HostTensor& out, const PagedCase& c,
                   kernels::DType type, std::optional<kernels::DType> kept = {}) {
  const kernels::AttentionParams& p = c.params();
  const double score_error = p.head_dim * 4 * p.scale * (p.head_dim + 2.0) * 0x1p-24;
  const double weight_error =
      isa == "avx512_bf16" && type == kernels::DType::kBF16 && !kept ? 0x1p-8 : 0;
  ExpectNear(out, c.Reference(), RoundingOf(type),
             {4 * score_error + 2 * weight_error + kernels::kKvChunk * 2 * 0x1p-23});
}

TEST_P(AttentionTest, MatchesReference) {
  for (const auto& [type, kept] : kTypes) {
    for (const auto& [heads, kv_heads, dim] : std::vector<std::array<int, 3>>{
             {1, 1, 1}, {4, 4, 8}, {8, 4, 8}, {6, 2, 20}, {3, 1, 33}, {4, 2, 64}, {2, 1, 128}}) {
      for (const int window : {0, 1, 4, 70}) {
        SCOPED_TRACE(::testing::Message() << NameOf(type) << " " << heads << "/" << kv_heads << "x"
                                          << dim << " window " << window << (kept ? " int8" : ""));
        for (const int64_t block_size : {7, 16}) {
          const PagedCase c({{1, 1}, {5, 5}, {128, 1}, {129, 3}, {300, 37}, {270, 1}, {140, 140}},
                            Heads(heads, kv_heads, dim, window), type, 21, block_size, kept);
          ExpectMatches(GetParam(), c.Run(*device_), c, type, kept);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(AttentionTest, CappedScoresMatchReference) {
  for (const auto& [type, kept] : kTypes) {
    for (const float cap : {0.5f, 5.0f, 50.0f}) {
      kernels::AttentionParams params = Heads(6, 2, 20, 70);
      params.softcap = cap;
      const PagedCase c({{1, 1}, {65, 3}, {200, 37}}, params, type, 28, 7, kept);
      ExpectMatches(GetParam(), c.Run(*device_), c, type, kept);
      params.softcap = 0;
      const PagedCase plain({{1, 1}, {65, 3}, {200, 37}}, params, type, 28, 7, kept);
      EXPECT_FALSE(c.Run(*device_).SameBits(plain.Run(*device_)));
    }
  }
}

// Sinks far below the scores, among them and far above, where next to nothing is left of values.
TEST_P(AttentionTest, SinksTakeTheirPartOfTheWeights) {
  const HostTensor sinks = HostTensor::OfFloats({-90.0f, -1.0f, 0.0f, 2.5f, 7.0f, 300.0f});
  for (const auto& [type, kept] : kTypes) {
    for (const int window : {0, 5, 70}) {
      SCOPED_TRACE(::testing::Message() << NameOf(type) << (kept ? " int8" : "") << " " << window);
      kernels::AttentionParams params = Heads(6, 2, 20, window);
      const std::vector<PagedCase::Sequence> sequences = {{1, 1}, {65, 3}, {200, 37}, {270, 1}};
      const PagedCase plain(sequences, params, type, 33, 7, kept);
      params.sinks = sinks;
      const PagedCase c(sequences, params, type, 33, 7, kept);
      const HostTensor out = c.Run(*device_);
      ExpectMatches(GetParam(), out, c, type, kept);
      EXPECT_FALSE(out.SameBits(plain.Run(*device_)));
      for (const int64_t chunk : {1, 5, 33}) {
        EXPECT_TRUE(c.RunInChunks(*device_, chunk).SameBits(out)) << chunk;
      }
      EXPECT_TRUE(c.Run(*MakeCpu(GetParam(), 3)).SameBits(out));
    }
    // Chunks of a long sequence are computed by several threads and merged.
    kernels::AttentionParams params = Heads(6, 1, 24);
    params.sinks = sinks;
    const PagedCase c({{3001, 1}, {2909, 3}}, params, type, 34, 16, kept);
    const HostTensor out = c.Run(*device_);
    ExpectMatches(GetParam(), out, c, type, kept);
    EXPECT_TRUE(c.Run(*MakeCpu(GetParam(), 8)).SameBits(out));
  }
}

// Rows on both sides of chunks' borders, and chunks that begin and end within the KV chunks that
// attention computes at a time.
TEST_P(AttentionTest, AQuerySeesItsOwnChunkAlone) {
  for (const auto& [type, kept] : kTypes) {
    for (const auto& [chunk, window] : {std::pair{1, 0}, {5, 0}, {64, 0}, {100, 0}, {100, 40}}) {
      SCOPED_TRACE(::testing::Message() << NameOf(type) << (kept ? " int8" : "") << " chunks of "
                                        << chunk << ", window " << window);
      kernels::AttentionParams params = Heads(6, 2, 20, window);
      const std::vector<PagedCase::Sequence> sequences = {{1, 1},     {101, 1}, {128, 3},
                                                          {300, 137}, {270, 1}, {140, 140}};
      const PagedCase plain(sequences, params, type, 35, 7, kept);
      params.chunk = chunk;
      const PagedCase c(sequences, params, type, 35, 7, kept);
      const HostTensor out = c.Run(*device_);
      ExpectMatches(GetParam(), out, c, type, kept);
      EXPECT_FALSE(out.SameBits(plain.Run(*device_)));
      for (const int64_t rows : {1, 5, 33}) {
        EXPECT_TRUE(c.RunInChunks(*device_, rows).SameBits(out)) << rows;
      }
      EXPECT_TRUE(c.Run(*MakeCpu(GetParam(), 3)).SameBits(out));
    }
    // Of a long sequence what lies before the chunk is not read, and several threads share the
    // rest.
    kernels::AttentionParams params = Heads(6, 1, 24);
    params.chunk = 2048;
    const PagedCase c({{4090, 1}, {4097, 3}}, params, type, 36, 16, kept);
    const HostTensor out = c.Run(*device_);
    ExpectMatches(GetParam(), out, c, type, kept);
    EXPECT_TRUE(c.Run(*MakeCpu(GetParam(), 8)).SameBits(out));
  }
}

// Encoders: rows of a whole text, also of several KV chunks, see what lies behind them.
TEST_P(AttentionTest, InBothDirectionsAQuerySeesWhatLiesBehindIt) {
  for (const auto& [type, kept] : kTypes) {
    for (const int window : {0, 1, 2, 65, 200}) {
      SCOPED_TRACE(::testing::Message() << NameOf(type) << (kept ? " int8" : "") << " " << window);
      kernels::AttentionParams params = Heads(6, 2, 20, window);
      const std::vector<PagedCase::Sequence> sequences = {{1, 1},     {2, 2},     {5, 5},
                                                          {128, 128}, {140, 140}, {300, 300}};
      const PagedCase causal(sequences, params, type, 37, 7, kept);
      params.bidirectional = true;
      const PagedCase c(sequences, params, type, 37, 7, kept);
      const HostTensor out = c.Run(*device_);
      ExpectMatches(GetParam(), out, c, type, kept);
      EXPECT_EQ(out.SameBits(causal.Run(*device_)), window == 1);
      EXPECT_TRUE(c.Run(*MakeCpu(GetParam(), 3)).SameBits(out));
    }
  }
}

// A text's bits are those of the text alone, whatever is computed beside it.
TEST_P(AttentionTest, InBothDirectionsTheBitsAreThoseOfTheSequenceAlone) {
  kernels::AttentionParams params = Heads(6, 2, 20);
  params.bidirectional = true;
  const PagedCase all({{70, 70}, {3, 3}, {260, 260}}, params, kernels::DType::kF32, 38, 16);
  const HostTensor out = all.Run(*device_);
  for (const int threads : {1, 2, 5}) {
    EXPECT_TRUE(all.RunInChunks(*MakeCpu(GetParam(), threads), 1000).SameBits(out));
  }
}

TEST_P(AttentionTest, MoreHeadsThanOnePartTakes) {
  const PagedCase c({{70, 9}}, Heads(70, 1, 16), kernels::DType::kF32, 22, 16);
  ExpectMatches(GetParam(), c.Run(*device_), c, kernels::DType::kF32);
}

TEST_P(AttentionTest, BitsDoNotDependOnBlockSizeOrChunks) {
  for (const auto& [type, kept] : kTypes) {
    for (const int window : {0, 50}) {
      const std::vector<PagedCase::Sequence> sequences = {{290, 190}, {66, 66}, {1, 1}};
      const kernels::AttentionParams params = Heads(6, 2, 32, window);
      const PagedCase whole(sequences, params, type, 23, /*block_size=*/16, kept);
      const HostTensor expected = whole.Run(*device_);
      for (const int64_t block_size : {1, 7, 16, 256}) {
        const PagedCase c(sequences, params, type, 23, block_size, kept);
        EXPECT_TRUE(c.Run(*device_).SameBits(expected)) << block_size;
        for (const int64_t chunk : {1, 5, 33, 64}) {
          EXPECT_TRUE(c.RunInChunks(*device_, chunk).SameBits(expected))
              << "block size " << block_size << ", chunk " << chunk;
        }
      }
    }
  }
}

TEST_P(AttentionTest, BitsDoNotDependOnThreads) {
  for (const auto& [type, kept] : kTypes) {
    const PagedCase c({{190, 90}, {300, 1}, {66, 66}}, Heads(6, 2, 40), type, 24, 16, kept);
    const HostTensor expected = c.Run(*device_);
    for (const int threads : {2, 3, 4}) {
      EXPECT_TRUE(c.Run(*MakeCpu(GetParam(), threads)).SameBits(expected)) << threads;
    }
  }
}

TEST_P(AttentionTest, BitsDoNotDependOnThreadsThatShareALongSequence) {
  for (const auto& [type, kept] : kTypes) {
    for (const int window : {0, 1500}) {
      // One KV head: without splitting there would be too few work items for the threads.
      for (const auto& sequences : std::vector<std::vector<PagedCase::Sequence>>{
               {{3001, 1}}, {{2909, 3}}, {{2200, 4}}, {{2560, 1}, {130, 2}, {4096, 1}}}) {
        const PagedCase c(sequences, Heads(5, 1, 24, window), type, 29, 16, kept);
        const HostTensor expected = c.Run(*device_);
        ExpectMatches(GetParam(), expected, c, type, kept);
        for (const int threads : {2, 3, 8}) {
          EXPECT_TRUE(c.Run(*MakeCpu(GetParam(), threads)).SameBits(expected))
              << threads << " threads, " << sequences.size() << " sequences, window " << window;
        }
      }
    }
  }
}

TEST_P(AttentionTest, ARowDoesNotSeeLaterPositionsEvenIfTheyAreNan) {
  // The last rows' keys and values are NaN; rows before them must not notice.
  for (const auto& [type, kept] : kTypes) {
    const kernels::AttentionParams params = Heads(4, 2, 16);
    PagedCase c({{80, 40}}, params, type, 25, 16, kept);
    const HostTensor expected = c.Run(*device_);
    const HostTensor nan = HostTensor::Poisoned(type, 10, 32);
    std::vector<int32_t> slots;
    const int32_t* table = static_cast<const int32_t*>(c.kv().block_tables.data);
    for (int p = 70; p < 80; ++p) slots.push_back(table[p / 16] * 16 + p % 16);
    ops().attention.WriteKv(c.kv(), nan, nan, HostTensor::OfInts(slots));
    const HostTensor out = c.Run(*device_);
    const size_t unaffected = 30 * 64 * kernels::SizeOf(type);
    EXPECT_TRUE(std::equal(out.bytes().begin(), out.bytes().begin() + unaffected,
                           expected.bytes().begin()));
    EXPECT_TRUE(std::isnan(out.matrix().back()));
  }
}

TEST_P(AttentionTest, ARanksHeadsReadTheirKvHeads) {
  // 6 query heads on 2 KV heads, cut into ranks of 2: the middle rank straddles both KV heads, and
  // holds both.
  const PagedCase whole({{70, 5}}, Heads(6, 2, 8), kernels::DType::kF32, 26, 16);
  const Matrix expected = whole.Run(*device_).matrix();
  for (const int rank : {0, 1, 2}) {
    kernels::AttentionParams params = whole.params();
    params.num_heads = 2;
    params.first_head = 2 * rank;
    HostTensor q(kernels::DType::kF32, 5, 16);
    for (int r = 0; r < 5; ++r) {
      for (int i = 0; i < 16; ++i) {
        q.Set(r * 16 + i, static_cast<float>(whole.q().matrix()[r * 48 + rank * 16 + i]));
      }
    }
    HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 5, 16);
    ops().attention.PagedAttention(out, q, whole.kv(), params);
    for (int r = 0; r < 5; ++r) {
      for (int i = 0; i < 16; ++i) {
        EXPECT_EQ(out.matrix()[r * 16 + i], expected[r * 48 + rank * 16 + i]);
      }
    }
  }
}

TEST(CountDecodesTest, CountsTheFirstSequencesOfOneRow) {
  const auto count = [](std::vector<int32_t> begins) { return kernels::CountDecodes(begins); };
  EXPECT_EQ(count({0}), 0);
  EXPECT_EQ(count({0, 1, 2, 3}), 3);
  EXPECT_EQ(count({0, 1, 2, 5, 6}), 2);
  EXPECT_EQ(count({0, 0, 1}), 0);
  EXPECT_EQ(count({0, 4, 5}), 0);
}

TEST_P(AttentionTest, NoHeadsAndNoRowsAreFine) {
  kernels::AttentionParams params = Heads(2, 1, 8);
  params.num_heads = 0;
  kernels::PagedKv kv;
  const HostTensor cache(kernels::DType::kF32, {2, 1, 2 * 16 * 8}),
      table = HostTensor::OfInts({0}, 1);
  const HostTensor lengths = HostTensor::OfInts({3}), begins = HostTensor::OfInts({0, 3});
  kv.cache = cache;
  kv.block_size = 16;
  kv.block_tables = table;
  kv.kv_len = lengths;
  kv.query_begin = begins;
  const HostTensor none(kernels::DType::kF32, 3, 0);
  ops().attention.PagedAttention(none, none, kv, params);
}

}  // namespace
}  // namespace continuo::testing
