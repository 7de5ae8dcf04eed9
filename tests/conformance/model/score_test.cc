// SPDX-License-Identifier: Apache-2.0
// Scores of tiny models against those that make_score_goldens.py computed with transformers in
// float64, and their bits in batches, in chunks and on several ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "services/worker/embedding/score_head.h"
#include "services/worker/model/load/model_loader.h"
#include "tests/conformance/model/family_goldens.h"
#include "tests/conformance/model/pooled_states.h"

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
    for (const auto& tokens : golden_["sequences"]) {
      Pair& pair = pairs_.emplace_back();
      pair.tokens = tokens.get<std::vector<int32_t>>();
      if (golden_.contains("types")) {
        pair.types = golden_["types"][pairs_.size() - 1].get<std::vector<int32_t>>();
      }
    }
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
  // A pair of texts, or a prompt that has one in it.
  struct Pair {
    std::vector<int32_t> tokens, types;
  };

  // The logits of these pairs, whose rows are computed together, `chunk` of each in a step. Pairs
  // of an encoder are computed in one step.
  std::vector<double> Logits(model::LoadedModel& loaded, const std::vector<Pair>& pairs,
                             size_t chunk) {
    std::vector<double> logits(pairs.size());
    size_t longest = 0;
    for (const Pair& pair : pairs) longest = std::max(longest, pair.tokens.size());
    if (loaded.config.encoder.is_encoder) chunk = longest;
    for (size_t begin = 0; begin < longest; begin += chunk) {
      PlanBuilder builder(kBlockSize, kMaxBlocks);
      std::vector<std::pair<size_t, size_t>> ended;  // a pair, and how many states are read of it
      std::vector<int32_t> types;
      for (size_t s = 0; s < pairs.size(); ++s) {
        if (begin >= pairs[s].tokens.size()) continue;
        const size_t n = std::min(chunk, pairs[s].tokens.size() - begin);
        const bool ends = begin + n == pairs[s].tokens.size();
        const auto tokens = std::span(pairs[s].tokens).subspan(begin, n);
        const std::vector<int> rows = ends ? PooledRows(head_->pooling(), n) : std::vector<int>();
        builder.Add(static_cast<int>(s), static_cast<int>(begin), tokens, rows, {},
                    model::kReadState);
        types.insert(types.end(), pairs[s].types.begin(), pairs[s].types.end());
        if (ends) ended.emplace_back(s, rows.size());
      }
      builder.plan().token_types = types;
      const auto result = loaded.executor->Run(builder.plan(), NoMask);
      EXPECT_TRUE(result.ok()) << result.status();
      std::span<const std::vector<float>> left = result->states;
      for (const auto& [s, num_states] : ended) {
        logits[s] = head_->Logit(MeanOf(left.first(num_states)));
        left = left.subspan(num_states);
      }
      EXPECT_TRUE(left.empty());
    }
    return logits;
  }

  nlohmann::json golden_;
  TempFolder folder_;
  std::vector<Pair> pairs_;
  std::shared_ptr<const embedding::ScoreHead> head_;
};

TEST_P(ScoreTest, ScoresAreThoseOfTheLibrary) {
  const auto want = golden_["scores"].get<std::vector<double>>();
  for (const std::string& isa : UsableIsas()) {
    auto loaded = Load(isa, 1);
    const std::vector<double> got = Logits(loaded, pairs_, 64);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(embedding::ScoreHead::ScoreOf(got[i]), want[i], kTolerance) << isa << " " << i;
    }
  }
}

// 64 pairs in a step, each alone, in chunks of 3 and 5, and on 1, 2 and 4 ranks: the same bits.
TEST_P(ScoreTest, AScoreHasTheSameBitsHoweverItIsComputed) {
  std::vector<Pair> many;
  for (size_t i = 0; i < 64; ++i) many.push_back(pairs_[i % pairs_.size()]);
  for (const std::string& isa : UsableIsas()) {
    std::vector<double> alone;
    for (const int ranks : {1, 2, 4}) {
      auto loaded = Load(isa, ranks);
      if (ranks == 1) {
        for (const Pair& pair : pairs_) alone.push_back(Logits(loaded, {pair}, 64)[0]);
      }
      for (const size_t chunk : {64, 3, 5}) {
        const std::vector<double> batch = Logits(loaded, many, chunk);
        for (size_t i = 0; i < many.size(); ++i) {
          ASSERT_EQ(batch[i], alone[i % pairs_.size()])
              << isa << ", " << ranks << " ranks, chunks of " << chunk << ", " << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Model, ScoreTest,
                         ::testing::Values("qwen3", "qwen3_tied", "qwen3_one", "qwen3_head", "bert",
                                           "xlm_roberta", "modernbert", "modernbert_cls"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace continuo::testing
