// SPDX-License-Identifier: Apache-2.0
// Which groups the integers of a file are kept in, and that they are what the file has.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "services/base/random.h"
#include "services/worker/gguf/blocks.h"
#include "services/worker/model/checkpoint/stored_types.h"
#include "tests/testing/tiny_model.h"

namespace continuo::model {
namespace {

using ::testing::HasSubstr;
using testing::TinyModel;

ModelConfig Config(int num_heads, int head_dim, int intermediate_size) {
  const TinyModel model({.hidden_size = 64,
                         .intermediate_size = intermediate_size,
                         .num_heads = num_heads,
                         .num_kv_heads = 1,
                         .head_dim = head_dim});
  return *ReadModelConfig(model.dir());
}

kernels::Weight g_place;

absl::StatusOr<std::optional<StoredGroups>> Find(const ModelConfig& config, const std::string& type,
                                                 Cut cut, int64_t columns, WeightSpec spec = {}) {
  spec.name = "some.weight";
  spec.shape = {48, columns};
  spec.rows = {0, 48};
  spec.cut = cut;
  spec.matrix = &g_place;
  StoredTensor stored;
  stored.name = spec.name;
  stored.dtype = type;
  stored.shape = spec.shape;
  return FindStoredGroups(spec, stored, config);
}

TEST(StoredGroupsTest, GroupsAreThoseOfTheTypeWhereNothingCutsThem) {
  const ModelConfig config = Config(8, 64, 2048);
  const auto q4k = **Find(config, "Q4_K", Cut::kInnerRows, 512);
  EXPECT_EQ(q4k.format, kernels::WeightFormat::kInt4Panels);
  EXPECT_EQ(q4k.groups, (kernels::GroupFormat{32, 256, kernels::GroupScales::kShared, true}));
  const auto q6k = **Find(config, "Q6_K", Cut::kVocabRows, 512);
  EXPECT_EQ(q6k.format, kernels::WeightFormat::kInt8Panels);
  EXPECT_EQ(q6k.groups, (kernels::GroupFormat{16, 256, kernels::GroupScales::kShared, false}));
  const auto q40 = **Find(config, "Q4_0", Cut::kInnerRows, 576);
  EXPECT_EQ(q40.groups, (kernels::GroupFormat{32, 64, kernels::GroupScales::kF16, false}));
  const auto q41 = **Find(config, "Q4_1", Cut::kInnerRows, 576);
  EXPECT_EQ(q41.groups, (kernels::GroupFormat{32, 32, kernels::GroupScales::kF16, true}));
}

TEST(StoredGroupsTest, SplitsAndHeadsCutGroups) {
  // A K split of 2,048 columns has 256, of 1,536 it has 192, whose parts of 256 share 64.
  EXPECT_EQ((*Find(Config(8, 64, 2048), "Q4_K", Cut::kInnerColumns, 2048))->groups.unit, 256);
  EXPECT_EQ((*Find(Config(8, 64, 1536), "Q4_K", Cut::kInnerColumns, 1536))->groups.unit, 64);
  EXPECT_EQ((*Find(Config(8, 64, 1536), "Q4_K", Cut::kInnerColumns, 1536))->groups.size, 32);
  EXPECT_EQ((*Find(Config(8, 16, 2048), "Q8_0", Cut::kHeadColumns, 128))->groups.size, 16);
  EXPECT_EQ((*Find(Config(8, 8, 2048), "Q8_0", Cut::kHeadColumns, 64))->groups.size, 8);
  const auto refused = Find(Config(8, 20, 2048), "Q8_0", Cut::kHeadColumns, 160);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("some.weight is Q8_0, whose groups "
                        "of 32 columns the heads or K "
                        "splits of the model cut to 4"));
}

TEST(StoredGroupsTest, LayersThatDifferAreCutInTheirOwnPlaces) {
  const TinyModel model(
      {.family = "gemma4_text", .intermediate_size = 1536, .num_heads = 8, .head_dim = 16});
  const ModelConfig config = *ReadModelConfig(model.dir());
  ASSERT_EQ(config.wide_size, 3072);
  ASSERT_EQ(config.other_heads.head_dim, 12);
  const auto inner = [&](bool is_wide) {
    const int64_t columns = is_wide ? 3072 : 1536;
    return **Find(config, "Q4_K", Cut::kInnerColumns, columns, {.is_other = is_wide});
  };
  EXPECT_EQ(inner(false).groups.unit, 64);
  EXPECT_EQ(inner(true).groups.unit, 128);
  const auto heads = [&](int64_t dim) {
    return Find(config, "Q8_0", Cut::kHeadColumns, 8 * dim,
                {.of_head = dim, .is_other = dim == 12});
  };
  EXPECT_EQ((*heads(16))->groups.size, 16);
  EXPECT_THAT(std::string(heads(12).status().message()),
              HasSubstr("K splits of the model cut to 4"));
}

TEST(StoredGroupsTest, FloatsAndRoutersAreNotKept) {
  const ModelConfig config = Config(8, 64, 2048);
  for (const char* type : {"F32", "F16", "BF16"}) {
    EXPECT_FALSE(Find(config, type, Cut::kInnerRows, 512)->has_value());
  }
}

// Every type, whole rows and a part in the middle of a block.
TEST(StoredGroupsTest, RowsAreThoseOfTheFile) {
  SplitMix64 random(5);
  for (const StoredType& type : StoredTypes()) {
    if (type.block == 1) continue;
    for (const Range columns : {Range{0, 512}, Range{32, 96}, Range{192, 448}}) {
      constexpr int64_t kRows = 3, kColumns = 512;
      std::vector<uint8_t> bytes(static_cast<size_t>(kRows * kColumns / type.block * type.bytes));
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Next());
      StoredTensor stored;
      stored.dtype = std::string(type.name);
      stored.shape = {kRows, kColumns};
      stored.bytes = bytes;
      const gguf::IntegerType& integers = *gguf::FindIntegerType(type.name);
      StoredGroups kept;
      kept.groups = {std::min<int32_t>(integers.group, 16), 32, integers.scales,
                     integers.has_minimum};
      GroupRows rows;
      rows.Resize(kept.groups, kRows, columns.size());
      for (int64_t r = 0; r < kRows; ++r) ReadGroupsOfRow(stored, r, columns, kept, r, rows);
      for (int64_t r = 0; r < kRows; ++r) {
        std::vector<float> values(static_cast<size_t>(columns.size()));
        type.convert(values.data(), kernels::DType::kF32,
                     bytes.data() + r * (kColumns / type.block * type.bytes), columns.begin,
                     columns.size());
        for (int64_t c = 0; c < columns.size(); ++c) {
          const int64_t element = r * columns.size() + c;
          const auto group = static_cast<size_t>(element / 16),
                     unit = static_cast<size_t>(element / 32);
          const bool is_shared = integers.scales == kernels::GroupScales::kShared;
          float value = rows.scales[group] * (is_shared ? rows.shared_scales[unit] : 1) *
                        static_cast<float>(rows.integers[static_cast<size_t>(element)]);
          if (integers.has_minimum) {
            value += rows.minima[group] * (is_shared ? rows.shared_minima[unit] : 1);
          }
          const float expected = values[static_cast<size_t>(c)];
          if (std::isnan(expected)) {
            ASSERT_TRUE(std::isnan(value)) << type.name;
          } else {
            ASSERT_EQ(value, expected) << type.name << " row " << r << " column " << c;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace continuo::model
