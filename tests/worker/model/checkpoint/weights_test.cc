// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/math/bfloat16.h"
#include "services/worker/model/description/config.h"
#include "tests/testing/tiny_model.h"

namespace continuo::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TinyModel;
using testing::TinyModelOptions;

ModelConfig Config(int heads, int kv_heads, int inner = 100, int vocab = 301) {
  ModelConfig config;
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = 4;
  config.intermediate_size = inner;
  config.vocab_size = vocab;
  config.num_layers = 1;
  return config;
}

TEST(ShardTest, OneRankHoldsEverything) {
  const Shard shard = MakeShard(Config(6, 2), 0, 1);
  EXPECT_EQ(shard.heads, (Range{0, 6}));
  EXPECT_EQ(shard.kv_heads, (Range{0, 2}));
  EXPECT_EQ(shard.inner, (Range{0, 100}));
  // K split i of 6 heads begins at head ⌊6i/8⌋: 0 0 1 2 3 3 4 5 6.
  EXPECT_THAT(shard.head_splits, ElementsAre(0, 0, 4, 8, 12, 12, 16, 20, 24));
  EXPECT_THAT(shard.inner_splits, ElementsAre(0, 12, 25, 37, 50, 62, 75, 87, 100));
}

TEST(ShardTest, RanksOwnWholePiecesSoTheTreeIsTheSame) {
  const ModelConfig config = Config(6, 2);
  const Shard whole = MakeShard(config, 0, 1);
  for (const int size : {2, 4, 8}) {
    std::vector<int64_t> heads = {0}, inner = {0};
    for (int rank = 0; rank < size; ++rank) {
      const Shard shard = MakeShard(config, rank, size);
      ASSERT_EQ(shard.head_splits.size(), static_cast<size_t>(8 / size + 1));
      for (size_t i = 1; i < shard.head_splits.size(); ++i) {
        heads.push_back(heads.back() + shard.head_splits[i] - shard.head_splits[i - 1]);
        inner.push_back(inner.back() + shard.inner_splits[i] - shard.inner_splits[i - 1]);
      }
      EXPECT_EQ(shard.head_splits.back(), shard.heads.size() * config.head_dim);
      EXPECT_EQ(shard.inner_splits.back(), shard.inner.size());
      EXPECT_EQ(shard.vocab_begin[static_cast<size_t>(rank)], shard.vocab.begin);
    }
    EXPECT_EQ(heads, whole.head_splits);
    EXPECT_EQ(inner, whole.inner_splits);
  }
}

TEST(ShardTest, KvHeadsAreReplicatedWhereACutStraddlesThemOrTheyAreFewer) {
  // Query heads 0-2 read kv head 0, 3-5 kv head 1. Four ranks own heads 0, 1-2, 3, 4-5.
  const auto kv = [](const ModelConfig& config, int rank, int size) {
    return MakeShard(config, rank, size).kv_heads;
  };
  EXPECT_EQ(kv(Config(6, 2), 0, 4), (Range{0, 1}));
  EXPECT_EQ(kv(Config(6, 2), 1, 4), (Range{0, 1}));
  EXPECT_EQ(kv(Config(6, 2), 2, 4), (Range{1, 2}));
  // Two ranks own heads 0-2 and 3-5 of 6 heads in groups of 2, so kv head 1 is on both.
  EXPECT_EQ(kv(Config(6, 3), 0, 2), (Range{0, 2}));
  EXPECT_EQ(kv(Config(6, 3), 1, 2), (Range{1, 3}));
}

TEST(ShardTest, ARankMayOwnNoHead) {
  const Shard shard = MakeShard(Config(2, 1), 0, 8);
  EXPECT_EQ(shard.heads.size(), 0);
  EXPECT_EQ(shard.kv_heads.size(), 0);
  EXPECT_THAT(shard.head_splits, ElementsAre(0, 0));
  EXPECT_EQ(MakeShard(Config(2, 1), 3, 8).heads, (Range{0, 1}));
}

