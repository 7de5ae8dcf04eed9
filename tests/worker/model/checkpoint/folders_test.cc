// SPDX-License-Identifier: Apache-2.0
// Folders as they come from other tools and broken downloads: what is plain loads, the rest is
// refused with its cause.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "services/worker/model/checkpoint/fingerprint.h"
#include "services/worker/model/checkpoint/safetensors.h"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/model/description/config.h"
#include "tests/testing/tiny_model.h"
#include "tests/worker/model/own_tensors.h"

namespace continuo::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using std::string_literals::operator""s;
using testing::OwnTensor;
using testing::OwnTensors;
using testing::SafetensorsOf;
using testing::TinyModel;

OwnTensors ReadTensors(const TinyModel& model, const std::string& file = "model.safetensors") {
  const std::string text = model.Read(file);
  OwnTensors tensors;
  const auto parsed =
      ParseSafetensors(file, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  for (const StoredTensor& tensor : *parsed) {
    tensors[tensor.name] = {
        tensor.dtype, tensor.shape,
        std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size())};
  }
  return tensors;
}

OwnTensor Floats(std::vector<int64_t> shape, float value = 0) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  std::string bytes;
  for (int64_t i = 0; i < n; ++i) bytes.append(reinterpret_cast<const char*>(&value), 4);
  return {"F32", std::move(shape), bytes};
}

absl::StatusOr<Digest128> Load(const std::string& dir) {
  const auto config = ReadModelConfig(dir);
  if (!config.ok()) return config.status();
  const auto checkpoint = Checkpoint::Open(dir);
  if (!checkpoint.ok()) return checkpoint.status();
  const absl::Status checked = CheckWeights(*config, *checkpoint);
  if (!checked.ok()) return checked;
  return WeightsDigest(DigestWeights(*config, *checkpoint, 1));
}

std::string Error(const std::string& dir) {
  const auto loaded = Load(dir);
  EXPECT_FALSE(loaded.ok());
  return std::string(loaded.status().message());
}

TEST(FoldersTest, NamesThatPlainlyMeanTheSameLoadAsTheSameModel) {
  const std::string model = "model.";
  for (const char* family : {"llama", "qwen3", "gemma2", "mixtral", "phi3"}) {
    for (const bool tied : {true, false}) {
      const TinyModel tiny({.family = family, .tied_embeddings = tied});
      const auto usual = Load(tiny.dir());
      ASSERT_TRUE(usual.ok()) << usual.status();
      const OwnTensors tensors = ReadTensors(tiny);
      struct Prefixes {
        std::string body, head;
      };
      for (const Prefixes& prefixes :
           {Prefixes{"", ""}, Prefixes{"model.model.", "model."},
            Prefixes{"module.model.", "module."}, Prefixes{"_orig_mod.model.", "_orig_mod."},
            Prefixes{"base_model.model.model.", "base_model.model."},
            Prefixes{"model.model.", ""}}) {
        OwnTensors renamed;
        for (const auto& [name, tensor] : tensors) {
          renamed[name.starts_with(model) ? prefixes.body + name.substr(model.size())
                                          : prefixes.head + name] = tensor;
        }
        tiny.Write("model.safetensors", SafetensorsOf(renamed));
        const auto loaded = Load(tiny.dir());
        ASSERT_TRUE(loaded.ok()) << family << prefixes.body << loaded.status();
        EXPECT_EQ(*loaded, *usual);
      }
    }
  }
}

TEST(FoldersTest, TensorsWithoutEffectAreNotMissed) {
  const TinyModel tiny;
  const auto usual = Load(tiny.dir());
  OwnTensors tensors = ReadTensors(tiny);
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = Floats({4});
  tensors["model.rotary_emb.inv_freq"] = Floats({4});
  tensors["model.layers.1.self_attn.rotary_emb.cos_cached"] = Floats({1, 1, 8});
  tensors["model.layers.1.self_attn.rotary_emb.sin_cached"] = Floats({1, 1, 8});
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];  // tied, as config.json says
  tensors["model.layers.1.self_attn.q_proj.bias"] = Floats({48});    // zeros
  tiny.Write("model.safetensors", SafetensorsOf(tensors));
  const auto loaded = Load(tiny.dir());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(*loaded, *usual);
}

