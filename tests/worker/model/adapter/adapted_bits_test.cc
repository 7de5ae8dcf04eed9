// SPDX-License-Identifier: Apache-2.0
// Adapters in the whole model (exactness: adapters): logits of a row with an adapter, and of one
// without, have the bits of the row alone, whatever adapters the rows beside it have, however
// prompts are cut, and on however many ranks and threads.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/temp_folder.h"
#include "tests/testing/tiny_adapter.h"
#include "tests/testing/tiny_model.h"
#include "tests/worker/model/model_harness.h"
#include "tests/worker/model/run/plan_builder.h"

namespace continuo::testing {
namespace {

constexpr int kSequences = 34;  // two of them without an adapter
constexpr int kAdapters = 32;
constexpr int kBlock = 16, kBlocks = 5;

using Tokens = std::vector<int32_t>;
using Logits = std::vector<float>;

int32_t AdapterOf(size_t sequence) {
  return sequence < kAdapters ? static_cast<int32_t>(sequence) : model::kNoAdapter;
}

std::vector<Tokens> RandomSequences(uint32_t seed, int vocab) {
  std::mt19937 random(seed);
  std::vector<Tokens> sequences(kSequences);
  for (Tokens& tokens : sequences) {
    tokens.resize(1 + random() % (kBlock * kBlocks));
    for (int32_t& id : tokens) {
      id = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab));
    }
  }
  return sequences;
}

// The logits of the last row of each sequence, whole and alone, with its adapter or without.
std::vector<Logits> Alone(ModelHarness& harness, const std::vector<Tokens>& sequences,
                          bool adapted) {
  std::vector<Logits> all;
  for (size_t i = 0; i < sequences.size(); ++i) {
    PlanBuilder builder(kBlock, kBlocks);
    builder.Add(static_cast<int>(i), 0, sequences[i], LastOf(sequences[i]));
    if (adapted && AdapterOf(i) != model::kNoAdapter) builder.Adapt(AdapterOf(i));
    all.push_back(harness.Run(builder.plan()));
  }
  return all;
}

// The same in random chunks, sequences of all adapters in every step.
std::vector<Logits> Mixed(ModelHarness& harness, const std::vector<Tokens>& sequences,
                          uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Logits> all(sequences.size());
  std::vector<size_t> done(sequences.size(), 0);
  const auto vocab = static_cast<size_t>(harness.config().vocab_size);
  size_t num_ended = 0;
  while (num_ended < sequences.size()) {
    PlanBuilder builder(kBlock, kBlocks);
    std::vector<std::pair<size_t, int>> ended;  // sequences and their last rows' samples
    for (size_t i = 0; i < sequences.size(); ++i) {
      const size_t left = sequences[i].size() - done[i];
      const size_t n = std::min<size_t>(left, random() % 3 == 0 ? 1 : random() % 20);
      if (n == 0) continue;
      const auto tokens = std::span(sequences[i]).subspan(done[i], n);
      const Tokens sampled = random() % 4 == 0 ? AllOf(tokens)
                             : n == left       ? LastOf(tokens)
                                               : Tokens{};
      builder.Add(static_cast<int>(i), static_cast<int>(done[i]), tokens, sampled);
      if (AdapterOf(i) != model::kNoAdapter) builder.Adapt(AdapterOf(i));
      done[i] += n;
      if (n == left) ended.emplace_back(i, builder.plan().num_samples() - 1);
    }
    if (builder.plan().num_rows() == 0) continue;
    const Logits logits = harness.Run(builder.plan());
    for (const auto& [sequence, sample] : ended) {
      const auto row = std::span(logits).subspan(static_cast<size_t>(sample) * vocab, vocab);
      all[sequence].assign(row.begin(), row.end());
      ++num_ended;
    }
  }
  return all;
}

bool SameBits(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void ExpectSameBits(const std::vector<Logits>& a, const std::vector<Logits>& b,
                    const std::string& what) {
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(SameBits(a[i], b[i])) << what << ", sequence " << i;
  }
}

struct Case {
  const char* family;
  kernels::DType dtype = kernels::DType::kF32;
  std::optional<kernels::WeightType> weights = std::nullopt;
};

class AdaptedBitsTest : public ::testing::TestWithParam<Case> {};

TEST_P(AdaptedBitsTest, DoNotDependOnTheRowsBesideThem) {
  const Case& c = GetParam();
  // Experts have no adapters.
  const bool has_experts = std::string(c.family) == "qwen3_moe";
  const TinyModel model({.family = c.family});
  const TempFolder folder;
  HarnessOptions options = {.dtype = c.dtype,
                            .weights = c.weights,
                            .kv_dtype = c.dtype,
                            .num_blocks = kSequences * kBlocks,
                            .block_size = kBlock};
  for (int i = 0; i < kAdapters; ++i) {
    const auto dir = folder.path() / std::to_string(i);
    TinyAdapterOptions adapter = {
        .rank = 1 + i * 5 % 24, .alpha = 1.0 + i, .seed = static_cast<uint64_t>(100 + i)};
    // Some have less than others, or bf16.
    if (i % 4 == 1) adapter.targets = {"q_proj", "qkv_proj", "down_proj"};
    if (i % 4 == 2) adapter.targets = {"o_proj"};
    if (i % 4 == 3) adapter.dtype = "BF16";
    if (has_experts) adapter.targets = {"q_proj", "k_proj", "v_proj", "o_proj"};
    WriteTinyAdapter(model.dir(), dir, adapter);
    options.adapters.push_back(dir.string());
  }
  for (const std::string& isa : UsableIsas()) {
    options.isa = isa;
    options.tensor_parallel = options.threads = 1;
    const auto base = ModelHarness::Make(model.dir(), options);
    ASSERT_TRUE(base.ok()) << base.status();
    const std::vector<Tokens> sequences = RandomSequences(7, (*base)->config().vocab_size);
    const std::vector<Logits> plain = Alone(**base, sequences, /*adapted=*/false);
    const std::vector<Logits> expected = Alone(**base, sequences, /*adapted=*/true);
    for (size_t i = 0; i < sequences.size(); ++i) {
      EXPECT_EQ(SameBits(plain[i], expected[i]), i >= kAdapters) << "sequence " << i;
    }
    ExpectSameBits(expected, Mixed(**base, sequences, 1), isa + ", mixed");
    for (const int ranks : {2, 4, 8}) {
      options.tensor_parallel = ranks;
      const auto harness = ModelHarness::Make(model.dir(), options);
      ASSERT_TRUE(harness.ok()) << harness.status();
      ExpectSameBits(expected, Mixed(**harness, sequences, 2),
                     isa + ", " + std::to_string(ranks) + " ranks");
    }
    options.tensor_parallel = 1;
    options.threads = 3;
    const auto threads = ModelHarness::Make(model.dir(), options);
    ASSERT_TRUE(threads.ok()) << threads.status();
    ExpectSameBits(expected, Mixed(**threads, sequences, 3), isa + ", threads");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, AdaptedBitsTest,
    ::testing::Values(Case{"llama"}, Case{"qwen3", kernels::DType::kBF16},
                      Case{"phi3", kernels::DType::kBF16, kernels::WeightType::kInt8},
                      Case{"gemma2"}, Case{"qwen3_moe"}, Case{"qwen3_5_text"}, Case{"cohere2"}),
    [](const auto& info) {
      return std::string(info.param.family) +
             (info.param.dtype == kernels::DType::kBF16 ? "_bf16" : "");
    });

}  // namespace
}  // namespace continuo::testing