TEST(ShardTest, EveryRankHoldsAPartOfEachExpert) {
  ModelConfig config = Config(6, 2);
  config.experts.intermediate_size = 20;
  std::vector<int64_t> pieces = {0};
  for (int rank = 0; rank < 4; ++rank) {
    const Shard shard = MakeShard(config, rank, 4);
    EXPECT_EQ(shard.expert_inner, (Range{rank * 5, rank * 5 + 5}));
    for (size_t i = 1; i < shard.expert_splits.size(); ++i) {
      pieces.push_back(pieces.back() + shard.expert_splits[i] - shard.expert_splits[i - 1]);
    }
  }
  EXPECT_EQ(pieces, MakeShard(config, 0, 1).expert_splits);
}

class WeightsTest : public ::testing::Test {
 protected:
  static std::string CheckError(const TinyModel& model, const ModelConfig& config) {
    const auto checkpoint = Checkpoint::Open(model.dir());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    const absl::Status status = CheckWeights(config, *checkpoint);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }
};

TEST_F(WeightsTest, MissingAndMisshapenTensorsAreNamed) {
  const TinyModel model;
  ModelConfig config = *ReadModelConfig(model.dir());
  config.num_layers = 3;
  EXPECT_THAT(CheckError(model, config),
              AllOf(HasSubstr("model.layers.2.input_layernorm.weight"), HasSubstr("missing")));
  config.num_layers = 2;
  config.intermediate_size = 80;
  EXPECT_THAT(CheckError(model, config), AllOf(HasSubstr("model.layers.0.mlp.gate_proj.weight"),
                                               HasSubstr("[88, 48]"), HasSubstr("[80, 48]")));
  config.intermediate_size = 88;
  config.qkv_bias = true;
  EXPECT_THAT(CheckError(model, config), HasSubstr("q_proj.bias"));
}

TEST_F(WeightsTest, TypesThatAreNoFloatsAreRefused) {
  const TinyModel model;
  std::string file = model.Read("model.safetensors");
  file.replace(file.find("\"F32\""), 5, "\"I32\"");
  model.Write("model.safetensors", file);
  EXPECT_THAT(CheckError(model, *ReadModelConfig(model.dir())),
              AllOf(HasSubstr("I32"), HasSubstr("BF16")));
}

