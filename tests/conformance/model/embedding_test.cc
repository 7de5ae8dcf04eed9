// SPDX-License-Identifier: Apache-2.0
// Vectors of tiny embedding models against those that make_embedding_goldens.py computed with
// transformers and sentence-transformers in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "services/worker/embedding/embedding_head.h"
#include "services/worker/embedding/sentence_modules.h"
#include "services/worker/model/load/model_loader.h"
#include "tests/conformance/model/family_goldens.h"
#include "tests/conformance/model/pooled_states.h"

namespace continuo::testing {
namespace {

constexpr int kBlockSize = 4, kMaxBlocks = 8;

void NoMask(std::span<uint32_t>) { FAIL() << "no sample is masked"; }

class EmbeddingTest : public ::testing::TestWithParam<const char*> {
 protected:
  EmbeddingTest() {
    std::ifstream in(
        SourcePath(std::string("tests/conformance/model/embeddings/") + GetParam() + ".json"));
    golden_ = nlohmann::json::parse(in);
    const std::string dir = folder_.path().string();
    WriteFamilyModel(golden_, golden_["config"], dir);
    for (const auto& [name, content] : golden_["files"].items()) {
      const std::filesystem::path path = folder_.path() / name;
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path) << content;
    }
    for (const auto& [folder, tensors] : golden_["dense"].items()) {
      WriteDense(folder, tensors);
    }
    auto modules = embedding::ReadSentenceModules(dir);
    CONTINUO_CHECK(modules.ok() && modules->has_value());
    auto head = embedding::EmbeddingHead::Load(dir, **modules, golden_["config"]["hidden_size"]);
    EXPECT_TRUE(head.ok()) << head.status();
    head_ = *std::move(head);
  }

  // The weights follow from names with the folder in front; the file's have none.
  void WriteDense(const std::string& folder, const nlohmann::json& tensors) {
    nlohmann::json named;
    for (const auto& [name, tensor] : tensors.items()) named[folder + "." + name] = tensor;
    std::string file = SafetensorsOf({{"tensors", named}});
    // The header becomes shorter by the folders' names; spaces keep its length.
    const std::string front = "\"" + folder + ".";
    for (size_t at = file.find(front); at != std::string::npos; at = file.find(front)) {
      file.replace(at, front.size(), std::string(front.size() - 1, ' ') + "\"");
    }
    std::ofstream(folder_.path() / folder / "model.safetensors", std::ios::binary) << file;
  }

  // The pooled states of all sequences, in one step of all their tokens.
  std::vector<std::vector<float>> States(const std::string& isa, int ranks) {
    model::LoadOptions options;
    options.source.dir = folder_.path().string();
    options.device.isa = isa;
    options.tensor_parallel = ranks;
    options.device.num_threads = ranks;
    options.kv.block_size = kBlockSize;
    options.kv.num_blocks = 64;
    options.reads_states = true;
    auto loaded = model::LoadModel(options);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    PlanBuilder builder(kBlockSize, kMaxBlocks);
    int id = 0;
    std::vector<size_t> num_rows;
    for (const auto& ids : golden_["sequences"]) {
      const auto tokens = ids.get<std::vector<int32_t>>();
      const std::vector<int> rows = PooledRows(head_->pooling(), tokens.size());
      num_rows.push_back(rows.size());
      builder.Add(id++, 0, tokens, rows, {}, model::kReadState);
    }
    auto result = loaded->executor->Run(builder.plan(), NoMask);
    EXPECT_TRUE(result.ok()) << result.status();
    std::span<const std::vector<float>> left = result->states;
    std::vector<std::vector<float>> pooled;
    for (const size_t n : num_rows) {
      pooled.push_back(MeanOf(left.first(n)));
      left = left.subspan(n);
    }
    return pooled;
  }

  nlohmann::json golden_;
  TempFolder folder_;
  std::shared_ptr<const embedding::EmbeddingHead> head_;
};

TEST_P(EmbeddingTest, VectorsAreThoseOfTheLibraries) {
  const std::vector<std::vector<float>> one_rank = States("scalar", 1);
  for (const std::string& isa : UsableIsas()) {
    for (const int ranks : {1, 2, 4}) {
      const auto states = States(isa, ranks);
      ASSERT_EQ(states.size(), golden_["vectors"].size());
      if (isa == "scalar") {
        EXPECT_EQ(states, one_rank) << ranks;
      }
      for (size_t i = 0; i < states.size(); ++i) {
        const auto want = golden_["vectors"][i].get<std::vector<double>>();
        ASSERT_EQ(static_cast<size_t>(head_->dimensions()), want.size());
        const std::vector<float> got =
            head_->Apply(states[i], head_->dimensions(), head_->normalises());
        double dot = 0, a = 0, b = 0, error = 0;
        for (size_t k = 0; k < want.size(); ++k) {
          const auto value = static_cast<double>(got[k]);
          dot += value * want[k];
          a += value * value;
          b += want[k] * want[k];
          error = std::max(error, std::abs(value - want[k]));
        }
        EXPECT_GE(dot / std::sqrt(a * b), 1 - 1e-9) << isa << " " << ranks << " " << i;
        EXPECT_LE(error, 2e-5 * std::max(1.0, std::sqrt(b))) << isa << " " << ranks << " " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Model, EmbeddingTest,
                         ::testing::Values("bert_cls", "bert_mean", "embedding_gemma", "llama",
                                           "modernbert", "modernbert_biased", "qwen3",
                                           "qwen3_dense", "xlm_roberta"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace continuo::testing
