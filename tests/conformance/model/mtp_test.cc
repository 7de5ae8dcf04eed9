// SPDX-License-Identifier: Apache-2.0
// Modules for multi-token prediction against logits that make_goldens.py computed with layers of
// transformers. A module's drafts need not be exact, but they are: cuts and ranks change no bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "tests/conformance/model/family_goldens.h"

namespace continuo::testing {
namespace {

constexpr int kBlockSize = 4, kMaxBlocks = 8;

class MtpTest : public ::testing::TestWithParam<const char*> {
 protected:
  MtpTest() : golden_(ReadFamilyGolden(GetParam())) {
    std::ifstream in(
        SourcePath(std::string("tests/conformance/model/mtp/") + GetParam() + ".json"));
    module_ = nlohmann::json::parse(in);
    nlohmann::json all = golden_;
    all["tensors"].update(module_["tensors"]);
    WriteFamilyModel(all, golden_["config"], folder_.path().string());
    for (const auto& one : golden_["sequences"]) {
      sequences_.push_back(one["ids"].get<std::vector<int32_t>>());
    }
  }

  std::unique_ptr<ModelHarness> Load(const std::string& isa, int ranks, bool reads_mtp = true) {
    auto harness = ModelHarness::Make(folder_.path().string(), {.isa = isa,
                                                                .tensor_parallel = ranks,
                                                                .num_blocks = 24,
                                                                .block_size = kBlockSize,
                                                                .reads_mtp = reads_mtp});
    CONTINUO_CHECK(harness.ok());
    return *std::move(harness);
  }

  // Runs rows of sequence `s` from position `begin` on, and returns their logits.
  std::vector<float> RunModel(ModelHarness& harness, size_t s, size_t begin, size_t n) {
    const auto part = std::span<const int32_t>(sequences_[s]).subspan(begin, n);
    PlanBuilder builder(kBlockSize, kMaxBlocks);
    builder.Add(static_cast<int>(s), static_cast<int>(begin), part, AllOf(part));
    return harness.Run(builder.plan());
  }

  // Runs the module over the rows of the last step, from row `first_row` of it on.
  std::vector<float> RunModule(ModelHarness& harness, size_t s, size_t begin, size_t n,
                               int first_row = 0) {
    const auto next = std::span<const int32_t>(sequences_[s]).subspan(begin + 1, n);
    PlanBuilder builder(kBlockSize, kMaxBlocks);
    builder.Add(static_cast<int>(s), static_cast<int>(begin), next, AllOf(next));
    builder.plan().hidden_rows.resize(n);
    std::iota(builder.plan().hidden_rows.begin(), builder.plan().hidden_rows.end(), first_row);
    return harness.Run(builder.plan());
  }