TEST(FoldersTest, TensorsThatTheModelWouldNotReadAreRefusedByName) {
  struct Case {
    std::string name, why;
  };
  for (const Case& one :
       std::vector<Case>{{"model.layers.0.self_attn.q_proj.bias", "no such bias"},
                         {"model.layers.1.mlp.down_proj.bias", "no such bias"},
                         {"model.layers.2.mlp.up_proj.weight", "num_hidden_layers is 2"},
                         {"model.layers.17.input_layernorm.weight", "num_hidden_layers is 2"},
                         {"model.layers.0.self_attn.q_norm.weight", ""},
                         {"model.layers.0.mlp.experts.0.w1.weight", "experts"},
                         {"model.layers.0.self_attn.q_proj.qweight", "quantised"},
                         {"model.layers.0.self_attn.q_proj.weight_scale", "quantised"},
                         {"model.layers.0.self_attn.q_proj.weight_scale_inv", "quantised"},
                         {"model.layers.0.self_attn.q_proj.weight.absmax", "quantised"},
                         {"model.layers.0.self_attn.q_proj.lora_A.weight", "LoRA"},
                         {"model.vision_tower.patch.weight", "images"},
                         {"visual.blocks.0.weight", "images"},
                         {"score.weight", "head"},
                         {"v_head.summary.weight", "head"},
                         {"model.embed_positions.weight", ""},
                         {"embed_tokens.weight", ""},
                         {"wte.weight", ""},
                         {"model.layers.x.weight", ""},
                         {"model.layers.", ""},
                         {"lm_head.bias", "no such bias"},
                         {"", ""}}) {
    const TinyModel tiny;
    OwnTensors tensors = ReadTensors(tiny);
    tensors[one.name] = Floats({2}, 1);
    tiny.Write("model.safetensors", SafetensorsOf(tensors));
    EXPECT_THAT(
        Error(tiny.dir()),
        AllOf(HasSubstr("would not read the tensor \"" + one.name + "\""), HasSubstr(one.why)));
  }
}

TEST(FoldersTest, AHeadIsThereOrTiedOrRefused) {
  {
    const TinyModel tiny({.tied_embeddings = true});
    OwnTensors tensors = ReadTensors(tiny);
    OwnTensor head = tensors["model.embed_tokens.weight"];
    head.bytes[7] = static_cast<char>(head.bytes[7] ^ 1);
    tensors["lm_head.weight"] = head;
    tiny.Write("model.safetensors", SafetensorsOf(tensors));
    EXPECT_THAT(Error(tiny.dir()), AllOf(HasSubstr("lm_head.weight"), HasSubstr("differs"),
                                         HasSubstr("tie_word_embeddings to false")));
  }
  const TinyModel tiny({.tied_embeddings = false});
  OwnTensors tensors = ReadTensors(tiny);
  tensors.erase("lm_head.weight");
  tiny.Write("model.safetensors", SafetensorsOf(tensors));
  EXPECT_THAT(Error(tiny.dir()), AllOf(HasSubstr("lm_head.weight"), HasSubstr("is missing"),
                                       HasSubstr("tie_word_embeddings: true")));
}

TEST(FoldersTest, AMissingTensorIsNamedWithOneThatIsThere) {
  const TinyModel tiny;
  OwnTensors tensors = ReadTensors(tiny);
  tensors.extract("model.layers.0.mlp.up_proj.weight");
  tiny.Write("model.safetensors", SafetensorsOf(tensors));
  EXPECT_THAT(Error(tiny.dir()),
              HasSubstr("model.layers.0.mlp.up_proj.weight, [88, 48], is missing"));
  OwnTensors other;
  for (const auto& [name, tensor] : tensors) other["transformer." + name] = tensor;
  tiny.Write("model.safetensors", SafetensorsOf(other));
  EXPECT_THAT(Error(tiny.dir()),
              AllOf(HasSubstr("model.embed_tokens.weight"), HasSubstr("is missing"),
                    HasSubstr("\"transformer.model.embed_tokens.weight\"")));
}

// A file that lies in the place of another one, and what the error has to say.
struct Foreign {
  std::string bytes, what;
};

