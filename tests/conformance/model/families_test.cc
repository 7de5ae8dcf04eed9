// SPDX-License-Identifier: Apache-2.0
// Tiny models of every family against logits that transformers computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "services/worker/model/checkpoint/fingerprint.h"
#include "services/worker/model/description/config.h"
#include "services/worker/model/description/family.h"
#include "tests/conformance/model/family_goldens.h"

namespace continuo::testing {
namespace {

absl::StatusOr<std::unique_ptr<ModelHarness>> Load(const std::string& dir, const std::string& isa,
                                                   int ranks) {
  return ModelHarness::Make(
      dir, {.isa = isa, .tensor_parallel = ranks, .num_blocks = 24, .block_size = 4});
}

class FamiliesTest : public ::testing::TestWithParam<const char*> {};

TEST_P(FamiliesTest, LogitsAreThoseOfTransformers) {
  const nlohmann::json golden = ReadFamilyGolden(GetParam());
  const TempFolder folder;
  WriteFamilyModel(golden, golden["config"], folder.path().string());
  for (const std::string& isa : UsableIsas()) {
    for (const int ranks : {1, 2, 4}) {
      const auto harness = Load(folder.path().string(), isa, ranks);
      ASSERT_TRUE(harness.ok()) << harness.status();
      for (const int chunk : {64, 5, 1}) {
        EXPECT_LE(FamilyError(**harness, golden, chunk), kFamilyTolerance)
            << isa << ", " << ranks << " ranks, chunks of " << chunk;
      }
    }
  }
}

// Each changed field moves the logits, or is refused: the test above would tell if it were not
// read.
TEST_P(FamiliesTest, EveryFieldMatters) {
  const nlohmann::json golden = ReadFamilyGolden(GetParam());
  for (const auto& [field, value] : golden["changes"].items()) {
    nlohmann::json config = golden["config"];
    config[field] = value;
    const TempFolder folder;
    WriteFamilyModel(golden, config, folder.path().string());
    const auto harness = Load(folder.path().string(), "scalar", 1);
    if (!harness.ok()) {
      EXPECT_THAT(std::string(harness.status().message()), ::testing::HasSubstr(field));
      continue;
    }
    EXPECT_GT(FamilyError(**harness, golden, 64), 10 * kFamilyTolerance) << field << ": " << value;
  }
}

TEST(FamilyGoldensTest, EveryFileIsTestedAndEveryFamilyHasOne) {
  std::vector<std::string> files, architectures;
  for (const auto& entry :
       std::filesystem::directory_iterator(SourcePath("tests/conformance/model/families"))) {
    files.push_back(entry.path().stem().string());
    const auto config =
        model::ParseModelConfig(ReadFamilyGolden(files.back())["config"].dump(), "");
    ASSERT_TRUE(config.ok()) << files.back() << ": " << config.status();
    architectures.push_back(config->architecture);
  }
  EXPECT_THAT(files, ::testing::UnorderedElementsAreArray(kFamilyGoldens));
  // Those of hf_goldens.h have goldens in the shared data.
  for (const char* older :
       {"MistralForCausalLM", "MixtralForCausalLM", "Qwen3MoeForCausalLM", "Gemma2ForCausalLM"}) {
    architectures.push_back(older);
  }
  for (const model::Family& family : model::Families()) {
    EXPECT_THAT(architectures, ::testing::Contains(family.architecture)) << family.title;
  }
}

// transformers writes other fields than models are published with, and they mean the same. It has
// no class of its own for three families.
TEST(FamilyGoldensTest, TheConfigurationsThatTransformersSavesAreTheSame) {
  std::vector<std::string> without;
  for (const char* name : kFamilyGoldens) {
    const nlohmann::json golden = ReadFamilyGolden(name);
    if (golden["saved_config"].is_null()) {
      without.push_back(name);
      continue;
    }
    const auto published = model::ParseModelConfig(golden["config"].dump(), "");
    ASSERT_TRUE(published.ok()) << name << published.status();
    const auto saved = model::ParseModelConfig(golden["saved_config"].dump(), "");
    ASSERT_TRUE(saved.ok()) << name << saved.status();
    EXPECT_EQ(model::ConfigSummary(*saved), model::ConfigSummary(*published)) << name;
    EXPECT_EQ(saved->tied_embeddings, published->tied_embeddings) << name;
  }
  EXPECT_THAT(without, ::testing::UnorderedElementsAre("internlm2", "internlm3", "minicpm"));
}

INSTANTIATE_TEST_SUITE_P(Goldens, FamiliesTest, ::testing::ValuesIn(kFamilyGoldens),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace continuo::testing
