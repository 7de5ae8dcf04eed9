// SPDX-License-Identifier: Apache-2.0
#include "services/protocol/find_model.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace continuo::protocol {
namespace {

// Models by name, each with the model that it adapts.
std::vector<v1::Model> Models(const std::vector<std::pair<std::string, std::string>>& names) {
  std::vector<v1::Model> models;
  for (const auto& [name, parent] : names) {
    v1::Model& model = models.emplace_back();
    model.set_name(name);
    model.set_parent(parent);
  }
  return models;
}

std::string Found(const std::vector<v1::Model>& models, std::string_view name) {
  const v1::Model* const model = FindModel(models, name);
  return model == nullptr ? "none" : model->name();
}

TEST(FindModelTest, ANameMayBeLeftOutWhereOneModelIsServedBesideItsAdapters) {
  const std::vector<v1::Model> one = Models({{"clerk", "m"}, {"m", ""}, {"poet", "m"}});
  EXPECT_EQ(Found(one, ""), "m");
  EXPECT_EQ(Found(one, "poet"), "poet");
  EXPECT_EQ(Found(one, "other"), "none");
  EXPECT_EQ(Found(Models({{"m", ""}, {"n", ""}}), ""), "none");
  EXPECT_EQ(Found(Models({{"m", ""}, {"n", ""}}), "n"), "n");
  EXPECT_EQ(Found(Models({{"poet", "m"}}), ""), "none") << "a key may have the adapter alone";
  EXPECT_EQ(Found({}, ""), "none");
}

}  // namespace
}  // namespace continuo::protocol