  // Returns the logits of first drafts behind all rows of sequence `s` but the last.
  std::vector<float> FirstDrafts(ModelHarness& harness, size_t s, size_t chunk) {
    std::vector<float> all;
    const size_t rows = sequences_[s].size() - 1;
    for (size_t begin = 0; begin < rows; begin += chunk) {
      const size_t n = std::min(chunk, rows - begin);
      RunModel(harness, s, begin, n);
      const std::vector<float> logits = RunModule(harness, s, begin, n);
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  // Returns the largest difference of `logits` [rows, vocab] from the golden's.
  static double ErrorOf(const std::vector<float>& logits, const nlohmann::json& golden) {
    std::vector<double> expected;
    for (const auto& row : golden) {
      const auto values = row.get<std::vector<double>>();
      expected.insert(expected.end(), values.begin(), values.end());
    }
    CONTINUO_CHECK(logits.size() == expected.size() && !logits.empty());
    double error = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      error = std::max(error, std::abs(static_cast<double>(logits[i]) - expected[i]));
    }
    return error;
  }

  const nlohmann::json golden_;
  nlohmann::json module_;
  const TempFolder folder_;
  std::vector<std::vector<int32_t>> sequences_;
};

bool IsSame(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_P(MtpTest, FirstDraftsAreThoseOfTransformers) {
  for (const std::string& isa : UsableIsas()) {
    std::vector<std::vector<float>> whole;
    for (const int ranks : {1, 2, 4}) {
      const auto harness = Load(isa, ranks);
      for (size_t s = 0; s < sequences_.size(); ++s) {
        for (const size_t chunk : {64, 5, 1}) {
          SCOPED_TRACE(::testing::Message() << isa << ", " << ranks << " ranks, sequence " << s
                                            << ", steps of " << chunk);
          const std::vector<float> logits = FirstDrafts(*harness, s, chunk);
          EXPECT_LE(ErrorOf(logits, module_["first"][s]), kFamilyTolerance);
          if (whole.size() == s) whole.push_back(logits);
          EXPECT_TRUE(IsSame(logits, whole[s]));
        }
      }
    }
  }
}

// A second draft is made from the hidden state of the first.
TEST_P(MtpTest, SecondDraftsAreThoseOfTransformers) {
  const auto harness = Load("auto", 2);
  for (size_t s = 0; s < sequences_.size(); ++s) {
    std::vector<float> all;
    for (size_t rows = 1; rows + 2 <= sequences_[s].size(); ++rows) {
      RunModel(*harness, s, 0, rows);
      RunModule(*harness, s, 0, rows);
      const std::vector<float> logits = RunModule(*harness, s, rows, 1, static_cast<int>(rows) - 1);
      all.insert(all.end(), logits.begin(), logits.end());
    }
    EXPECT_LE(ErrorOf(all, module_["second"][s]), kFamilyTolerance) << s;
  }
}

// The model's own logits are the same bytes with the module and without, also behind its drafts.
TEST_P(MtpTest, TheModelsLogitsStayTheSame) {
  for (const std::string& isa : UsableIsas()) {
    for (const int ranks : {1, 2}) {
      const auto without = Load(isa, ranks, /*reads_mtp=*/false), with = Load(isa, ranks);
      const size_t half = sequences_[0].size() / 2;
      std::vector<float> expected = RunModel(*without, 0, 0, half);
      EXPECT_TRUE(IsSame(RunModel(*with, 0, 0, half), expected)) << isa;
      RunModule(*with, 0, 0, half);
      RunModule(*with, 0, half, 1, static_cast<int>(half) - 1);
      expected = RunModel(*without, 0, half, sequences_[0].size() - half);
      EXPECT_TRUE(IsSame(RunModel(*with, 0, half, sequences_[0].size() - half), expected)) << isa;
    }
  }
}

// A step in which no row is sampled still leaves hidden states, keys and values.
TEST_P(MtpTest, RowsThatAreNotSampledCount) {
  const auto harness = Load("auto", 1);
  const std::vector<float> expected = FirstDrafts(*harness, 0, 64);
  const std::span<const int32_t> tokens = sequences_[0];
  const size_t half = tokens.size() / 2, rest = tokens.size() - 1 - half;
  PlanBuilder model(kBlockSize, kMaxBlocks), module(kBlockSize, kMaxBlocks);
  model.Add(0, 0, tokens.first(half), {});
  EXPECT_TRUE(harness->Run(model.plan()).empty());
  module.Add(0, 0, tokens.subspan(1, half), {});
  module.plan().hidden_rows.resize(half);
  std::iota(module.plan().hidden_rows.begin(), module.plan().hidden_rows.end(), 0);
  EXPECT_TRUE(harness->Run(module.plan()).empty());
  RunModel(*harness, 0, half, rest);
  const std::vector<float> logits = RunModule(*harness, 0, half, rest);
  EXPECT_TRUE(IsSame(
      logits, {expected.end() - static_cast<std::ptrdiff_t>(logits.size()), expected.end()}));
}

INSTANTIATE_TEST_SUITE_P(Goldens, MtpTest,
                         ::testing::Values("qwen3_5", "qwen3_5_moe", "qwen3_next"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace continuo::testing
