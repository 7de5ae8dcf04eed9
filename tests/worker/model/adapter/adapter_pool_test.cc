// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/adapter/adapter_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "services/worker/model/load/load_plan.h"
#include "services/worker/model/load/model_loader.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/tiny_adapter.h"
#include "tests/testing/tiny_model.h"

namespace continuo::model {
namespace {

using ::testing::ElementsAre;
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
  EXPECT_EQ(*pool->Find((*second)->id), (*second)->adapter);
  const int32_t id = (*first)->id;
  first->reset();
  const auto third = pool->Load(folder.path().string());
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_NE((*third)->id, id) << "an id is never given twice";
  EXPECT_EQ(pool->Find(id).status().code(), absl::StatusCode::kInternal);
  // Nothing stays behind a folder that cannot be read.
  second->reset();
  EXPECT_FALSE(pool->Load((folder.path() / "none").string()).ok());
  EXPECT_TRUE(pool->Load(folder.path().string()).ok());
}

class RunTimePoolTest : public ::testing::Test {
 protected:
  // A pool of two adapters of rank 8 at most, on two ranks.
  RunTimePoolTest() {
    for (const int rank : {0, 1}) shards_.push_back(MakeShard(*config_, rank, 2));
    pool_ = std::make_shared<AdapterPool>(*config_, shards_, limits_);
  }
  void Write(const std::string& name, const testing::TinyAdapterOptions& options = {}) {
    testing::WriteTinyAdapter(model_.dir(), folder_.path() / name, options);
  }
  auto Read(const std::string& name) { return pool_->ReadInto(*root_, name); }

  const TinyModel model_;
  const TempFolder folder_;
  const absl::StatusOr<ModelConfig> config_ = ReadModelConfig(model_.dir());
  const absl::StatusOr<ConfinedFolder> root_ = ConfinedFolder::Open(folder_.path().string());
  const AdapterLimits limits_ = {.most = 2, .max_rank = 8};
  std::vector<Shard> shards_;
  std::shared_ptr<AdapterPool> pool_;
};

TEST_F(RunTimePoolTest, ReadsWhatLoadDoes) {
  Write("a", {.rank = 8});
  const auto read = Read("a"), loaded = pool_->Load((folder_.path() / "a").string());
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(ToHex((*read)->adapter->digest()), ToHex((*loaded)->adapter->digest()));
  const auto digest = pool_->ReadDigest(*root_, "a");
  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_EQ(ToHex(*digest), ToHex((*read)->adapter->digest()));
}

TEST_F(RunTimePoolTest, HoldsNoMoreThanItMay) {
  Write("a", {.seed = 1});
  auto first = Read("a"), second = Read("a");
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_FALSE(pool_->HasRoom());
  EXPECT_EQ(Read("a").status().code(), absl::StatusCode::kResourceExhausted);
  // A step may still read one whose leases are gone.
  std::shared_ptr<const Adapter> in_step = (*first)->adapter;
  first->reset();
  EXPECT_FALSE(pool_->HasRoom());
  in_step.reset();
  EXPECT_TRUE(pool_->HasRoom());
  EXPECT_TRUE(Read("a").ok());
}

TEST_F(RunTimePoolTest, TheRoomIsEnoughForTheLargest) {
  Write("a", {.rank = 8});
  const auto lease = Read("a");
  ASSERT_TRUE(lease.ok()) << lease.status();
  const int64_t most = Adapter::MostBytes(*config_, shards_, 8);
  EXPECT_EQ((*lease)->adapter->bytes(), most) << "it has every module";
  EXPECT_GT(Adapter::MostBytes(*config_, shards_, 16), most);
  const int64_t file = Adapter::MostFileBytes(*config_, 8);
  EXPECT_GE(AdapterPool::MostBytes(*config_, shards_, limits_, 0), 2 * most + file);
  EXPECT_GE(AdapterPool::MostBytes(*config_, shards_, limits_, 1), most + file);
  EXPECT_EQ(AdapterPool::MostBytes(*config_, shards_, limits_, 2), 0);
}

TEST_F(RunTimePoolTest, LargerRanksAreRefusedByName) {
  Write("a", {.rank = 9});
  for (const absl::Status& status : {Read("a").status(), pool_->ReadDigest(*root_, "a").status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(
        std::string(status.message()),
        ::testing::ContainsRegex("module \".*_proj\" has the rank 9; --max_lora_rank is 8"));
  }
}

TEST_F(RunTimePoolTest, NothingOutsideIsRead) {
  const TempFolder outside;
  testing::WriteTinyAdapter(model_.dir(), outside.path() / "a");
  EXPECT_EQ(Read((outside.path() / "a").string()).status().code(),
            absl::StatusCode::kPermissionDenied);
  std::filesystem::create_directory_symlink(outside.path() / "a", folder_.path() / "link");
  EXPECT_EQ(Read("link").status().code(), absl::StatusCode::kPermissionDenied);
  // Nor by a link for one of the files.
  Write("half");
  std::filesystem::remove(folder_.path() / "half" / "adapter_model.safetensors");
  EXPECT_EQ(Read("half").status().code(), absl::StatusCode::kNotFound);
  std::filesystem::create_symlink(outside.path() / "a" / "adapter_model.safetensors",
                                  folder_.path() / "half" / "adapter_model.safetensors");
  EXPECT_EQ(Read("half").status().code(), absl::StatusCode::kPermissionDenied);
  // Links inside, as hubs' caches have them, are followed.
  Write("blobs");
  std::filesystem::create_directory_symlink("blobs", folder_.path() / "snapshot");
  EXPECT_TRUE(Read("snapshot").ok());
}

TEST_F(RunTimePoolTest, AFileThatIsTooLargeIsNotRead) {
  Write("a");
  std::filesystem::resize_file(folder_.path() / "a" / "adapter_model.safetensors", 1 << 30);
  const absl::Status status = Read("a").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("it may have"));
}

TEST_F(RunTimePoolTest, AStampChangesWithEitherFile) {
  Write("a", {.seed = 1});
  const auto stamp = [&] { return *AdapterFiles::Stamp(*root_, "a"); };
  const std::string first = stamp();
  EXPECT_EQ(stamp(), first);
  const std::filesystem::path config = folder_.path() / "a" / "adapter_config.json";
  std::filesystem::copy_file(config, folder_.path() / "config");
  std::filesystem::rename(folder_.path() / "config", config);
  const std::string second = stamp();
  EXPECT_NE(second, first);
  Write("b", {.seed = 2});
  std::filesystem::rename(folder_.path() / "b" / "adapter_model.safetensors",
                          folder_.path() / "a" / "adapter_model.safetensors");
  EXPECT_NE(stamp(), second);
}

TEST(AdapterPoolTest, TheLoaderReservesTheRoom) {
  const TinyModel model;
  const TempFolder folder;
  testing::WriteTinyAdapter(model.dir(), folder.path() / "a", {.rank = 8});
  LoadOptions options = {.source = {.dir = model.dir()}, .kv = {.num_blocks = 16}};
  const auto without = EstimateLoad(options);
  options.run_time_adapters = {.root = folder.path().string(), .most = 3, .max_rank = 16};
  const auto with = EstimateLoad(options);
  ASSERT_TRUE(with.ok()) << with.status();
  const auto config = ReadModelConfig(model.dir());
  const std::vector<Shard> shards = {MakeShard(*config, 0, 1)};
  EXPECT_EQ(with->weight_bytes - without->weight_bytes,
            AdapterPool::MostBytes(*config, shards, {.most = 3, .max_rank = 16}, 0));
  EXPECT_GT(with->scratch_bytes, without->scratch_bytes);
  options.adapters = {{"first", (folder.path() / "a").string()}};
  const auto loaded = LoadModel(options);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->adapter_pool->NumInMemory(), 1u);
  EXPECT_TRUE(loaded->adapter_pool->HasRoom());
}

