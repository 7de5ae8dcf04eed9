// SPDX-License-Identifier: Apache-2.0
// Scores of tiny models against those that make_score_goldens.py computed with transformers in
// float64, and their bits in batches, in chunks and on several ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "services/worker/embedding/score_head.h"
#include "services/worker/model/load/model_loader.h"
#include "tests/conformance/model/family_goldens.h"

namespace continuo::testing {
namespace {

constexpr int kBlockSize = 4, kMaxBlocks = 8;
constexpr double kTolerance = 1e-4;

void NoMask(std::span<uint32_t>) { FAIL() << "no sample is masked"; }

class ScoreTest : public ::testing::TestWithParam<const char*> {
 protected:
  ScoreTest() {
    std::ifstream in(
        SourcePath(std::string("tests/conformance/model/scores/") + GetParam() + ".json"));
    golden_ = nlohmann::json::parse(in);
    WriteFamilyModel(golden_, golden_["config"], folder_.path().string());
    sequences_ = golden_["sequences"].get<std::vector<std::vector<int32_t>>>();
  }

  model::LoadedModel Load(const std::string& isa, int ranks) {
    model::LoadOptions options;
    options.source.dir = folder_.path().string();
    options.device.isa = isa;
    options.tensor_parallel = ranks;
    options.device.num_threads = ranks;
    options.kv.block_size = kBlockSize;
    options.kv.num_blocks = 1024;
    options.reads_states = true;
    auto loaded = model::LoadModel(options);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    std::optional<embedding::ScoreTokens> tokens;
    if (const auto ids = golden_["tokens"].get<std::vector<int32_t>>(); !ids.empty()) {
      tokens.emplace().relevant = ids[0];
      if (ids.size() > 1) tokens->irrelevant = ids[1];
    }
    auto head = embedding::ScoreHead::Load(options.source.dir, tokens, loaded->config);
    EXPECT_TRUE(head.ok()) << head.status();
    head_ = *std::move(head);
    return *std::move(loaded);
  }
  // The logits behind these sequences, whose rows are computed together, `chunk` of each in a step.
  std::vector<double> Logits(model::LoadedModel& loaded,
                             const std::vector<std::vector<int32_t>>& sequences, size_t chunk) {
    std::vector<double> logits(sequences.size());
    size_t longest = 0;
    for (const auto& tokens : sequences) longest = std::max(longest, tokens.size());
    for (size_t begin = 0; begin < longest; begin += chunk) {
      PlanBuilder builder(kBlockSize, kMaxBlocks);
      std::vector<size_t> ended;
      for (size_t s = 0; s < sequences.size(); ++s) {
        if (begin >= sequences[s].size()) continue;
        const size_t n = std::min(chunk, sequences[s].size() - begin);
        const bool ends = begin + n == sequences[s].size();
        const auto tokens = std::span(sequences[s]).subspan(begin, n);
        builder.Add(static_cast<int>(s), static_cast<int>(begin), tokens,
                    ends ? LastOf(tokens) : std::vector<int32_t>(), {}, model::kReadState);
        if (ends) ended.push_back(s);
      }
      const auto result = loaded.executor->Run(builder.plan(), NoMask);
      EXPECT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->states.size(), ended.size());
      for (size_t i = 0; i < ended.size(); ++i) logits[ended[i]] = head_->Logit(result->states[i]);
    }
    return logits;
  }

  nlohmann::json golden_;
  TempFolder folder_;
  std::vector<std::vector<int32_t>> sequences_;
  std::shared_ptr<const embedding::ScoreHead> head_;
};

TEST_P(ScoreTest, ScoresAreThoseOfTheLibrary) {
  const auto want = golden_["scores"].get<std::vector<double>>();
  for (const std::string& isa : UsableIsas()) {
    auto loaded = Load(isa, 1);
    const std::vector<double> got = Logits(loaded, sequences_, 64);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(embedding::ScoreHead::ScoreOf(got[i]), want[i], kTolerance) << isa << " " << i;
    }
  }
}

// 64 pairs in a step, each alone, in chunks of 3 and 5, and on 1, 2 and 4 ranks: the same bits.
TEST_P(ScoreTest, AScoreHasTheSameBitsHoweverItIsComputed) {
  std::vector<std::vector<int32_t>> many;
  for (size_t i = 0; i < 64; ++i) many.push_back(sequences_[i % sequences_.size()]);
  for (const std::string& isa : UsableIsas()) {
    std::vector<double> alone;
    for (const int ranks : {1, 2, 4}) {
      auto loaded = Load(isa, ranks);
      if (ranks == 1) {
        for (const auto& tokens : sequences_) alone.push_back(Logits(loaded, {tokens}, 64)[0]);
      }
      for (const size_t chunk : {64, 3, 5}) {
        const std::vector<double> batch = Logits(loaded, many, chunk);
        for (size_t i = 0; i < many.size(); ++i) {
          ASSERT_EQ(batch[i], alone[i % sequences_.size()])
              << isa << ", " << ranks << " ranks, chunks of " << chunk << ", " << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Model, ScoreTest,
                         ::testing::Values("qwen3", "qwen3_tied", "qwen3_one", "qwen3_head"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace continuo::testing
