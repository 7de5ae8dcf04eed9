// SPDX-License-Identifier: Apache-2.0
// Adapters of tiny models against logits that PEFT computed (make_adapter_goldens.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/conformance/model/family_goldens.h"

namespace continuo::testing {
namespace {

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(SourcePath("tests/conformance/model/adapters"))) {
    names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

class AdaptersTest : public ::testing::TestWithParam<std::string> {};

TEST_P(AdaptersTest, LogitsAreThoseOfPeft) {
  std::ifstream in(SourcePath("tests/conformance/model/adapters/" + GetParam() + ".json"));
  const nlohmann::json adapter = nlohmann::json::parse(in);
  nlohmann::json golden = ReadFamilyGolden(adapter["model"].get<std::string>());
  const TempFolder folder, adapter_folder;
  WriteFamilyModel(golden, golden["config"], folder.path().string());
  const std::string dir = adapter_folder.path().string();
  std::ofstream(dir + "/adapter_config.json") << adapter["adapter_config"];
  std::ofstream(dir + "/adapter_model.safetensors", std::ios::binary) << SafetensorsOf(adapter);
  const nlohmann::json plain = golden;
  golden["logits"] = adapter["logits"];
  for (const std::string& isa : UsableIsas()) {
    for (const int ranks : {1, 2, 4}) {
      const auto harness = ModelHarness::Make(folder.path().string(), {.isa = isa,
                                                                       .tensor_parallel = ranks,
                                                                       .num_blocks = 24,
                                                                       .block_size = 4,
                                                                       .adapters = {dir}});
      ASSERT_TRUE(harness.ok()) << harness.status();
      for (const int chunk : {64, 5, 1}) {
        EXPECT_LE(FamilyError(**harness, golden, chunk, /*adapter=*/0), kFamilyTolerance)
            << isa << ", " << ranks << " ranks, chunks of " << chunk;
      }
      // Without the adapter the model is as it was.
      EXPECT_LE(FamilyError(**harness, plain, 5), kFamilyTolerance) << isa;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, AdaptersTest, ::testing::ValuesIn(Names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace continuo::testing
