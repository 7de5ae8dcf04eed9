// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/adapter/adapter_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/worker/model/load/model_loader.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/tiny_adapter.h"
#include "tests/testing/tiny_model.h"

namespace continuo::model {
namespace {

using testing::TempFolder;
using testing::TinyModel;

TEST(AdapterPoolTest, HoldsWhatIsLeased) {
  const TinyModel model;
  const TempFolder folder;
  testing::WriteTinyAdapter(model.dir(), folder.path());
  const auto config = ReadModelConfig(model.dir());
  const auto pool =
      std::make_shared<AdapterPool>(*config, std::vector<Shard>{MakeShard(*config, 0, 1)});
  auto first = pool->Load(folder.path().string());
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = pool->Load(folder.path().string());
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE((*first)->id, (*second)->id);
  EXPECT_EQ(pool->Find((*second)->id), (*second)->adapter);
  const int32_t id = (*first)->id;
  first->reset();
  const auto third = pool->Load(folder.path().string());
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_NE((*third)->id, id) << "an id is never given twice";
  // Nothing stays behind a folder that cannot be read.
  second->reset();
  EXPECT_FALSE(pool->Load((folder.path() / "none").string()).ok());
  EXPECT_TRUE(pool->Load(folder.path().string()).ok());
}

TEST(AdapterPoolTest, TheLoaderCountsAndNamesAdapters) {
  const TinyModel model;
  const TempFolder folder;
  testing::WriteTinyAdapter(model.dir(), folder.path() / "a", {.rank = 8});
  LoadOptions options = {.source = {.dir = model.dir()}, .kv = {.num_blocks = 16}};
  const auto without = EstimateLoad(options);
  ASSERT_TRUE(without.ok()) << without.status();
  options.adapters = {{"first", (folder.path() / "a").string()}};
  const auto with = EstimateLoad(options);
  ASSERT_TRUE(with.ok()) << with.status();
  const auto loaded = LoadModel(options);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_EQ(loaded->adapters.size(), 1u);
  EXPECT_EQ(loaded->adapters[0].name, "first");
  EXPECT_EQ(with->weight_bytes - without->weight_bytes,
            loaded->adapters[0].lease->adapter->bytes());
  EXPECT_GT(with->scratch_bytes, without->scratch_bytes);
  options.adapters.push_back({"second", (folder.path() / "b").string()});
  const auto failed = LoadModel(options);
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(failed.status().message()), ::testing::HasSubstr("adapter \"second\""));
  options.device.device = "cuda:0";
  EXPECT_FALSE(EstimateLoad(options).ok());
}

}  // namespace
}  // namespace continuo::model
