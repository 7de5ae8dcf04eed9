// SPDX-License-Identifier: Apache-2.0
// Files of adapters against the model: which are taken, and what errors say.
#include "services/worker/model/adapter/adapter_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/worker/model/adapter/adapter.h"
#include "services/worker/model/description/config.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/tiny_adapter.h"
#include "tests/testing/tiny_model.h"

namespace continuo::model {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;
using testing::TinyAdapterOptions;
using testing::TinyModel;
using testing::WriteTinyAdapter;

absl::Status Load(const std::string& model_dir, const std::string& dir) {
  const auto config = ReadModelConfig(model_dir);
  if (!config.ok()) return config.status();
  const auto files = AdapterFiles::Open(dir);
  if (!files.ok()) return files.status();
  const std::vector<Shard> shards = {MakeShard(*config, 0, 1)};
  return Adapter::Make(files->modules(), *config, shards).status();
}

// Rewrites the header of an adapter's safetensors file.
void ChangeHeader(const std::filesystem::path& dir,
                  const std::function<void(nlohmann::ordered_json&)>& change) {
  std::string bytes;
  {
    std::ifstream in(dir / "adapter_model.safetensors", std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  nlohmann::ordered_json header = nlohmann::ordered_json::parse(bytes.substr(8, length));
  change(header);
  std::ofstream(dir / "adapter_model.safetensors", std::ios::binary)
      << testing::SafetensorsBytes(header, std::string_view(bytes).substr(8 + length));
}

constexpr char kRoot[] = "base_model.model.model.layers.0.";

// Renames a tensor of the header.
void Rename(nlohmann::ordered_json& header, const std::string& from, const std::string& to) {
  const nlohmann::ordered_json value = header.at(from);
  header.erase(from);
  header[to] = value;
}

TEST(AdapterFilesTest, FilesOfPeftAreTaken) {
  for (const char* family : {"llama", "phi3", "qwen3", "gemma2"}) {
    const TinyModel model({.family = family});
    for (const char* dtype : {"F32", "F16", "BF16"}) {
      const TempFolder folder;
      WriteTinyAdapter(model.dir(), folder.path(), {.rank = 5, .dtype = dtype});
      EXPECT_TRUE(Load(model.dir(), folder.path().string()).ok())
          << family << ": " << Load(model.dir(), folder.path().string());
    }
  }
}

TEST(AdapterFilesTest, NamesOfOtherClassesMeanTheSame) {
  const TinyModel model;
  const TempFolder folder;
  WriteTinyAdapter(model.dir(), folder.path(), {.targets = {"q_proj"}});
  ChangeHeader(folder.path(), [](nlohmann::ordered_json& header) {
    nlohmann::ordered_json renamed;
    for (const auto& [name, value] : header.items()) {
      const std::string tail = name.substr(std::string("base_model.model.model.").size());
      renamed["base_model.model.model.language_model." + tail] = value;
    }
    header = renamed;
  });
  EXPECT_TRUE(Load(model.dir(), folder.path().string()).ok());
}

TEST(AdapterFilesTest, MissingFilesAreNamed) {
  const TinyModel model;
  const TempFolder folder;
  EXPECT_THAT(std::string(Load(model.dir(), folder.path().string()).message()),
              HasSubstr("adapter_config.json"));
  WriteTinyAdapter(model.dir(), folder.path());
  std::filesystem::rename(folder.path() / "adapter_model.safetensors",
                          folder.path() / "adapter_model.bin");
  const absl::Status status = Load(model.dir(), folder.path().string());
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("PyTorch pickle"));
}

TEST(AdapterFilesTest, TensorsThatAreNoneOfThisModelAreRefusedByName) {
  const TinyModel model;
  const std::string q = std::string(kRoot) + "self_attn.q_proj";
  const struct {
    std::string to, part;
    absl::StatusCode code;
  } cases[] = {
      {q + ".lora_magnitude_vector", "DoRA", absl::StatusCode::kUnimplemented},
      {q + ".lora_B.bias", "biases", absl::StatusCode::kUnimplemented},
      {"base_model.model.model.embed_tokens.lora_embedding_A", "embeddings",
       absl::StatusCode::kUnimplemented},
      {"base_model.model.lm_head.weight", "head", absl::StatusCode::kUnimplemented},
      {"model.layers.0.self_attn.q_proj.lora_A.weight", "none of a LoRA matrix",
       absl::StatusCode::kUnimplemented},
      {"base_model.model.lora_A.weight", "none of a LoRA matrix", absl::StatusCode::kUnimplemented},
      {"base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight", "has no lora_A",
       absl::StatusCode::kInvalidArgument},
      {"", "", absl::StatusCode::kOk}};
  for (const auto& [to, part, code] : cases) {
    const TempFolder folder;
    WriteTinyAdapter(model.dir(), folder.path(), {.targets = {"q_proj"}});
    ChangeHeader(folder.path(), [&, name = to](nlohmann::ordered_json& header) {
      if (!name.empty()) Rename(header, q + ".lora_A.weight", name);
    });
    const absl::Status status = Load(model.dir(), folder.path().string());
    EXPECT_EQ(status.code(), code) << to << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

TEST(AdapterFilesTest, ModulesThatTheModelDoesNotHaveAreRefusedByName) {
  const TinyModel model;
  for (const std::string& to :
       {std::string("base_model.model.model.layers.99.self_attn.q_proj"),
        std::string("base_model.model.model.layers.0.self_attn.extra.q_proj"),
        std::string("base_model.model.model.visual.blocks.0.q_proj")}) {
    const TempFolder folder;
    WriteTinyAdapter(model.dir(), folder.path(), {.targets = {"q_proj"}});
    ChangeHeader(folder.path(), [&](nlohmann::ordered_json& header) {
      for (const char* end : {".lora_A.weight", ".lora_B.weight"}) {
        Rename(header, std::string(kRoot) + "self_attn.q_proj" + end, to + end);
      }
    });
    const absl::Status status = Load(model.dir(), folder.path().string());
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << to << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("q_proj"));
  }
}

TEST(AdapterFilesTest, ExpertsStatesAndLatentHeadsAreRefused) {
  const struct {
    const char *family, *target;
  } cases[] = {{"mixtral", "w1"},
               {"qwen3_moe", "mlp.gate"},
               {"qwen3_5_text", "linear_attn.out_proj"},
               {"deepseek_v3", "o_proj"}};
  for (const auto& [family, target] : cases) {
    const TinyModel model({.family = family});
    const TempFolder folder;
    WriteTinyAdapter(model.dir(), folder.path(), {.targets = {target}});
    const absl::Status status = Load(model.dir(), folder.path().string());
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << family << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("adapters do not change here")) << family;
  }
}

TEST(AdapterFilesTest, ShapesAndTypesAreChecked) {
  const TinyModel model;
  const std::string a = std::string(kRoot) + "self_attn.q_proj.lora_A.weight";
  const std::string b = std::string(kRoot) + "self_attn.q_proj.lora_B.weight";
  const std::vector<std::function<void(nlohmann::ordered_json&)>> changes = {
      [&](auto& header) {
        header[a]["shape"] = {48, 8};
      },  // turned
      [&](auto& header) {
        header[a]["shape"] = {4, 96};
      },  // another rank
      [&](auto& header) {
        header[b]["shape"] = {24, 16};
      },                                                     // likewise
      [&](auto& header) { header[b]["shape"] = {8 * 48}; },  // a vector
      [&](auto& header) { header[a]["dtype"] = "I32"; },     // integers
      [&](auto& header) {
        header[a]["data_offsets"] = {0, 1 << 30};
      },
      [&](auto& header) {
        header[a]["shape"] = {int64_t{1} << 62, int64_t{1} << 62};
      }};
  for (size_t i = 0; i < changes.size(); ++i) {
    const TempFolder folder;
    WriteTinyAdapter(model.dir(), folder.path(), {.rank = 8, .targets = {"q_proj"}});
    ChangeHeader(folder.path(), changes[i]);
    const absl::Status status = Load(model.dir(), folder.path().string());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << i << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("q_proj")) << i;
  }
  // Of another model.
  const TinyModel wide({.hidden_size = 64});
  const TempFolder folder;
  WriteTinyAdapter(wide.dir(), folder.path());
  EXPECT_THAT(std::string(Load(model.dir(), folder.path().string()).message()),
              HasSubstr("the model needs ["));
}

TEST(AdapterFilesTest, TheDigestIsOfAllThatMatters) {
  const TinyModel model;
  const auto digest = [&](const TinyAdapterOptions& options) {
    const TempFolder folder;
    WriteTinyAdapter(model.dir(), folder.path(), options);
    const auto config = ReadModelConfig(model.dir());
    const auto files = AdapterFiles::Open(folder.path().string());
    const std::vector<Shard> shards = {MakeShard(*config, 0, 2), MakeShard(*config, 1, 2)};
    return ToHex((*Adapter::Make(files->modules(), *config, shards))->digest());
  };
  const std::string own = digest({});
  EXPECT_EQ(digest({.more = {{"lora_dropout", 0.5}}}), own);
  EXPECT_NE(digest({.alpha = 8}), own);
  EXPECT_NE(digest({.seed = 2}), own);
  EXPECT_NE(digest({.targets = {"q_proj"}}), own);
  EXPECT_NE(digest({.more = {{"alpha_pattern", {{"q_proj", 1}}}}}), own);
}

TEST(AdapterFilesTest, TheNumberOfModulesHasALimit) {
  const auto config = AdapterConfig::Parse(
      R"({"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": "all-linear"})");
  ASSERT_TRUE(config.ok()) << config.status();
  std::vector<StoredTensor> tensors;
  const auto add = [&](size_t i) {
    for (const char* matrix : {"A", "B"}) {
      StoredTensor& tensor = tensors.emplace_back();
      tensor.name = absl::StrCat("base_model.model.m", i, ".lora_", matrix, ".weight");
      tensor.dtype = "F32";
      tensor.shape = {1, 1};
    }
  };
  for (size_t i = 0; i < kMaxAdapterModules; ++i) add(i);
  EXPECT_TRUE(PairTensors(*config, tensors).ok());
  add(kMaxAdapterModules);
  EXPECT_THAT(std::string(PairTensors(*config, tensors).status().message()),
              HasSubstr("has 4097 modules"));
}

}  // namespace
}  // namespace continuo::model
