// SPDX-License-Identifier: Apache-2.0
// A model from a quantised checkpoint has the same logits, to the bit, as from the folder with the
// values that its codes mean: every format, every way to keep weights, one rank and two.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "services/worker/model/checkpoint/fingerprint.h"
#include "services/worker/model/checkpoint/safetensors.h"
#include "services/worker/model/checkpoint/stored_types.h"
#include "services/worker/model/checkpoint/weights.h"
#include "tests/worker/model/model_harness.h"
#include "tests/worker/model/quantised_model.h"
#include "tests/worker/model/run/plan_builder.h"

namespace continuo::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<uint32_t> LogitsOf(const std::string& dir, const HarnessOptions& options) {
  const auto harness = ModelHarness::Make(dir, options);
  EXPECT_TRUE(harness.ok()) << harness.status();
  if (!harness.ok()) return {};
  const std::vector<int32_t> tokens = {1, 250, 3, 77, 140, 9, 9, 201};
  PlanBuilder builder(options.block_size, 256 / options.block_size);
  builder.Add(0, 0, tokens, AllOf(tokens));
  std::vector<uint32_t> bits;
  for (const float logit : (*harness)->Run(builder.plan())) {
    EXPECT_TRUE(std::isfinite(logit));
    bits.push_back(std::bit_cast<uint32_t>(logit));
  }
  return bits;
}

void ExpectSameLogits(const std::string& family, const std::string& format,
                      const HarnessOptions& options) {
  const QuantisedModel files({.format = format, .family = family});
  const auto expected = LogitsOf(files.values_dir(), options);
  EXPECT_FALSE(expected.empty());
  EXPECT_EQ(LogitsOf(files.dir(), options), expected) << family << " " << format;
}

TEST(QuantisedModelTest, EveryFormatHasTheLogitsOfItsValues) {
  for (const std::string& format : QuantisedFormats()) {
    for (const int ranks : {1, 2}) {
      ExpectSameLogits("llama", format, {.isa = "scalar", .tensor_parallel = ranks, .threads = 2});
    }
  }
}

TEST(QuantisedModelTest, HoweverWeightsAreKept) {
  using kernels::WeightType;
  for (const std::string& format : QuantisedFormats()) {
    for (const WeightType type : {WeightType::kBF16, WeightType::kInt8, WeightType::kInt4}) {
      HarnessOptions options = {.tensor_parallel = 2, .weights = type};
      if (type == WeightType::kBF16) options.dtype = kernels::DType::kBF16;
      ExpectSameLogits("llama", format, options);
    }
  }
}

// The integers of the file are computed with; activations are rounded beside them.
TEST(QuantisedModelTest, StoredIntegersAreNearTheirValues) {
  for (const std::string& format : QuantisedFormats()) {
    for (const std::string family : {"llama", "mixtral"}) {
      const QuantisedModel files({.format = format, .family = family, .intermediate_size = 128});
      const auto config = model::ReadModelConfig(files.dir());
      const auto checkpoint = model::Checkpoint::Open(files.dir());
      ASSERT_TRUE(config.ok() && checkpoint.ok()) << config.status() << checkpoint.status();
      const absl::Status status = model::CheckStored(*config, *checkpoint);
      if (!KeepsIntegers(format)) {
        EXPECT_THAT(std::string(status.message()),
                    ::testing::HasSubstr("whose elements are not kept as integers in groups"));
        continue;
      }
      ASSERT_TRUE(status.ok()) << format << ": " << status;
      const auto stored = [&](const char* isa, int ranks) {
        return LogitsOf(
            files.dir(),
            {.isa = isa, .tensor_parallel = ranks, .weights = kernels::WeightType::kStored});
      };
      const std::vector<uint32_t> bits = stored("scalar", 1);
      EXPECT_EQ(stored("scalar", 2), bits) << family << " " << format;
      EXPECT_EQ(stored("scalar", 8), bits) << family << " " << format;
      const std::vector<uint32_t> values = LogitsOf(files.values_dir(), {.isa = "scalar"});
      ASSERT_EQ(bits.size(), values.size());
      double off = 0, size = 0;
      for (size_t i = 0; i < bits.size(); ++i) {
        const double value = std::bit_cast<float>(values[i]);
        off += std::pow(std::bit_cast<float>(bits[i]) - value, 2);
        size += value * value;
      }
      EXPECT_NE(bits, values);
      EXPECT_LT(std::sqrt(off / size), 0.02) << family << " " << format;
    }
  }
}

