// SPDX-License-Identifier: Apache-2.0
// A gpt-oss model has the same logits, to the bit, from experts one by one, from stacked tensors as
// transformers writes them, and from MXFP4 blocks as it is published.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/base/check.h"
#include "services/worker/model/checkpoint/safetensors.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/tiny_model.h"
#include "tests/worker/model/model_harness.h"
#include "tests/worker/model/own_tensors.h"
#include "tests/worker/model/run/plan_builder.h"

namespace continuo::testing {
namespace {

using nlohmann::json;

constexpr int64_t kHidden = 64, kInner = 32, kExperts = 7, kLayers = 2;

OwnTensor Floats(std::vector<int64_t> shape, const std::vector<float>& values) {
  return {"F32", std::move(shape), BytesOf(values)};
}

std::vector<float> ValuesOf(const OwnTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

std::vector<uint32_t> LogitsOf(const std::string& dir, int ranks) {
  const auto harness = ModelHarness::Make(dir, {.tensor_parallel = ranks});
  EXPECT_TRUE(harness.ok()) << harness.status();
  if (!harness.ok()) return {};
  const std::vector<int32_t> tokens = {1, 250, 3, 77, 140, 9, 9, 201};
  PlanBuilder builder(16, 16);
  builder.Add(0, 0, tokens, AllOf(tokens));
  std::vector<uint32_t> bits;
  for (const float logit : (*harness)->Run(builder.plan())) {
    EXPECT_TRUE(std::isfinite(logit));
    bits.push_back(std::bit_cast<uint32_t>(logit));
  }
  return bits;
}

// The files of a tiny model, its experts one by one.
class GptOssFiles {
 public:
  GptOssFiles()
      : tiny_({.family = "gpt_oss", .hidden_size = kHidden, .intermediate_size = kInner}),
        config_(json::parse(tiny_.Read("config.json"))) {
    const auto checkpoint = model::Checkpoint::Open(tiny_.dir());
    CONTINUO_CHECK(checkpoint.ok());
    for (const auto& [name, t] : checkpoint->tensors()) {
      tensors_[name] = {
          t.dtype, t.shape, {reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size()}};
    }
  }

  const json& config() const { return config_; }
  OwnTensors& tensors() { return tensors_; }
  static std::string Prefix(int64_t layer) {
    return absl::StrCat("model.layers.", layer, ".mlp.experts.");
  }
  OwnTensor& Of(int64_t layer, int64_t expert, const char* name) {
    return tensors_.at(absl::StrCat(Prefix(layer), expert, ".", name));
  }
  // The tensors but those of experts that end so.
  OwnTensors Without(const std::string& ending) const {
    OwnTensors rest = tensors_;
    std::erase_if(rest, [&](const auto& entry) {
      return entry.first.find(".experts.") != std::string::npos && entry.first.ends_with(ending);
    });
    return rest;
  }
  // Adds the biases of all experts as two tensors.
  void AddBiases(OwnTensors& out) {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      std::vector<float> both, down;
      for (int64_t e = 0; e < kExperts; ++e) {
        const auto gate = ValuesOf(Of(layer, e, "gate_proj.bias"));
        const auto up = ValuesOf(Of(layer, e, "up_proj.bias"));
        for (size_t i = 0; i < gate.size(); ++i) {
          both.push_back(gate[i]);
          both.push_back(up[i]);
        }
        for (const float value : ValuesOf(Of(layer, e, "down_proj.bias"))) down.push_back(value);
      }
      out[Prefix(layer) + "gate_up_proj_bias"] = Floats({kExperts, 2 * kInner}, both);
      out[Prefix(layer) + "down_proj_bias"] = Floats({kExperts, kHidden}, down);
    }
  }

 private:
  TinyModel tiny_;
  json config_;
  OwnTensors tensors_;
};

void ExpectSameLogits(const json& config, const OwnTensors& one, const json& other_config,
                      const OwnTensors& other) {
  const TempFolder first, second;
  WriteModelFolder(first.path(), config, one);
  WriteModelFolder(second.path(), other_config, other);
  for (const int ranks : {1, 2, 4}) {
    const auto expected = LogitsOf(first.path().string(), ranks);
    ASSERT_FALSE(expected.empty());
    EXPECT_EQ(LogitsOf(second.path().string(), ranks), expected) << ranks;
  }
}

TEST(GptOssFilesTest, StackedTensorsAreTheSameModel) {
  GptOssFiles files;
  OwnTensors stacked = files.Without("");
  files.AddBiases(stacked);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    std::vector<float> both(kExperts * kHidden * 2 * kInner), down(kExperts * kInner * kHidden);
    for (int64_t e = 0; e < kExperts; ++e) {
      const auto gate = ValuesOf(files.Of(layer, e, "gate_proj.weight"));
      const auto up = ValuesOf(files.Of(layer, e, "up_proj.weight"));
      const auto own = ValuesOf(files.Of(layer, e, "down_proj.weight"));
      for (int64_t i = 0; i < kInner; ++i) {
        for (int64_t h = 0; h < kHidden; ++h) {
          float* const pair = &both[static_cast<size_t>(((e * kHidden + h) * kInner + i) * 2)];
          pair[0] = gate[static_cast<size_t>(i * kHidden + h)];
          pair[1] = up[static_cast<size_t>(i * kHidden + h)];
          down[static_cast<size_t>((e * kInner + i) * kHidden + h)] =
              own[static_cast<size_t>(h * kInner + i)];
        }
      }
    }
    const std::string prefix = GptOssFiles::Prefix(layer);
    stacked[prefix + "gate_up_proj"] = Floats({kExperts, kHidden, 2 * kInner}, both);
    stacked[prefix + "down_proj"] = Floats({kExperts, kInner, kHidden}, down);
  }
  ExpectSameLogits(files.config(), files.tensors(), files.config(), stacked);
}

TEST(GptOssFilesTest, Mxfp4BlocksAreTheModelOfTheirValues) {
  constexpr float kFp4[16] = {0.0f,  0.5f,  1,  1.5f,  2,  3,  4,  6,
                              -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  GptOssFiles files;
  OwnTensors packed = files.Without("");
  files.AddBiases(packed);
  std::mt19937 random(3);
  // Draws [experts, rows, columns / 32] blocks; take(expert, row, column, value) gets what they
  // mean.
  const auto draw = [&](const std::string& name, int64_t rows, int64_t columns, auto take) {
    std::string blocks, scales;
    for (int64_t e = 0; e < kExperts; ++e) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; c += 32) {
          const int exponent = 118 + static_cast<int>(random() % 6);
          scales += static_cast<char>(exponent);
          for (int64_t i = 0; i < 32; i += 2) {
            const uint32_t byte = random() & 255;
            blocks += static_cast<char>(byte);
            take(e, r, c + i, std::ldexp(kFp4[byte & 15], exponent - 127));
            take(e, r, c + i + 1, std::ldexp(kFp4[byte >> 4], exponent - 127));
          }
        }
      }
    }
    packed[name + "_blocks"] = {"U8", {kExperts, rows, columns / 32, 16}, blocks};
    packed[name + "_scales"] = {"U8", {kExperts, rows, columns / 32}, scales};
  };
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string prefix = GptOssFiles::Prefix(layer);
    const auto set = [](OwnTensor& tensor, int64_t at, float value) {
      std::memcpy(tensor.bytes.data() + at * static_cast<int64_t>(sizeof(float)), &value,
                  sizeof(value));
    };
    draw(prefix + "gate_up_proj", 2 * kInner, kHidden,
         [&](int64_t e, int64_t r, int64_t c, float value) {
           set(files.Of(layer, e, r % 2 == 0 ? "gate_proj.weight" : "up_proj.weight"),
               r / 2 * kHidden + c, value);
         });
    draw(prefix + "down_proj", kHidden, kInner, [&](int64_t e, int64_t r, int64_t c, float value) {
      set(files.Of(layer, e, "down_proj.weight"), r * kInner + c, value);
    });
  }
  json config = files.config();
  config["quantization_config"] = {{"quant_method", "mxfp4"}};
  ExpectSameLogits(files.config(), files.tensors(), config, packed);
}

}  // namespace
}  // namespace continuo::testing