TEST_F(WeightsTest, TruncatedFilesAreRefused) {
  const TinyModel model;
  const std::string file = model.Read("model.safetensors");
  for (const size_t size : {file.size() - 1, file.size() / 2, size_t{100}, size_t{8}, size_t{3}}) {
    model.Write("model.safetensors", file.substr(0, size));
    EXPECT_EQ(Checkpoint::Open(model.dir()).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

struct Loaded {
  ModelConfig config;
  Checkpoint checkpoint;
  std::unique_ptr<kernels::Device> device;
  std::unique_ptr<Weights> weights;
};

Loaded Load(const TinyModel& model, int rank, int size, kernels::WeightType type) {
  Loaded loaded;
  loaded.config = *ReadModelConfig(model.dir());
  loaded.checkpoint = *Checkpoint::Open(model.dir());
  EXPECT_TRUE(CheckWeights(loaded.config, loaded.checkpoint).ok());
  loaded.device = *kernels::MakeDevice({.isa = "scalar"});  // packs nothing of these
  loaded.weights = *Weights::Load(loaded.config, MakeShard(loaded.config, rank, size),
                                  loaded.checkpoint, type, *loaded.device);
  return loaded;
}

Loaded Load(const TinyModel& model, int rank, int size, kernels::DType dtype) {
  return Load(
      model, rank, size,
      dtype == kernels::DType::kBF16 ? kernels::WeightType::kBF16 : kernels::WeightType::kF32);
}

std::vector<float> Values(const Loaded& loaded, const kernels::Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.size()));
  if (tensor.dtype == kernels::DType::kF32) {
    loaded.device->CopyOut(values.data(), tensor);
  } else {
    std::vector<uint16_t> bits(values.size());
    loaded.device->CopyOut(bits.data(), tensor);
    for (size_t i = 0; i < bits.size(); ++i) values[i] = kernels::FromBF16(bits[i]);
  }
  EXPECT_TRUE(loaded.device->Synchronize().ok());
  return values;
}

TEST_F(WeightsTest, RanksTogetherHoldTheWholeMatrix) {
  const TinyModel model({.family = "qwen2"});
  const Loaded whole = Load(model, 0, 1, kernels::DType::kF32);
  const auto all_gate = Values(whole, whole.weights->model().layers[1].gate.data);
  const auto all_down = Values(whole, whole.weights->model().layers[1].down.data);
  const auto all_bias = Values(whole, whole.weights->model().layers[1].q_bias);
  std::vector<float> gate, bias;
  for (int rank = 0; rank < 4; ++rank) {
    const Loaded part = Load(model, rank, 4, kernels::DType::kF32);
    const LayerWeights& layer = part.weights->model().layers[1];
    for (const float v : Values(part, layer.gate.data)) gate.push_back(v);
    for (const float v : Values(part, layer.q_bias)) bias.push_back(v);
    // These are columns 22 rank … 22 (rank + 1) of 88.
    const auto down = Values(part, layer.down.data);
    for (size_t row = 0; row < 48; ++row) {
      for (size_t column = 0; column < 22; ++column) {
        ASSERT_EQ(down[row * 22 + column],
                  all_down[row * 88 + static_cast<size_t>(rank) * 22 + column]);
      }
    }
  }
  EXPECT_EQ(gate, all_gate);
  EXPECT_EQ(bias, all_bias);
}

TEST_F(WeightsTest, JoinedTensorsAreTakenApartAndDigestedOnce) {
  const TinyModel model({.family = "phi3"});
  const Loaded whole = Load(model, 0, 1, kernels::DType::kF32);
  const StoredTensor& stored = *whole.checkpoint.Find("model.layers.1.self_attn.qkv_proj.weight");
  std::vector<float> expected(stored.bytes.size() / sizeof(float));
  std::memcpy(expected.data(), stored.bytes.data(), stored.bytes.size());
  std::vector<float> q, k, v;
  for (int rank = 0; rank < 2; ++rank) {  // of 6 heads on 2 key-value heads
    const Loaded part = Load(model, rank, 2, kernels::DType::kF32);
    const LayerWeights& layer = part.weights->model().layers[1];
    for (const float x : Values(part, layer.q.data)) q.push_back(x);
    for (const float x : Values(part, layer.k.data)) k.push_back(x);
    for (const float x : Values(part, layer.v.data)) v.push_back(x);
  }
  q.insert(q.end(), k.begin(), k.end());
  q.insert(q.end(), v.begin(), v.end());
  EXPECT_EQ(q, expected);
  const auto digests = DigestWeights(whole.config, whole.checkpoint, 2);
  const auto file = MappedFile::Open(model.dir() + "/model.safetensors");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(digests.size(), ParseSafetensors("f", (*file)->bytes())->size());
}

TEST_F(WeightsTest, GainsThatAreStoredLessOneGetItBack) {
  const TinyModel model({.family = "gemma2", .dtype = "bf16"});
  const Loaded loaded = Load(model, 0, 1, kernels::DType::kBF16);
  for (const float gain : Values(loaded, loaded.weights->model().layers[1].mlp_output_gain)) {
    EXPECT_NEAR(gain, 1, 0.101);
  }
  EXPECT_EQ(WeightsDigest(DigestWeights(loaded.config, loaded.checkpoint, 1)),
            WeightsDigest(DigestWeights(loaded.config, loaded.checkpoint, 3)));
}

TEST_F(WeightsTest, StoredTypesConvertToWhatIsComputed) {
  const TinyModel f32({.dtype = "fp32"}), f16({.dtype = "fp16"}), bf16({.dtype = "bf16"});
  const auto values = [](const TinyModel& model, kernels::DType dtype) {
    const Loaded loaded = Load(model, 0, 1, dtype);
    return Values(loaded, loaded.weights->model().layers[0].q.data);
  };
  const auto exact = values(f32, kernels::DType::kF32);
  const auto half = values(f16, kernels::DType::kF32);
  const auto brain = values(bf16, kernels::DType::kF32);
  const auto rounded = values(f32, kernels::DType::kBF16);
  EXPECT_EQ(brain, rounded);
  EXPECT_EQ(brain, values(bf16, kernels::DType::kBF16));
  for (size_t i = 0; i < exact.size(); ++i) {
    // The bound is half a unit in the last place, and half a unit of the smallest subnormal.
    ASSERT_NEAR(half[i], exact[i], std::abs(exact[i]) * 0x1p-11 + 0x1p-25);
    ASSERT_NEAR(brain[i], exact[i], std::abs(exact[i]) * 0x1p-8);
  }
  EXPECT_NE(half, exact);
}

TEST_F(WeightsTest, AutoComputesAsStored) {
  const auto stored = [](const TinyModel& model) {
    return AutoType(*ReadModelConfig(model.dir()), *Checkpoint::Open(model.dir()));
  };
  EXPECT_EQ(stored(TinyModel({.dtype = "bf16"})), kernels::DType::kBF16);
  EXPECT_EQ(stored(TinyModel({.dtype = "fp16"})), kernels::DType::kF32);
  EXPECT_EQ(stored(TinyModel({.dtype = "fp32"})), kernels::DType::kF32);
}

TEST_F(WeightsTest, EachRankHoldsItsShareAndWhatIsReplicated) {
  for (const std::string family : {"llama", "mistral", "qwen2", "qwen3", "mixtral"}) {
    const TinyModel model({.family = family,
                           .vocab_size = 512,
                           .intermediate_size = 128,
                           .num_heads = 8,
                           .num_kv_heads = 4,
                           .tied_embeddings = false});
    const ModelConfig config = *ReadModelConfig(model.dir());
    const Checkpoint checkpoint = *Checkpoint::Open(model.dir());
    const int64_t whole = WeightBytes(config, MakeShard(config, 0, 1), checkpoint,
                                      kernels::WeightType::kF32, *kernels::MakeDevice({}).value());
    // The difference is gains and biases, each at most one cache line longer than it must be, and
    // the kv heads that more than one rank reads.
    ModelWeights places;
    int64_t replicated = 0;
    for (const WeightSpec& spec : ListWeights(config, places)) {
      replicated += 64;
      if (spec.cut == Cut::kWhole) replicated += spec.shape[0] * 4;
    }
    for (const int size : {2, 4}) {
      int64_t sum = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Loaded part = Load(model, rank, size, kernels::DType::kF32);
        EXPECT_EQ(part.weights->bytes(),
                  WeightBytes(config, MakeShard(config, rank, size), checkpoint,
                              kernels::WeightType::kF32, *part.device));
        EXPECT_LE(part.weights->bytes(), whole / size + replicated) << family << " " << size;
        sum += part.weights->bytes();
      }
      EXPECT_GE(sum, whole);
    }
  }
}

