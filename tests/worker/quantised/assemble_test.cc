// SPDX-License-Identifier: Apache-2.0
#include "services/worker/quantised/assemble.h"

#include <gmock/gmock.h>

#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace continuo::quantised {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Shape = std::vector<int64_t>;

struct Tensor {
  std::string dtype;
  Shape shape;
  std::string bytes = {};  // zeros where empty
};
using Tensors = std::map<std::string, Tensor>;

struct Checkpoint {
  json config;
  Tensors tensors;
};

size_t SizeOf(const std::string& dtype) {
  return dtype == "I64" ? 8 : dtype == "F32" || dtype == "I32" ? 4 : dtype.ends_with("16") ? 2 : 1;
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Gives Assemble views with exactly the bytes of each tensor.
absl::StatusOr<Assembly> AssembleAll(const Checkpoint& checkpoint,
                                     std::deque<std::string>& memory) {
  const auto config = ReadQuantisationConfig({{"quantization_config", checkpoint.config}});
  EXPECT_TRUE(config.ok()) << config.status();
  absl::flat_hash_map<std::string, StoredPart> parts;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    size_t size = SizeOf(tensor.dtype);
    for (const int64_t n : tensor.shape) size *= static_cast<size_t>(n);
    std::string bytes = tensor.bytes;
    bytes.resize(size);
    memory.push_back(std::move(bytes));
    parts.emplace(name, StoredPart{name,
                                   tensor.dtype,
                                   tensor.shape,
                                   {reinterpret_cast<const uint8_t*>(memory.back().data()), size}});
  }
  return Assemble(*config, parts);
}

// Decodes all of what was assembled: sanitizers see a read beyond a part.
absl::Status RunAndDecode(const Checkpoint& checkpoint) {
  std::deque<std::string> memory;
  const auto assembly = AssembleAll(checkpoint, memory);
  if (!assembly.ok()) return assembly.status();
  for (const auto& matrix : assembly->matrices) {
    std::vector<float> values(static_cast<size_t>(matrix->rows * matrix->columns));
    matrix->Decode(0, matrix->rows, 0, matrix->columns, values.data());
  }
  return absl::OkStatus();
}

std::string ErrorOf(const Checkpoint& checkpoint) {
  return std::string(RunAndDecode(checkpoint).message());
}

