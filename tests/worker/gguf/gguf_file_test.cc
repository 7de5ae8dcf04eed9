// SPDX-License-Identifier: Apache-2.0
#include "services/worker/gguf/gguf_file.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/worker/gguf/gguf_names.h"
#include "tests/testing/gguf_writer.h"

namespace continuo::gguf {
namespace {

using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;

class GgufFileTest : public ::testing::Test {
 protected:
  GgufFileTest() { std::filesystem::create_directories(dir_); }
  ~GgufFileTest() override { std::filesystem::remove_all(dir_); }

  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = dir_ + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  static std::string Part(int number, int count, const std::string& tensor) {
    return GgufWriter()
        .Key("split.no", static_cast<uint32_t>(number))
        .Key("split.count", static_cast<uint32_t>(count))
        .Tensor(tensor, {4}, 0, std::string(16, 'x'))
        .Bytes();
  }

  const std::string dir_ =
      absl::StrCat(::testing::TempDir(), "gguf_",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(GgufFileTest, APartedModelIsRead) {
  std::string first;
  for (int i = 1; i <= 3; ++i) {
    const std::string path =
        Write(absl::StrFormat("m-%05d-of-00003.gguf", i), Part(i - 1, 3, absl::StrCat("t", i)));
    if (i == 1) first = path;
  }
  EXPECT_TRUE(IsGguf(first));
  const auto file = GgufFile::Open(first);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors().size(), 3u);
  EXPECT_NE(file->FindTensor("t3"), nullptr);
  EXPECT_EQ(file->Whole("split.count"), 3);
  EXPECT_EQ(file->Text("split.count"), std::nullopt);
}

TEST_F(GgufFileTest, PartsThatAreMissingOrNotThoseOfTheModelAreNamed) {
  const std::string first = Write("m-00001-of-00003.gguf", Part(0, 3, "a"));
  const auto missing = GgufFile::Open(first).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("of its 3 parts 2 are missing: m-00002-of-00003.gguf to "));
  const std::string second = Write("m-00002-of-00003.gguf", Part(1, 3, "a"));
  EXPECT_THAT(std::string(GgufFile::Open(second).status().message()),
              HasSubstr("is part 2 of 3 of a model; give the first part"));
  Write("m-00003-of-00003.gguf", Part(2, 3, "b"));
  EXPECT_THAT(std::string(GgufFile::Open(first).status().message()),
              HasSubstr("tensor a is in two parts"));
  Write("m-00002-of-00003.gguf", Part(0, 3, "c"));
  EXPECT_THAT(std::string(GgufFile::Open(first).status().message()),
              HasSubstr("says that it is part 1 of 3, its name that it is 2"));
  EXPECT_THAT(std::string(GgufFile::Open(Write("m.gguf", Part(0, 3, "a"))).status().message()),
              HasSubstr("its name must end in -00001-of-00003.gguf"));
  EXPECT_FALSE(IsGguf(dir_));
  EXPECT_FALSE(IsGguf(Write("x", "GGU")));
}

GgufWriter Layer(const std::string& architecture, uint32_t num_experts) {
  GgufWriter writer;
  writer.Key("general.architecture", architecture)
      .Key(architecture + ".attention.head_count", uint32_t{2})
      .Key(architecture + ".embedding_length", uint32_t{8});
  if (num_experts > 0) writer.Key(architecture + ".expert_count", num_experts);
  return writer;
}

std::vector<std::string> NamesOf(const std::string& bytes,
                                 std::vector<NamedTensor>* tensors = nullptr) {
  const auto file =
      GgufFile::Parse("x", {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  EXPECT_TRUE(file.ok()) << file.status();
  const auto named = NamedTensors(*file);
  EXPECT_TRUE(named.ok()) << named.status();
  std::vector<std::string> names;
  for (const NamedTensor& tensor : *named) names.push_back(tensor.name);
  if (tensors != nullptr) *tensors = *named;
  return names;
}

// The last block of Qwen's files may be a module for multi-token prediction.
TEST_F(GgufFileTest, BlocksThatPredictFurtherTokensAreAModule) {
  const std::string row(32, 'r');
  const auto names = [&](const std::string& architecture, uint32_t blocks, uint32_t modules) {
    return NamesOf(Layer(architecture, 2)
                       .Key(architecture + ".block_count", blocks)
                       .Key(architecture + ".nextn_predict_layers", modules)
                       .Key(architecture + ".ssm.state_size", uint32_t{2})
                       .Key(architecture + ".ssm.group_count", uint32_t{2})
                       .Key(architecture + ".ssm.time_step_rank", uint32_t{2})
                       .Key(architecture + ".ssm.inner_size", uint32_t{4})
                       .Tensor("blk.2.attn_norm.weight", {8}, 0, row)
                       .Tensor("blk.3.attn_norm.weight", {8}, 0, row)
                       .Tensor("blk.3.ffn_gate_inp.weight", {8, 1}, 0, row)
                       .Tensor("blk.3.ffn_up_exps.weight", {4, 1, 2}, 0, row)
                       .Tensor("blk.3.nextn.eh_proj.weight", {8, 1}, 0, row)
                       .Tensor("blk.3.nextn.enorm.weight", {8}, 0, row)
                       .Tensor("blk.3.nextn.hnorm.weight", {8}, 0, row)
                       .Tensor("blk.3.nextn.shared_head_norm.weight", {8}, 0, row)
                       .Tensor("blk.3.nextn.embed_tokens.weight", {8, 1}, 0, row)
                       .Bytes());
  };
  for (const char* const architecture : {"qwen35moe", "qwen3next"}) {
    EXPECT_THAT(
        names(architecture, 4, 1),
        ElementsAre("model.layers.2.input_layernorm.weight", "mtp.layers.0.input_layernorm.weight",
                    "mtp.layers.0.mlp.gate.weight", "mtp.layers.0.mlp.experts.0.up_proj.weight",
                    "mtp.layers.0.mlp.experts.1.up_proj.weight", "mtp.fc.weight",
                    "mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight",
                    "mtp.norm.weight", "mtp.layers.0.nextn.embed_tokens.weight"))
        << architecture;
    // Two modules keep the names that they have, as does one in a number of blocks that cannot be.
    for (const auto& [blocks, modules] :
         {std::pair{4u, 2u}, std::pair{0u, 1u}, std::pair{~0u, 1u}}) {
      EXPECT_EQ(names(architecture, blocks, modules)[5], "model.layers.3.nextn.eh_proj.weight");
    }
  }
}

TEST_F(GgufFileTest, TensorsHaveTheNamesOfHuggingFace) {
  const std::string row(32, 'r');
  std::vector<NamedTensor> tensors;
  const std::string llama = Layer("llama", 0)
                                .Tensor("blk.3.attn_q.weight", {1, 8}, 0, row)
                                .Tensor("blk.3.attn_v.bias", {8}, 0, row)
                                .Tensor("rope_freqs.weight", {8}, 0, row)
                                .Tensor("blk.3.strange.weight", {8}, 0, row)
                                .Bytes();
  EXPECT_THAT(NamesOf(llama, &tensors),
              ElementsAre("model.layers.3.self_attn.q_proj.weight",
                          "model.layers.3.self_attn.v_proj.bias", "blk.3.strange.weight"));
  EXPECT_EQ(tensors[0].interleaved_head, 4);
  EXPECT_EQ(tensors[1].interleaved_head, 0);
  const std::string gemma = Layer("gemma2", 0)
                                .Tensor("blk.0.ffn_norm.weight", {8}, 0, row)
                                .Tensor("blk.0.post_attention_norm.weight", {8}, 0, row)
                                .Bytes();
  EXPECT_THAT(NamesOf(gemma), ElementsAre("model.layers.0.pre_feedforward_layernorm.weight",
                                          "model.layers.0.post_attention_layernorm.weight"));
}

TEST_F(GgufFileTest, ExpertsComeOneByOne) {
  const std::string bytes = std::string(32, 'a') + std::string(32, 'b');
  std::vector<NamedTensor> tensors;
  const std::string joined =
      Layer("llama", 2).Tensor("blk.0.ffn_down_exps.weight", {4, 2, 2}, 0, bytes).Bytes();
  EXPECT_THAT(NamesOf(joined, &tensors),
              ElementsAre("model.layers.0.block_sparse_moe.experts.0.w2.weight",
                          "model.layers.0.block_sparse_moe.experts.1.w2.weight"));
  EXPECT_THAT(tensors[1].shape, ElementsAre(2, 4));
  const std::string qwen = Layer("qwen3moe", 2)
                               .Tensor("blk.0.ffn_gate.1.weight", {8, 1}, 0, bytes)
                               .Tensor("blk.0.ffn_gate_inp.weight", {8, 2}, 0, bytes)
                               .Bytes();
  EXPECT_THAT(NamesOf(qwen), ElementsAre("model.layers.0.mlp.experts.1.gate_proj.weight",
                                         "model.layers.0.mlp.gate.weight"));
}

}  // namespace
}  // namespace continuo::gguf