// Each rank has a slot for each adapter that may be in memory: one of its own part for each that is
// loaded and stays, and of one of the largest rank for each that may come.
TEST(AdapterPoolTest, TheLoaderPlansCopiesForDevicesWithMemory) {
  const TinyModel model;
  const TempFolder folder;
  testing::WriteTinyAdapter(model.dir(), folder.path() / "a", {.rank = 24});
  LoadOptions options = {.source = {.dir = model.dir()},
                         .adapters = {{"first", (folder.path() / "a").string()}}};
  const auto config = ReadModelConfig(model.dir());
  const auto most = [&](int rank, int adapter_rank) {
    const Shard shard = MakeShard(*config, rank, 2);
    return Adapter::MostBytes(*config, std::span(&shard, 1), adapter_rank);
  };
  auto plan = MakeLoadPlan(options, 2);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const int rank : {0, 1}) {
    EXPECT_THAT(plan->adapter_slots[static_cast<size_t>(rank)], ElementsAre(most(rank, 24)));
  }
  options.run_time_adapters = {.root = folder.path().string(), .most = 3, .max_rank = 16};
  plan = MakeLoadPlan(options, 2);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const int rank : {0, 1}) {
    EXPECT_THAT(plan->adapter_slots[static_cast<size_t>(rank)],
                ElementsAre(most(rank, 24), most(rank, 16), most(rank, 16)));
  }
  testing::WriteTinyAdapter(model.dir(), folder.path() / "b", {.rank = 4});
  options.adapters.push_back({"second", (folder.path() / "b").string()});
  plan = MakeLoadPlan(options, 2);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const int rank : {0, 1}) {
    EXPECT_THAT(plan->adapter_slots[static_cast<size_t>(rank)],
                ElementsAre(most(rank, 24), most(rank, 4), most(rank, 16)));
  }
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
