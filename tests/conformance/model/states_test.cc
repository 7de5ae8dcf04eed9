// SPDX-License-Identifier: Apache-2.0
// Layers with a recurrent state: the logits of a sequence are the same bytes however its rows are
// cut into steps, and whatever else these hold (exactness: rows-in-order).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/conformance/model/family_goldens.h"

namespace continuo::testing {
namespace {

constexpr int kBlockSize = 4, kMaxBlocks = 8;

class StatesTest : public ::testing::TestWithParam<const char*> {
 protected:
  StatesTest() : golden_(ReadFamilyGolden(GetParam())) {
    WriteFamilyModel(golden_, golden_["config"], folder_.path().string());
    for (const auto& one : golden_["sequences"]) {
      sequences_.push_back(one["ids"].get<std::vector<int32_t>>());
    }
  }

  std::unique_ptr<ModelHarness> Load(const std::string& isa, int ranks,
                                     kernels::DType dtype = kernels::DType::kF32) {
    auto harness = ModelHarness::Make(folder_.path().string(), {.isa = isa,
                                                                .tensor_parallel = ranks,
                                                                .threads = 2,
                                                                .dtype = dtype,
                                                                .num_blocks = 24,
                                                                .block_size = kBlockSize});
    CONTINUO_CHECK(harness.ok());
    return *std::move(harness);
  }

  // Returns the logits of all rows of the first sequence, computed by itself in steps of `chunk`
  // rows.
  std::vector<float> Alone(ModelHarness& harness, int chunk) {
    std::vector<float> all;
    const std::span<const int32_t> tokens = sequences_[0];
    for (size_t begin = 0; begin < tokens.size(); begin += static_cast<size_t>(chunk)) {
      const size_t n = std::min(static_cast<size_t>(chunk), tokens.size() - begin);
      PlanBuilder builder(kBlockSize, kMaxBlocks);
      const auto part = tokens.subspan(begin, n);
      builder.Add(0, static_cast<int>(begin), part, AllOf(part)).KeepState(begin == 0 ? -1 : 3, 3);
      const std::vector<float> logits = harness.Run(builder.plan());
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  const nlohmann::json golden_;
  const TempFolder folder_;
  std::vector<std::vector<int32_t>> sequences_;
};

// Expects the same bytes.
void ExpectSame(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0);
}

TEST_P(StatesTest, CutsAndRanksChangeNoBit) {
  for (const std::string& isa : UsableIsas()) {
    for (const auto dtype : {kernels::DType::kF32, kernels::DType::kBF16}) {
      const std::vector<float> expected = Alone(*Load(isa, 1, dtype), 64);
      for (const int ranks : {1, 2, 4, 8}) {  // of eight some have no heads
        const auto harness = Load(isa, ranks, dtype);
        for (const int chunk : {1, 2, 3, 4, 7, 18, 64}) {
          SCOPED_TRACE(::testing::Message()
                       << isa << ", " << ranks << " ranks, steps of " << chunk);
          ExpectSame(Alone(*harness, chunk), expected);
        }
      }
    }
  }
}

// All sequences go on together, each by another number of rows a step.
TEST_P(StatesTest, MatesChangeNoBit) {
  const auto harness = Load("auto", 2);
  const std::vector<float> expected = Alone(*Load("auto", 1), 64);
  std::vector<float> first;
  std::vector<size_t> done(sequences_.size(), 0);
  while (done[0] < sequences_[0].size()) {
    PlanBuilder builder(kBlockSize, kMaxBlocks);
    size_t rows_before = 0, num_first = 0;
    for (size_t i = sequences_.size(); i-- > 0;) {
      const size_t n = std::min(2 * i + 1, sequences_[i].size() - done[i]);
      if (n == 0) continue;
      const auto part = std::span<const int32_t>(sequences_[i]).subspan(done[i], n);
      const int slot = static_cast<int>(i);
      builder.Add(slot, static_cast<int>(done[i]), part, AllOf(part))
          .KeepState(done[i] == 0 ? -1 : slot, slot);
      done[i] += n;
      if (i == 0) num_first = n;
      if (i > 0) rows_before += n;
    }
    const std::vector<float> logits = harness->Run(builder.plan());
    const size_t vocab = logits.size() / (rows_before + num_first);
    first.insert(first.end(), logits.begin() + static_cast<std::ptrdiff_t>(rows_before * vocab),
                 logits.end());
  }
  ExpectSame(first, expected);
}

// A slot that received the state behind a row in the middle of a step serves two sequences that go
// on from there, and later ones too, since nobody writes it.
TEST_P(StatesTest, SequencesGoOnFromASnapshot) {
  const auto harness = Load("auto", 2);
  const std::vector<float> expected = Alone(*Load("auto", 1), 64);
  const std::span<const int32_t> tokens = sequences_[0];
  constexpr size_t kBehind = 8;  // whole KV blocks
  PlanBuilder whole(kBlockSize, kMaxBlocks);
  whole.Add(0, 0, tokens, AllOf(tokens)).KeepState(-1, 1);
  whole.plan().state_to[kBehind - 1] = 9;
  ExpectSame(harness->Run(whole.plan()), expected);
  const size_t vocab = expected.size() / tokens.size();
  const std::vector<float> rest(expected.begin() + kBehind * vocab, expected.end());
  const auto tail = tokens.subspan(kBehind);
  for (int time = 0; time < 2; ++time) {
    PlanBuilder both(kBlockSize, kMaxBlocks);
    both.Add(0, kBehind, tail, AllOf(tail)).KeepState(9, 4);
    both.Add(1, kBehind, tail, AllOf(tail)).KeepState(9, -1);
    both.plan().block_copies = {{0, kMaxBlocks}, {1, kMaxBlocks + 1}};
    const std::vector<float> logits = harness->Run(both.plan());
    ASSERT_EQ(logits.size(), 2 * rest.size());
    const auto middle = logits.begin() + static_cast<std::ptrdiff_t>(rest.size());
    ExpectSame({logits.begin(), middle}, rest);
    ExpectSame({middle, logits.end()}, rest);
  }
}

// Steps whose rows are not sampled keep states as well as others do.
TEST_P(StatesTest, StatesAreKeptWhereNoRowIsSampled) {
  const auto harness = Load("auto", 1);
  const std::vector<float> expected = Alone(*harness, 64);
  const std::span<const int32_t> tokens = sequences_[0];
  PlanBuilder first(kBlockSize, kMaxBlocks), second(kBlockSize, kMaxBlocks);
  first.Add(0, 0, tokens.first(11), {}).KeepState(-1, 5);
  EXPECT_TRUE(harness->Run(first.plan()).empty());
  second.Add(0, 11, tokens.subspan(11), LastOf(tokens.subspan(11))).KeepState(5, 6);
  const std::vector<float> logits = harness->Run(second.plan());
  ExpectSame(logits, {expected.end() - static_cast<std::ptrdiff_t>(logits.size()), expected.end()});
}

INSTANTIATE_TEST_SUITE_P(Goldens, StatesTest,
                         ::testing::Values("lfm2", "lfm2_bias", "lfm2_moe", "qwen3_5",
                                           "qwen3_5_moe", "qwen3_next", "granite_hybrid",
                                           "granite_hybrid_dense", "nemotron_h", "nemotron_h_moe",
                                           "nemotron_h_latent", "mamba2"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace continuo::testing
