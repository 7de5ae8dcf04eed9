// SPDX-License-Identifier: Apache-2.0
// Checkpoints that the formats' own tools have written give the values that these tools compute, to
// the bit. goldens/ is made by quantised_goldens.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <string>
#include <vector>

#include "services/worker/model/checkpoint/safetensors.h"
#include "services/worker/model/checkpoint/stored_types.h"

namespace continuo::model {
namespace {

namespace fs = std::filesystem;
constexpr char kGoldens[] = "tests/worker/quantised/goldens";
constexpr std::string_view kExpected = "expected.";

std::vector<uint32_t> BitsOf(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

std::vector<float> Stored(const StoredTensor& tensor) {
  const int64_t n = tensor.shape[0] * tensor.shape[1];
  std::vector<float> values(static_cast<size_t>(n));
  FindStoredType(tensor.dtype)
      ->convert(values.data(), kernels::DType::kF32, tensor.bytes.data(), 0, n);
  return values;
}

class GoldensTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldensTest, ValuesAreThoseOfTheTool) {
  const auto checkpoint = Checkpoint::Open((fs::path(kGoldens) / GetParam()).string());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  size_t num_matrices = 0;
  for (const auto& [name, expected] : checkpoint->tensors()) {
    if (!std::string_view(name).starts_with(kExpected)) {
      EXPECT_NE(expected.quantised, nullptr) << name << " is read by nobody";
      continue;
    }
    ++num_matrices;
    const StoredTensor* const tensor = checkpoint->Find(name.substr(kExpected.size()) + ".weight");
    ASSERT_NE(tensor, nullptr) << name;
    ASSERT_NE(tensor->quantised, nullptr) << name;
    EXPECT_EQ(tensor->shape, expected.shape) << name;
    const std::string type = tensor->quantised->value_type == kernels::DType::kF32    ? "F32"
                             : tensor->quantised->value_type == kernels::DType::kBF16 ? "BF16"
                                                                                      : "F16";
    EXPECT_EQ(type, expected.dtype) << name;
    const int64_t rows = tensor->shape[0], columns = tensor->shape[1];
    std::vector<float> whole(static_cast<size_t>(rows * columns)), all_at_once(whole);
    ConvertQuantised(all_at_once.data(), kernels::DType::kF32, *tensor->quantised, 0, rows, 0,
                     columns);
    // Parts of rows, as ranks take them.
    const int64_t cut = columns / 3;
    for (int64_t r = 0; r < rows; ++r) {
      float* const out = whole.data() + r * columns;
      ConvertQuantised(out, kernels::DType::kF32, *tensor->quantised, r, 1, 0, cut);
      ConvertQuantised(out + cut, kernels::DType::kF32, *tensor->quantised, r, 1, cut,
                       columns - cut);
    }
    EXPECT_EQ(BitsOf(whole), BitsOf(Stored(expected))) << name << " " << tensor->dtype;
    EXPECT_EQ(BitsOf(all_at_once), BitsOf(whole)) << name;
  }
  EXPECT_GT(num_matrices, 0u);
}

std::vector<std::string> Cases() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kGoldens)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(GoldensTest, EveryFormatIsThere) {
  const std::vector<std::string> cases = Cases();
  for (const char* const format : {"awq", "ct_float_channel", "ct_int", "ct_int4_group", "ct_mxfp4",
                                   "ct_nvfp4", "fp8_block", "gptq", "gptq_v2", "mxfp4"}) {
    EXPECT_TRUE(std::binary_search(cases.begin(), cases.end(), std::string(format))) << format;
  }
}

TEST(GoldensTest, ScalesOfActivationsAreToldAndNotUsed) {
  const auto checkpoint = Checkpoint::Open((fs::path(kGoldens) / "fp8_tensor").string());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  ASSERT_EQ(checkpoint->warnings().size(), 2u);
  EXPECT_NE(checkpoint->warnings()[0].find("activations"), std::string::npos);
  EXPECT_NE(checkpoint->warnings()[1].find("activation_scale"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldensTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace continuo::model
