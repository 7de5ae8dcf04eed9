// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/stacked_experts.h"

#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace continuo::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// Tensors of F32 whose elements are their own indices.
class Files {
 public:
  void Add(const std::string& name, std::vector<int64_t> shape) {
    int64_t n = 1;
    for (const int64_t size : shape) n *= size;
    std::vector<float>& values = values_.emplace_back();
    for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(i));
    const auto* const bytes = reinterpret_cast<const uint8_t*>(values.data());
    tensors_[name] = {.name = name,
                      .dtype = "F32",
                      .shape = std::move(shape),
                      .bytes = {bytes, values.size() * sizeof(float)}};
  }
  absl::Status Unstack() { return UnstackExperts(tensors_); }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
  }
  const StoredTensor& At(const std::string& name) const { return tensors_.at(name); }
  // The elements of a tensor, row by row.
  std::vector<float> Elements(const std::string& name) const {
    const StoredTensor& t = tensors_.at(name);
    const int64_t columns = t.shape.size() == 2 ? t.shape[1] : 1;
    std::vector<float> elements;
    for (int64_t row = 0; row < t.shape[0]; ++row) {
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t stored = t.row_begin + row * t.row_step;
        const int64_t at =
            t.column_stride == 0 ? stored * columns + c : c * t.column_stride + stored;
        float value;
        std::memcpy(&value, t.bytes.data() + at * sizeof(float), sizeof(value));
        elements.push_back(value);
      }
    }
    return elements;
  }

 private:
  std::vector<std::vector<float>> values_;
  absl::flat_hash_map<std::string, StoredTensor> tensors_;
};

TEST(UnstackExpertsTest, StackedRowsAreGateThenUp) {
  Files files;
  files.Add("model.layers.3.block_sparse_moe.input_linear.weight", {2, 4, 3});
  files.Add("model.layers.3.block_sparse_moe.output_linear.weight", {2, 3, 2});
  ASSERT_TRUE(files.Unstack().ok());
  const std::string prefix = "model.layers.3.block_sparse_moe.experts.";
  EXPECT_THAT(files.Names(),
              UnorderedElementsAre(prefix + "0.gate_proj.weight", prefix + "0.up_proj.weight",
                                   prefix + "0.down_proj.weight", prefix + "1.gate_proj.weight",
                                   prefix + "1.up_proj.weight", prefix + "1.down_proj.weight"));
  EXPECT_THAT(files.At(prefix + "1.gate_proj.weight").shape, ElementsAre(2, 3));
  EXPECT_THAT(files.Elements(prefix + "0.gate_proj.weight"), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(files.Elements(prefix + "0.up_proj.weight"), ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_THAT(files.Elements(prefix + "1.gate_proj.weight"), ElementsAre(12, 13, 14, 15, 16, 17));
  EXPECT_THAT(files.Elements(prefix + "1.down_proj.weight"), ElementsAre(6, 7, 8, 9, 10, 11));
}

TEST(UnstackExpertsTest, WithBiasesMatricesAreTurnedAndGateAndUpTakeTurns) {
  Files files;
  const std::string prefix = "model.layers.0.mlp.experts.";
  files.Add(prefix + "gate_up_proj", {2, 3, 4});
  files.Add(prefix + "gate_up_proj_bias", {2, 4});
  files.Add(prefix + "down_proj", {2, 2, 3});
  files.Add(prefix + "down_proj_bias", {2, 3});
  ASSERT_TRUE(files.Unstack().ok());
  EXPECT_EQ(files.Names().size(), 12);
  EXPECT_THAT(files.At(prefix + "0.gate_proj.weight").shape, ElementsAre(2, 3));
  EXPECT_THAT(files.Elements(prefix + "0.gate_proj.weight"), ElementsAre(0, 4, 8, 2, 6, 10));
  EXPECT_THAT(files.Elements(prefix + "0.up_proj.weight"), ElementsAre(1, 5, 9, 3, 7, 11));
  EXPECT_THAT(files.Elements(prefix + "1.down_proj.weight"), ElementsAre(6, 9, 7, 10, 8, 11));
  EXPECT_THAT(files.Elements(prefix + "1.gate_proj.bias"), ElementsAre(4, 6));
  EXPECT_THAT(files.Elements(prefix + "1.up_proj.bias"), ElementsAre(5, 7));
  EXPECT_THAT(files.Elements(prefix + "1.down_proj.bias"), ElementsAre(3, 4, 5));
}

TEST(UnstackExpertsTest, WithoutBiasesMatricesAreAsTheyAreMultiplied) {
  Files files;
  const std::string prefix = "model.layers.0.mlp.experts.";
  files.Add(prefix + "gate_up_proj", {1, 4, 2});
  files.Add(prefix + "down_proj", {1, 2, 2});
  ASSERT_TRUE(files.Unstack().ok());
  EXPECT_THAT(files.Elements(prefix + "0.gate_proj.weight"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(files.Elements(prefix + "0.up_proj.weight"), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(files.Elements(prefix + "0.down_proj.weight"), ElementsAre(0, 1, 2, 3));
}

// Llama 4: the router of a feed_forward says so.
TEST(UnstackExpertsTest, BesideTheirRouterMatricesAreTurnedAndGateStandsBeforeUp) {
  for (const bool has_router : {true, false}) {
    Files files;
    const std::string block = "language_model.model.layers.0.feed_forward.";
    const std::string prefix = block + "experts.";
    files.Add(prefix + "gate_up_proj", {1, 2, 4});
    files.Add(prefix + "down_proj", {1, 2, 2});
    files.Add(block + (has_router ? "router.weight" : "gate.weight"), {1, 2});
    ASSERT_TRUE(files.Unstack().ok());
    if (has_router) {
      EXPECT_THAT(files.Elements(prefix + "0.gate_proj.weight"), ElementsAre(0, 4, 1, 5));
      EXPECT_THAT(files.Elements(prefix + "0.up_proj.weight"), ElementsAre(2, 6, 3, 7));
      EXPECT_THAT(files.Elements(prefix + "0.down_proj.weight"), ElementsAre(0, 2, 1, 3));
    } else {
      EXPECT_THAT(files.Elements(prefix + "0.gate_proj.weight"), ElementsAre(0, 1, 2, 3));
      EXPECT_THAT(files.Elements(prefix + "0.down_proj.weight"), ElementsAre(0, 1, 2, 3));
    }
  }
}

TEST(UnstackExpertsTest, OtherShapesAndNamesStay) {
  Files files;
  files.Add("model.layers.0.mlp.experts.gate_up_proj", {4, 2});        // not of several experts
  files.Add("model.layers.1.mlp.experts.gate_up_proj", {1, 3, 2});     // no halves
  files.Add("model.layers.2.mlp.experts.gate_up_proj", {2000, 2, 1});  // too many
  files.Add("model.layers.3.mlp.gate_up_proj", {1, 4, 2});
  files.Add("model.layers.4.shared_mlp.input_linear.weight", {4, 2});
  const std::vector<std::string> before = files.Names();
  ASSERT_TRUE(files.Unstack().ok());
  EXPECT_THAT(files.Names(), ::testing::UnorderedElementsAreArray(before));
}

TEST(UnstackExpertsTest, TwoTensorsOfOneNameAreAnError) {
  Files files;
  files.Add("model.layers.0.mlp.experts.down_proj", {1, 2, 2});
  files.Add("model.layers.0.mlp.experts.0.down_proj.weight", {2, 2});
  const absl::Status status = files.Unstack();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("experts.0.down_proj.weight"));
}

}  // namespace
}  // namespace continuo::model