TEST_F(WeightsTest, FourBitsKeepWhatIsSensitiveInEight) {
  using kernels::WeightFormat;
  // One file has the three matrices of heads apart, the other as one.
  for (const std::string family : {"qwen2", "phi3"}) {
    const TinyModel model({.family = family, .num_layers = 16});
    const Loaded loaded = Load(model, 0, 1, kernels::WeightType::kInt4);
    const ModelWeights& weights = loaded.weights->model();
    EXPECT_EQ(weights.embedding.format, WeightFormat::kInt8Panels) << family;
    std::vector<size_t> ends;  // in eight bits
    for (size_t i = 0; i < weights.layers.size(); ++i) {
      const LayerWeights& layer = weights.layers[i];
      EXPECT_EQ(layer.v.format, WeightFormat::kInt8Panels) << family << " " << i;
      for (const kernels::Weight* w : {&layer.q, &layer.k, &layer.o, &layer.gate, &layer.up}) {
        EXPECT_EQ(w->format, WeightFormat::kInt4Panels) << family << " " << i;
      }
      if (layer.down.format == WeightFormat::kInt8Panels) ends.push_back(i);
    }
    EXPECT_THAT(ends, ElementsAre(0, 1, 4, 7, 10, 13, 14, 15)) << family;
  }
}

}  // namespace
}  // namespace continuo::model
