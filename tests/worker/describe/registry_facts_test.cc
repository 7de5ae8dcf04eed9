// SPDX-License-Identifier: Apache-2.0
#include "services/worker/describe/registry_facts.h"

#include <gmock/gmock.h>

#include <set>
#include <string>

#include "nlohmann/json.hpp"
#include "services/worker/gguf/gguf_names.h"
#include "services/worker/model/checkpoint/stored_types.h"
#include "services/worker/model/description/encoder_config.h"
#include "services/worker/model/description/family.h"

namespace continuo::worker {
namespace {

TEST(RegistryFactsTest, EveryRowOfTheTablesIsListed) {
  const auto json = nlohmann::json::parse(RegistryJson());
  EXPECT_EQ(json["families"].size(), model::Families().size());
  EXPECT_EQ(json["encoders"].size(), model::EncoderFamilies().size());
  EXPECT_EQ(json["stored_types"].size(), model::StoredTypes().size());
  std::set<std::string> gguf;
  for (const auto& family : json["families"]) {
    EXPECT_FALSE(family["architecture"].get<std::string>().empty());
    for (const auto& name : family["gguf"]) gguf.insert(name);
  }
  for (const gguf::Architecture& architecture : gguf::Architectures()) {
    EXPECT_TRUE(gguf.contains(std::string(architecture.name)))
        << architecture.name << " is of a family that is not known: " << architecture.hugging_face;
  }
}

TEST(RegistryFactsTest, MechanismsAreThoseOfTheFamily) {
  const auto json = nlohmann::json::parse(RegistryJson());
  for (const auto& family : json["families"]) {
    if (family["model_type"] != "gemma2") continue;
    EXPECT_THAT(family["mechanisms"], ::testing::Contains("sliding window"));
    EXPECT_THAT(family["mechanisms"], ::testing::Contains("soft cap of logits"));
  }
}

}  // namespace
}  // namespace continuo::worker