const Foreign kForeign[] = {
    {"", "is empty"},
    {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1\n", "git lfs pull"},
    {"<!doctype html><title>Sign in</title>", "HTML page"},
    {"<html><body>404</body></html>", "HTML page"},
    {"PK\x03\x04\0\0\0\0\0\0archive/data.pkl"s, "safetensors"},
    {"\x80\x02}q\0X\x05\0\0\0"s, "pickle"},
    {"\x80\x04\x95\x05\0\0\0\0\0\0\0}\x94."s, "pickle"},
    {"GGUF\x03\0\0\0"s, "GGUF"},
    {"\x1f\x8b\x08\0\0\0\0\0\0\x03"s, "gzip"},
    {std::string(4096, '\0'), "zeros"},
    {"\xff\xfe{\0}\0\n\0\n\0\n\0"s, "UTF-16"},
};

TEST(FoldersTest, WhatLiesInPlaceOfAFileIsNamed) {
  const TinyModel tiny;
  for (const char* file : {"model.safetensors", "config.json", "generation_config.json"}) {
    const bool had = fs::exists(tiny.dir() + "/" + file);
    const std::string before = had ? tiny.Read(file) : "";
    for (const Foreign& foreign : kForeign) {
      tiny.Write(file, foreign.bytes);
      EXPECT_THAT(Error(tiny.dir()), AllOf(HasSubstr(file), HasSubstr(foreign.what))) << file;
    }
    had ? tiny.Write(file, before) : void(fs::remove(tiny.dir() + "/" + file));
  }
  EXPECT_TRUE(Load(tiny.dir()).ok());
  fs::remove(tiny.dir() + "/model.safetensors");
  for (const Foreign& foreign : kForeign) {
    tiny.Write("model.safetensors.index.json", foreign.bytes);
    EXPECT_THAT(Error(tiny.dir()), AllOf(HasSubstr("index.json"), HasSubstr(foreign.what)));
  }
}

TEST(FoldersTest, AnAnswerSavedAsWeightsIsQuoted) {
  const TinyModel tiny;
  tiny.Write("model.safetensors", "Entry not found");
  EXPECT_THAT(Error(tiny.dir()), HasSubstr("\"Entry not found\""));
  tiny.Write("model.safetensors", "{\"error\":\"Repository not found\"}\nx");
  EXPECT_THAT(Error(tiny.dir()), HasSubstr("Repository not found"));
}

TEST(FoldersTest, TruncatedWeightsAreSaidToBe) {
  const TinyModel tiny;
  const std::string whole = tiny.Read("model.safetensors");
  for (const size_t size :
       {size_t{5}, size_t{8}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    tiny.Write("model.safetensors", whole.substr(0, size));
    EXPECT_THAT(Error(tiny.dir()),
                AllOf(HasSubstr("model.safetensors"),
                      ::testing::AnyOf(HasSubstr("truncated"), HasSubstr("too few for a header"))))
        << size;
  }
}

TEST(FoldersTest, WhatAFolderHasInPlaceOfSafetensorsIsNamed) {
  struct Case {
    std::vector<std::string> files;
    std::string what;
  };
  for (const Case& one :
       std::vector<Case>{{{}, "has neither model.safetensors nor"},
                         {{"pytorch_model.bin", "training_args.bin"},
                          "pytorch_model.bin, which is a PyTorch pickle"},
                         {{"pytorch_model-00001-of-00002.bin"}, "PyTorch pickle"},
                         {{"consolidated.00.pth"}, "PyTorch pickle"},
                         {{"model.pt"}, "PyTorch pickle"},
                         {{"last.ckpt"}, "pickle"},
                         {{"adapter_model.safetensors"}, "LoRA adapter"},
                         {{"model-00001-of-00002.safetensors"}, "no index leads to it"},
                         {{"weights.safetensors", "pytorch_model.bin"}, "weights.safetensors"},
                         {{"q4_k_m.gguf"}, "GGUF"},
                         {{"tf_model.h5"}, "TensorFlow"},
                         {{"flax_model.msgpack"}, "Flax"},
                         {{"model.onnx"}, "ONNX"},
                         {{"training_args.bin"}, "has neither model.safetensors nor"}}) {
    const TinyModel tiny;
    fs::remove(tiny.dir() + "/model.safetensors");
    for (const std::string& file : one.files) tiny.Write(file, "x");
    EXPECT_THAT(Error(tiny.dir()), HasSubstr(one.what));
    EXPECT_EQ(Load(tiny.dir()).status().code(), absl::StatusCode::kNotFound);
  }
}

TEST(FoldersTest, WhatIsNoModelsFolderIsToldApart) {
  EXPECT_THAT(Error("/no/such/folder"), HasSubstr("/no/such/folder: there is no such folder"));
  const TinyModel tiny;
  EXPECT_THAT(
      Error(tiny.dir() + "/model.safetensors"),
      HasSubstr("model.safetensors: is a file, neither GGUF nor a model's Hugging Face folder"));
  tiny.Write("model.gguf", "GGUF\x03");
  EXPECT_THAT(Error(tiny.dir() + "/model.gguf"),
              HasSubstr("model.gguf: ends at byte 5 within its header; is it truncated?"));
  fs::remove(tiny.dir() + "/config.json");
  EXPECT_THAT(Error(tiny.dir()), HasSubstr("has no config.json"));
  tiny.Write("adapter_config.json", "{}");
  EXPECT_THAT(Error(tiny.dir()), HasSubstr("LoRA adapter"));
  tiny.Write("params.json", "{}");
  EXPECT_THAT(Error(tiny.dir()), HasSubstr("params.json"));
  fs::create_directory(tiny.dir() + "/snapshots");
  EXPECT_THAT(Error(tiny.dir()), HasSubstr("snapshots"));
}

TEST(FoldersTest, ALinkThatLeadsNowhereIsNamed) {
  const TinyModel tiny;
  fs::remove(tiny.dir() + "/model.safetensors");
  fs::create_symlink("../../blobs/4d7a", tiny.dir() + "/model.safetensors");
  EXPECT_THAT(Error(tiny.dir()), AllOf(HasSubstr("symbolic link to ../../blobs/4d7a"),
                                       HasSubstr("model.safetensors")));
}

TEST(FoldersTest, ShardsThatAreMissingAreCounted) {
  const TinyModel tiny({.shard_bytes = 20000});
  std::vector<std::string> shards;
  for (const auto& entry : fs::directory_iterator(tiny.dir())) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors")) shards.push_back(name);
  }
  ASSERT_GE(shards.size(), 3u);
  std::sort(shards.begin(), shards.end());
  fs::remove(tiny.dir() + "/" + shards[1]);
  EXPECT_THAT(Error(tiny.dir()), AllOf(HasSubstr("of which 1 is missing"), HasSubstr(shards[1])));
  fs::remove(tiny.dir() + "/" + shards[2]);
  EXPECT_THAT(Error(tiny.dir()), AllOf(HasSubstr("of which 2 are missing"),
                                       HasSubstr(shards[1] + " to " + shards[2])));
}

TEST(FoldersTest, ATensorInTwoShardsIsTheSameInBoth) {
  const TinyModel tiny({.shard_bytes = 20000});
  const auto usual = Load(tiny.dir());
  ASSERT_TRUE(usual.ok()) << usual.status();
  const json index = json::parse(tiny.Read("model.safetensors.index.json"));
  const std::string name = "model.norm.weight";
  const std::string its = index["weight_map"][name];
  std::string other;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    if (shard != its) other = shard;
  }
  ASSERT_FALSE(other.empty());
  OwnTensors tensors = ReadTensors(tiny, other);
  tensors[name] = ReadTensors(tiny, its).at(name);
  tiny.Write(other, SafetensorsOf(tensors));
  const auto same = Load(tiny.dir());
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(*same, *usual);
  tensors[name].bytes[5] = static_cast<char>(tensors[name].bytes[5] ^ 1);
  tiny.Write(other, SafetensorsOf(tensors));
  EXPECT_THAT(Error(tiny.dir()), AllOf(HasSubstr(name), HasSubstr("with other contents")));
}

TEST(FoldersTest, ATensorThatTheIndexDoesNotNameCountsToo) {
  const TinyModel tiny({.shard_bytes = 20000});
  const auto usual = Load(tiny.dir());
  json index = json::parse(tiny.Read("model.safetensors.index.json"));
  const std::string its = index["weight_map"]["model.norm.weight"];
  index["weight_map"].erase("model.norm.weight");
  tiny.Write("model.safetensors.index.json", index.dump());
  const auto loaded = Load(tiny.dir());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(*loaded, *usual);
  OwnTensors tensors = ReadTensors(tiny, its);
  tensors["model.layers.0.surprise"] = Floats({2});
  tiny.Write(its, SafetensorsOf(tensors));
  EXPECT_THAT(Error(tiny.dir()), HasSubstr("model.layers.0.surprise"));
}

}  // namespace
}  // namespace continuo::model