json Groups(const char* format, const json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"config_groups", {{"g", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

// Small checkpoints, one of each format, that are right.
std::map<std::string, Checkpoint> RightOnes() {
  const auto shape_of = [](int64_t rows, int64_t columns) {
    return Tensor{"I64", {2}, Bytes<int64_t>({rows, columns})};
  };
  std::vector<int32_t> order;
  for (int32_t i = 0; i < 64; ++i) order.push_back(i % 2);
  const json int4 = {
      {"num_bits", 4}, {"strategy", "group"}, {"group_size", 32}, {"symmetric", false}};
  const json fp4 = {
      {"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}, {"group_size", 16}};
  return {
      {"fp8 blocks",
       {{{"quant_method", "fp8"}, {"weight_block_size", {16, 16}}},
        {{"a.weight", {"F8_E4M3", {40, 24}}}, {"a.weight_scale_inv", {"F32", {3, 2}}}}}},
      {"fp8 rows",
       {{{"quant_method", "fp8"}},
        {{"a.weight", {"F8_E4M3", {40, 24}}}, {"a.weight_scale", {"BF16", {40, 1}}}}}},
      {"packed int4",
       {Groups("pack-quantized", int4),
        {{"a.weight_packed", {"I32", {20, 8}}},
         {"a.weight_shape", shape_of(20, 64)},
         {"a.weight_scale", {"BF16", {20, 2}}},
         {"a.weight_zero_point", {"I32", {3, 2}}},
         {"a.weight_g_idx", {"I32", {64}, Bytes(order)}}}}},
      {"packed int8",
       {Groups("pack-quantized", {{"num_bits", 8}, {"strategy", "channel"}, {"symmetric", false}}),
        {{"a.weight_packed", {"I32", {9, 6}}},
         {"a.weight_shape", shape_of(9, 21)},
         {"a.weight_scale", {"F16", {9, 1}}},
         {"a.weight_zero_point", {"I32", {3, 1}}}}}},
      {"int8",
       {Groups("int-quantized", {{"num_bits", 8}, {"strategy", "channel"}, {"symmetric", false}}),
        {{"a.weight", {"I8", {9, 21}}},
         {"a.weight_scale", {"F32", {9, 1}}},
         {"a.weight_zero_point", {"I8", {9, 1}}}}}},
      {"nvfp4",
       {Groups("nvfp4-pack-quantized", fp4),
        {{"a.weight_packed", {"U8", {6, 16}}},
         {"a.weight_scale", {"F8_E4M3", {6, 2}}},
         {"a.weight_global_scale", {"F32", {1}, Bytes<float>({2})}}}}},
      {"awq",
       {{{"quant_method", "awq"}, {"group_size", 16}},
        {{"a.qweight", {"I32", {32, 3}}},
         {"a.qzeros", {"I32", {2, 3}}},
         {"a.scales", {"F16", {2, 24}}}}}},
      {"gptq",
       {{{"quant_method", "gptq"}, {"group_size", 32}},
        {{"a.qweight", {"I32", {8, 24}}},
         {"a.qzeros", {"I32", {2, 3}}},
         {"a.scales", {"F16", {2, 24}}},
         {"a.g_idx", {"I32", {64}, Bytes(order)}}}}},
      {"gptq of 8 bits",
       {{{"quant_method", "gptq"}, {"group_size", -1}, {"bits", 8}},
        {{"a.qweight", {"I32", {8, 12}}},
         {"a.qzeros", {"I32", {1, 3}}},
         {"a.scales", {"BF16", {1, 12}}}}}},
      {"mxfp4",
       {{{"quant_method", "mxfp4"}},
        {{"x.experts.down_proj_blocks", {"U8", {2, 6, 3, 16}}},
         {"x.experts.down_proj_scales", {"U8", {2, 6, 3}}}}}}};
}

TEST(AssembleTest, RightCheckpointsGiveOneMatrixForAModule) {
  for (const auto& [what, checkpoint] : RightOnes()) {
    std::deque<std::string> memory;
    const auto assembly = AssembleAll(checkpoint, memory);
    ASSERT_TRUE(assembly.ok()) << what << ": " << assembly.status();
    EXPECT_EQ(assembly->read.size(), checkpoint.tensors.size()) << what;
    EXPECT_EQ(assembly->matrices.size(), what == "mxfp4" ? 2u : 1u) << what;
    EXPECT_EQ(assembly->matrices[0]->name,
              what == "mxfp4" ? "x.experts.0.down_proj.weight" : "a.weight");
    EXPECT_TRUE(RunAndDecode(checkpoint).ok());
  }
}

TEST(AssembleTest, AMissingPartIsRefusedByName) {
  for (const auto& [what, checkpoint] : RightOnes()) {
    for (const auto& [name, tensor] : checkpoint.tensors) {
      if (name.ends_with("g_idx")) continue;  // columns are in order without it
      Checkpoint without = checkpoint;
      without.tensors.erase(name);
      const bool is_main = name == "a.weight" || name.ends_with("packed") ||
                           name.ends_with("qweight") || name.ends_with("blocks");
      std::deque<std::string> memory;
      const auto assembly = AssembleAll(without, memory);
      if (is_main) {  // the others are told as tensors that nobody reads
        ASSERT_TRUE(assembly.ok());
        EXPECT_TRUE(assembly->matrices.empty());
        continue;
      }
      const std::string error(assembly.status().message());
      const std::string missing =
          what == "fp8 blocks" ? "weight_scale" : name.substr(name.find('.') + 1);
      EXPECT_THAT(error, HasSubstr("weights: tensor ")) << what;
      EXPECT_THAT(error, HasSubstr(missing)) << what;
    }
  }
}

TEST(AssembleTest, AnotherTypeIsRefused) {
  for (const auto& [what, checkpoint] : RightOnes()) {
    for (const auto& [name, tensor] : checkpoint.tensors) {
      for (const char* const dtype : {"BOOL", "F64", "I16", "F8_E5M2", "U32"}) {
        Checkpoint other = checkpoint;
        other.tensors[name].dtype = dtype;
        const absl::Status status = RunAndDecode(other);
        // A plain weight beside scales is no main part; it is told elsewhere.
        const bool is_plain = name == "a.weight" && std::string_view(dtype) != "F8_E5M2";
        EXPECT_EQ(status.ok(), is_plain) << what << " " << name << " " << dtype;
        EXPECT_THAT(std::string(status.message()), HasSubstr(is_plain ? "" : name));
      }
    }
  }
}

// No dimension can be changed alone, be it by one or to much more: the others tell.
TEST(AssembleTest, AnotherShapeIsRefused) {
  for (const auto& [what, checkpoint] : RightOnes()) {
    for (const auto& [name, tensor] : checkpoint.tensors) {
      for (size_t d = 0; d < tensor.shape.size(); ++d) {
        for (const int64_t change : {-1, 1, 7, 64}) {
          Checkpoint other = checkpoint;
          int64_t& n = other.tensors[name].shape[d];
          n += change;
          if (n < 0) continue;
          // The blocks of the last row or column may be of any height or width.
          const bool is_same_grid = what == "fp8 blocks" && name == "a.weight" &&
                                    (other.tensors[name].shape[0] + 15) / 16 == 3 &&
                                    (other.tensors[name].shape[1] + 15) / 16 == 2;
          // Nothing else tells how wide rows without groups are.
          const bool is_other_width =
              ((what == "fp8 rows" || what == "int8") && name == "a.weight" && d == 1) ||
              (what == "gptq of 8 bits" && name == "a.qweight" && d == 0);
          if (is_same_grid || (is_other_width && n > 0)) continue;
          EXPECT_FALSE(RunAndDecode(other).ok())
              << what << " " << name << " " << d << " " << change;
        }
      }
      Checkpoint other = checkpoint;
      other.tensors[name].shape.push_back(1);
      const bool is_rows = name.ends_with("weight_scale") && tensor.shape.size() == 1;
      EXPECT_EQ(RunAndDecode(other).ok(), is_rows) << what << " " << name;
    }
  }
}

TEST(AssembleTest, OddGroupsAreRefused) {
  Checkpoint awq = RightOnes()["awq"];
  awq.config["group_size"] = 24;
  EXPECT_THAT(ErrorOf(awq), HasSubstr("a.qweight has 32 rows, which are no whole groups of 24"));
  Checkpoint packed = RightOnes()["packed int4"];
  packed.config["config_groups"]["g"]["weights"]["group_size"] = 48;
  EXPECT_THAT(ErrorOf(packed), HasSubstr("no whole groups of 48"));
}

// The codes of AWQ and GPTQ lie crosswise: the shapes tell them apart.
TEST(AssembleTest, FilesOfTheOtherNibbleOrderAreRefused) {
  Checkpoint awq = RightOnes()["awq"], gptq = RightOnes()["gptq"];
  gptq.tensors.erase("a.g_idx");
  std::swap(awq.tensors, gptq.tensors);
  EXPECT_THAT(ErrorOf(awq), AnyOf(HasSubstr("a.scales"), HasSubstr("a.qweight")));
  EXPECT_THAT(ErrorOf(gptq), AnyOf(HasSubstr("a.scales"), HasSubstr("a.qweight")));
}

TEST(AssembleTest, GroupsOfColumnsAreChecked) {
  struct Case {
    std::string what;
    std::vector<int32_t> groups;
    std::string expected;
  };
  std::vector<int32_t> order(64), uneven(64), unset(64, -1);
  for (size_t i = 0; i < 64; ++i) {
    order[i] = static_cast<int32_t>(i / 32);
    uneven[i] = i < 33 ? 0 : 1;
  }
  std::vector<int32_t> beyond(order), negative(order), half(order);
  beyond[63] = 2;
  negative[5] = -2;
  half[5] = -1;
  for (const Case& one : std::vector<Case>{{"gptq", order, ""},
                                           {"gptq", uneven, ""},
                                           {"gptq", beyond, "column 63 in group 2 of 2"},
                                           {"gptq", negative, "column 5 in group -2"},
                                           {"gptq", unset, "column 0 in group -1"},
                                           {"packed int4", order, ""},
                                           {"packed int4", unset, ""},
                                           {"packed int4", half, "columns without a group"},
                                           {"packed int4", uneven, "33 columns in group 0"},
                                           {"packed int4", beyond, "group 2 of 2"}}) {
    Checkpoint checkpoint = RightOnes()[one.what];
    const std::string name = one.what == "gptq" ? "a.g_idx" : "a.weight_g_idx";
    checkpoint.tensors[name].bytes = Bytes(one.groups);
    const absl::Status status = RunAndDecode(checkpoint);
    if (one.expected.empty()) {
      EXPECT_TRUE(status.ok()) << status;
    } else {
      EXPECT_THAT(std::string(status.message()), HasSubstr(one.expected));
      EXPECT_THAT(std::string(status.message()), HasSubstr(name));
    }
  }
}

TEST(AssembleTest, SidesBeyondReasonAreRefused) {
  for (const int64_t side : {int64_t{-1}, int64_t{0}, int64_t{1} << 31, INT64_MAX, INT64_MIN}) {
    Checkpoint checkpoint = RightOnes()["packed int4"];
    checkpoint.tensors["a.weight_shape"].bytes = Bytes<int64_t>({side, 64});
    EXPECT_THAT(ErrorOf(checkpoint), HasSubstr("a.weight_shape"));
  }
}

TEST(AssembleTest, AGlobalScaleThatDividesNothingIsRefused) {
  for (const float scale : {0.0f, -0.0f, INFINITY, NAN}) {
    Checkpoint checkpoint = RightOnes()["nvfp4"];
    checkpoint.tensors["a.weight_global_scale"].bytes = Bytes<float>({scale});
    EXPECT_THAT(ErrorOf(checkpoint), HasSubstr("a.weight_global_scale"));
  }
}

TEST(AssembleTest, TwoWeightsOfAModuleAreRefused) {
  for (const auto& [what, checkpoint] : RightOnes()) {
    if (what == "mxfp4" || checkpoint.tensors.contains("a.weight")) continue;
    Checkpoint two = checkpoint;
    two.tensors["a.weight"] = {"BF16", {24, 32}};
    EXPECT_THAT(ErrorOf(two), HasSubstr("and so is a.weight")) << what;
  }
  Checkpoint scales = RightOnes()["fp8 blocks"];
  scales.tensors["a.weight_scale"] = scales.tensors["a.weight_scale_inv"];
  EXPECT_THAT(ErrorOf(scales), HasSubstr("and so is weight_scale"));
}

TEST(AssembleTest, GateAndUpNeedARowEach) {
  Checkpoint checkpoint{{{"quant_method", "mxfp4"}},
                        {{"x.experts.gate_up_proj_blocks", {"U8", {2, 6, 3, 16}}},
                         {"x.experts.gate_up_proj_scales", {"U8", {2, 6, 3}}}}};
  EXPECT_TRUE(RunAndDecode(checkpoint).ok());
  checkpoint.tensors["x.experts.gate_up_proj_blocks"].shape[1] = 5;
  checkpoint.tensors["x.experts.gate_up_proj_scales"].shape[1] = 5;
  EXPECT_THAT(ErrorOf(checkpoint), HasSubstr("x.experts.gate_up_proj_blocks has an odd number"));
}

TEST(AssembleTest, ExpertsBeyondReasonAreRefused) {
  const auto experts = [](int64_t count) {
    return Checkpoint{{{"quant_method", "mxfp4"}},
                      {{"x.experts.down_proj_blocks", {"U8", {count, 1, 1, 16}}},
                       {"x.experts.down_proj_scales", {"U8", {count, 1, 1}}}}};
  };
  EXPECT_EQ(ErrorOf(experts(4096)), "");
  EXPECT_THAT(ErrorOf(experts(4097)),
              HasSubstr("x.experts.down_proj_blocks has 4097 experts, the limit is 4096"));
}

TEST(AssembleTest, OtherTensorsAreLeft) {
  Checkpoint checkpoint = RightOnes()["fp8 rows"];
  checkpoint.tensors["norm.weight"] = {"BF16", {24}};
  checkpoint.tensors["b.weight"] = {"BF16", {24, 24}};
  checkpoint.tensors["a.input_scale"] = {"F32", {}};
  checkpoint.tensors["self_attn.k_scale"] = {"F32", {1}};
  std::deque<std::string> memory;
  const auto assembly = AssembleAll(checkpoint, memory);
  ASSERT_TRUE(assembly.ok()) << assembly.status();
  EXPECT_THAT(assembly->read, UnorderedElementsAre("a.weight", "a.weight_scale"));
  EXPECT_THAT(assembly->unused, UnorderedElementsAre("a.input_scale", "self_attn.k_scale"));
}

TEST(AssembleTest, ModulesThatAreLeftAsTheyAreAreNotQuantised) {
  Checkpoint checkpoint = RightOnes()["awq"];
  checkpoint.config["modules_to_not_convert"] = {"a"};
  EXPECT_THAT(ErrorOf(checkpoint), HasSubstr("a.qweight is quantised, and config.json"));
}

}  // namespace
}  // namespace continuo::quantised