TEST(QuantisedModelTest, GroupsThatAKSplitCutsShortAreRefused) {
  for (const std::string& format : QuantisedFormats()) {
    if (!KeepsIntegers(format)) continue;
    const QuantisedModel files({.format = format});
    const auto config = model::ReadModelConfig(files.dir());
    const auto checkpoint = model::Checkpoint::Open(files.dir());
    ASSERT_TRUE(config.ok() && checkpoint.ok()) << config.status() << checkpoint.status();
    EXPECT_THAT(std::string(model::CheckStored(*config, *checkpoint).message()),
                ::testing::HasSubstr("K splits of the model cut to 1"))
        << format;
  }
}

TEST(QuantisedModelTest, ExpertsThatAreStoredInDifferentWaysAreRefused) {
  const std::string odd = "model.layers.1.block_sparse_moe.experts.2.w3.weight";
  for (const std::string& format : QuantisedFormats()) {
    if (format != "awq") continue;
    const QuantisedModel files(
        {.format = format, .family = "mixtral", .intermediate_size = 128, .plain = odd});
    const auto config = model::ReadModelConfig(files.dir());
    const auto checkpoint = model::Checkpoint::Open(files.dir());
    ASSERT_TRUE(config.ok() && checkpoint.ok()) << config.status() << checkpoint.status();
    EXPECT_EQ(model::CheckStored(*config, *checkpoint),
              absl::InvalidArgumentError(
                  "weights is stored, and tensor " + odd +
                  " is F32, which is kept as fp32 and not as "
                  "model.layers.1.block_sparse_moe.experts.0.w3.weight is, as int4 in groups of 8 "
                  "with minima; auto computes with its values"));
  }
}

// Joined matrices, experts and biases.
TEST(QuantisedModelTest, InEveryFamily) {
  for (const char* const family : {"phi3", "mixtral", "qwen2"}) {
    for (const std::string& format : QuantisedFormats()) {
      ExpectSameLogits(family, format, {.tensor_parallel = 2});
    }
  }
}

TEST(QuantisedModelTest, EveryPartIsInTheDigest) {
  for (const std::string& format : QuantisedFormats()) {
    const QuantisedModel files({.format = format});
    const auto digest = [&] {
      const auto config = model::ReadModelConfig(files.dir());
      const auto checkpoint = model::Checkpoint::Open(files.dir());
      EXPECT_TRUE(config.ok() && checkpoint.ok()) << config.status() << checkpoint.status();
      EXPECT_TRUE(model::CheckWeights(*config, *checkpoint).ok());
      return model::ToHex(model::WeightsDigest(model::DigestWeights(*config, *checkpoint, 1)));
    };
    const std::string before = digest();
    EXPECT_EQ(digest(), before);
    const fs::path file = fs::path(files.dir()) / "model.safetensors";
    std::stringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    const std::string bytes = text.str();
    uint64_t size;
    std::memcpy(&size, bytes.data(), 8);
    const json header = json::parse(bytes.substr(8, size));
    for (auto it = header.begin(); it != header.end(); ++it) {
      // A change of a shape or of the order of columns may be refused.
      if (!it.key().starts_with("model.layers.1.mlp") || it.key().ends_with("shape") ||
          it.key().ends_with("g_idx")) {
        continue;
      }
      std::string changed = bytes;
      changed[8 + size + it.value()["data_offsets"][0].get<size_t>()] ^= 1;
      std::ofstream(file, std::ios::binary) << changed;
      EXPECT_NE(digest(), before) << format << " " << it.key();
    }
    // The same tensors under another rule are another model.
    std::ofstream(file, std::ios::binary) << bytes;
    if (format != "gptq") continue;
    json config = json::parse(std::ifstream(fs::path(files.dir()) / "config.json"));
    config["quantization_config"]["checkpoint_format"] = "gptq_v2";
    std::ofstream(fs::path(files.dir()) / "config.json") << config;
    EXPECT_NE(digest(), before);
  }
}

}  // namespace
}  // namespace continuo::testing
