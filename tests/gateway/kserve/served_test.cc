// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/kserve/call/served.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace continuo::gateway::kserve {
namespace {

v1::Model ModelOf(const std::string& name, const std::vector<v1::Capability>& capabilities,
                  uint32_t num_workers = 1) {
  v1::Model model;
  model.set_name(name);
  model.set_num_workers(num_workers);
  for (const v1::Capability capability : capabilities) model.add_capabilities(capability);
  return model;
}

// ModelInfer has no outputs for vectors and scores.
TEST(ServedTest, ModelsThatGenerateNothingAreLeftOut) {
  const std::vector<v1::Model> models = {
      ModelOf("chat", {v1::CAPABILITY_GENERATE, v1::CAPABILITY_CHAT}),
      ModelOf("vectors", {v1::CAPABILITY_EMBED}), ModelOf("scores", {v1::CAPABILITY_SCORE}),
      ModelOf("cold", {}, /*num_workers=*/0)};
  EXPECT_TRUE(IsReady(models, "chat", ""));
  EXPECT_TRUE(ModelMetadataOf(models, "chat", "1").ok());
  for (const char* const name : {"vectors", "scores"}) {
    EXPECT_FALSE(IsReady(models, name, ""));
    EXPECT_EQ(ModelMetadataOf(models, name, "").status().code(), absl::StatusCode::kNotFound);
  }
  const auto index = RepositoryIndexOf(models, {});
  ASSERT_TRUE(index.ok()) << index.status();
  ASSERT_EQ(index->models_size(), 2);
  EXPECT_EQ(index->models(0).name(), "chat");
  EXPECT_EQ(index->models(0).state(), "READY");
  // No worker has told what it does.
  EXPECT_EQ(index->models(1).name(), "cold");
  EXPECT_EQ(index->models(1).state(), "UNAVAILABLE");
}

}  // namespace
}  // namespace continuo::gateway::kserve
