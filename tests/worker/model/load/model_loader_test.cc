// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/load/model_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "services/base/check.h"
#include "services/worker/model/load/load_plan.h"
#include "tests/testing/tiny_model.h"
#include "tests/worker/model/run/plan_builder.h"

namespace continuo::model {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::TinyModel;

LoadOptions Options(const TinyModel& model) {
  LoadOptions options;
  options.source.dir = model.dir();
  options.kv.num_blocks = 64;
  return options;
}

std::string Error(const LoadOptions& options) {
  const auto loaded = LoadModel(options);
  EXPECT_FALSE(loaded.ok());
  return std::string(loaded.status().message());
}

TEST(LoaderTest, DescribesWhatItLoaded) {
  const TinyModel model({.dtype = "bf16"});
  LoadOptions options = Options(model);
  options.source.max_context_tokens = 100;
  options.device.isa = "scalar";  // pads no bf16
  const auto loaded = LoadModel(options);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.context_length, 100);
  EXPECT_EQ(loaded->num_blocks, 64);
  EXPECT_EQ(loaded->block_size, 16);
  EXPECT_EQ(loaded->weight_format, "bf16");
  EXPECT_EQ(loaded->kv_format, "bf16");
  EXPECT_THAT(loaded->backend_name, HasSubstr("cpu/"));
  // There are 301 * 48 elements of the embedding and, per layer, 2 * 48 of gains, 48 * 48 of q and
  // of o, 16 * 48 of k and of v, and 3 * 88 * 48 of the MLP.
  EXPECT_EQ(loaded->num_parameters, 301 * 48 + 48 + 2 * (96 + 2 * 2304 + 2 * 768 + 3 * 4224));
  ASSERT_EQ(loaded->ranks.size(), 1u);
  EXPECT_GE(loaded->ranks[0].weight_bytes, 2 * loaded->num_parameters);
  EXPECT_LT(loaded->ranks[0].weight_bytes, 2 * loaded->num_parameters + 64 * 64);
  // The KV cache has 2 layers, keys and values, 64 blocks of 16 tokens, and 16 elements of 2 bytes.
  EXPECT_EQ(loaded->ranks[0].kv_bytes, 2 * 2 * 64 * 16 * 16 * 2);
}

TEST(LoaderTest, ModelsWithStatesGetSlots) {
  const TinyModel model({.family = "qwen3_5_text", .num_layers = 3});
  LoadOptions options = Options(model);
  options.state_slots.most = 9;
  const auto loaded = LoadModel(options);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  // A slot has, in 2 layers, 3 rows of 2 * 2 * 6 + 4 * 10 channels and 4 matrices of 6 x 10.
  constexpr int64_t kSlot = 2 * 4 * (3 * (2 * 2 * 6 + 4 * 10) + 4 * 60);
  EXPECT_EQ(EstimateLoad(options)->bytes_per_state_slot, kSlot);
  // Keys and values are those of the one other layer.
  constexpr int64_t kBlocks = 2 * 64 * 16 * 16 * 4;
  EXPECT_EQ(loaded->ranks[0].kv_bytes, kBlocks);
  EXPECT_EQ(loaded->num_state_slots, 9);
  EXPECT_GE(loaded->ranks[0].state_bytes, loaded->num_state_slots * kSlot);
  // A prompt in one step gives the token that it gives in two.
  const std::vector<int32_t> tokens = {5, 6, 7, 8, 9};
  const auto sample = [&](int begin, int end, int from, int to) {
    testing::PlanBuilder builder(/*block_size=*/16, /*max_blocks=*/1);
    const auto part =
        std::span(tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    builder.Add(0, begin, part, testing::LastOf(part), {.temperature = 0}).KeepState(from, to);
    CONTINUO_CHECK(loaded->executor->Start(builder.plan(), [](std::span<uint32_t>) {}).ok());
    return loaded->executor->Finish()->token_ids[0];
  };
  const int32_t whole = sample(0, 5, -1, 0);
  sample(0, 2, -1, 7);
  EXPECT_EQ(sample(2, 5, 7, 7), whole);
  options.state_slots.most = 1;
  EXPECT_THAT(Error(options), HasSubstr("state_slots is 1"));
  options.state_slots.most = 9;
  // Heads are divided in whole groups.
  options.tensor_parallel = 2;
  EXPECT_TRUE(LoadModel(options).ok());
  const TinyModel groups(
      {.family = "qwen3_5_text",
       .num_layers = 3,
       .extra_config = R"({"linear_num_key_heads": 3, "linear_num_value_heads": 6})"});
  options = Options(groups);
  options.tensor_parallel = 4;
  EXPECT_THAT(Error(options), HasSubstr("6 heads of recurrent states"));
}

// Without keys and values, blocks cost nothing: memory does not say how many there are.
TEST(LoaderTest, AModelOfStatesAloneHasBlocksWithoutBytes) {
  const TinyModel model({.family = "mamba2"});
  LoadOptions options = Options(model);
  options.kv.num_blocks = 0;
  options.kv.memory_bytes = 1;
  options.state_slots.most = 4;
  auto loaded = LoadModel(options);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->num_blocks, BlocksWithoutBytes(/*min_blocks=*/1));
  EXPECT_EQ(loaded->ranks[0].kv_bytes, 0);
  EXPECT_GT(loaded->ranks[0].state_bytes, 0);
  options.kv.num_blocks = 40;
  loaded = LoadModel(options);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->num_blocks, 40);
  EXPECT_EQ(BlocksWithoutBytes(int64_t{1} << 30), int64_t{1} << 30) << "one whole context fits";
}

TEST(LoaderTest, TellsHowManyThreadsCompute) {
  const TinyModel model;
  LoadOptions options = Options(model);
  options.device.num_threads = 3;
  EXPECT_EQ(LoadModel(options)->num_threads, 3);
  options.tensor_parallel = 2;
  EXPECT_EQ(LoadModel(options)->num_threads, 3);
  options.tensor_parallel = 4;
  EXPECT_EQ(LoadModel(options)->num_threads, 4) << "each rank has one";
}

TEST(LoaderTest, Fp16IsComputedInFp32) {
  const TinyModel model({.dtype = "fp16"});
  EXPECT_EQ(LoadModel(Options(model))->weight_format, "fp32");
}

TEST(LoaderTest, QuantisedWeightsAreSmallerAndActivationsStay) {
  const TinyModel model({.hidden_size = 256, .intermediate_size = 512, .dtype = "bf16"});
  LoadOptions options = Options(model);
  const auto bytes = [&](const std::string& weights) {
    options.precision.weights = weights;
    const auto loaded = LoadModel(options);
    EXPECT_EQ(loaded->weight_format, weights);
    EXPECT_EQ(loaded->kv_format, "bf16");
    EXPECT_EQ(EstimateLoad(options)->weight_bytes, loaded->ranks[0].weight_bytes);
    return static_cast<double>(loaded->ranks[0].weight_bytes);
  };
  const double bf16 = bytes("bf16");
  EXPECT_NEAR(bytes("int8") / bf16, (1 + 4.0 / 64) / 2, 0.02);
  EXPECT_LT(bytes("int4") / bf16, 0.4);  // the vocabulary and values are int8
  const TinyModel f32({.dtype = "fp32"});
  options = Options(f32);
  options.precision.weights = "int8";
  EXPECT_EQ(LoadModel(options)->kv_format, "fp32");
}

TEST(LoaderTest, TheKvCacheMustHoldOneWholeSequence) {
  const TinyModel model;  // context 256
  LoadOptions options = Options(model);
  options.kv.num_blocks = 15;
  EXPECT_THAT(Error(options), AllOf(HasSubstr("15 blocks"), HasSubstr("240 tokens"),
                                    HasSubstr("256"), HasSubstr("16 blocks")));
  options.source.max_context_tokens = 240;
  EXPECT_TRUE(LoadModel(options).ok());
}

TEST(LoaderTest, KvBlocksAreCountedFromMemory) {
  const TinyModel model;
  LoadOptions options = Options(model);
  options.kv.num_blocks = 0;
  EXPECT_THAT(Error(options), HasSubstr("kv_cache_memory"));
  const LoadEstimate estimate = *EstimateLoad(options);
  EXPECT_EQ(estimate.bytes_per_block, 2 * 2 * 16 * 16 * 4);
  EXPECT_EQ(estimate.min_blocks, 16);
  options.kv.memory_bytes = estimate.bytes_per_block * 21 - 1;
  const auto loaded = LoadModel(options);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->num_blocks, 20);
  options.kv.memory_bytes = estimate.bytes_per_block * 16 - 1;
  EXPECT_THAT(Error(options), AllOf(HasSubstr("15 blocks"), HasSubstr("16 blocks")));
}

TEST(LoaderTest, TheKvCacheMayComeLater) {
  const TinyModel model;
  LoadOptions options = Options(model);
  const auto at_once = LoadModel(options);
  options.kv.is_later = true;
  options.kv.num_blocks = 0;
  auto loader = ModelLoader::Open(options);
  ASSERT_TRUE(loader.ok()) << loader.status();
  EXPECT_EQ(loader->model().num_blocks, 0);
  EXPECT_EQ(loader->model().ranks[0].kv_bytes, 0);
  const auto later = (*std::move(loader)).MakeKvCache(at_once->num_blocks);
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_EQ(later->num_blocks, at_once->num_blocks);
  EXPECT_EQ(later->ranks[0].kv_bytes, at_once->ranks[0].kv_bytes);
  EXPECT_EQ(later->bytes_per_block * later->num_blocks, later->ranks[0].kv_bytes);
}

TEST(LoaderTest, Int8KvKeepsAScaleForEachTokenAndHead) {
  const TinyModel model;
  LoadOptions options = Options(model);
  const int64_t f32 = EstimateLoad(options)->bytes_per_block;
  options.precision.kv_dtype = "int8";
  const LoadEstimate estimate = *EstimateLoad(options);
  const ModelConfig config = LoadModel(options)->config;
  EXPECT_EQ(estimate.bytes_per_block * 4 * config.head_dim, f32 * (config.head_dim + 4));
  EXPECT_EQ(LoadModel(options)->kv_format, "int8");
}

TEST(LoaderTest, EstimateIsWhatIsTaken) {
  const TinyModel model({.family = "qwen3"});
  for (const int ranks : {1, 2, 4, 8}) {
    LoadOptions options = Options(model);
    options.tensor_parallel = ranks;
    options.precision.kv_dtype = "bf16";
    const LoadEstimate estimate = *EstimateLoad(options);
    const auto loaded = LoadModel(options);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    int64_t weights = 0, kv = 0, scratch = 0;
    for (const RankMemory& rank : loaded->ranks) {
      weights += rank.weight_bytes;
      kv += rank.kv_bytes;
      scratch += rank.scratch_bytes;
    }
    EXPECT_EQ(weights, estimate.weight_bytes);
    EXPECT_EQ(kv, estimate.bytes_per_block * loaded->num_blocks);
    EXPECT_EQ(scratch, estimate.scratch_bytes);
  }
}

TEST(LoaderTest, KvBytesPerRankAreTheirShare) {
  const TinyModel model({.num_heads = 8, .num_kv_heads = 4});
  LoadOptions options = Options(model);
  const auto ranks = [&options](int size) {
    options.tensor_parallel = size;
    return LoadModel(options)->ranks;
  };
  const int64_t whole = ranks(1)[0].kv_bytes;
  for (const int size : {2, 4}) {
    for (const RankMemory& rank : ranks(size)) EXPECT_EQ(rank.kv_bytes, whole / size);
  }
  // More ranks than kv heads: each holds the one that its query heads read.
  for (const RankMemory& rank : ranks(8)) EXPECT_EQ(rank.kv_bytes, whole / 4);
}

TEST(LoaderTest, ASecondStartTakesPackedWeightsFromTheCacheAndOfThisModelAlone) {
  const TinyModel model, other({.seed = 2});
  const std::string cache = model.dir() + "/cache";
  const auto load = [&](const TinyModel& from, int ranks, const std::string& folder) {
    auto loaded = LoadModel({.source = {.dir = from.dir(), .weights_cache = folder},
                             .precision = {.weights = "int8"},
                             .kv = {.num_blocks = 16},
                             .device = {.num_threads = 2},
                             .tensor_parallel = ranks});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_TRUE(loaded->cache_status.ok()) << loaded->cache_status;
    return *std::move(loaded);
  };
  const LoadedModel packed = load(model, 2, "");
  EXPECT_FALSE(packed.weights_from_cache);
  EXPECT_FALSE(load(model, 2, cache).weights_from_cache);
  const LoadedModel second = load(model, 2, cache);
  EXPECT_TRUE(second.weights_from_cache);
  EXPECT_EQ(second.fingerprint.weights, packed.fingerprint.weights);
  EXPECT_FALSE(load(model, 1, cache).weights_from_cache) << "other parts";
  EXPECT_FALSE(load(other, 2, cache).weights_from_cache) << "other weights";
  EXPECT_TRUE(load(other, 2, cache).weights_from_cache);
}

// The module for multi-token prediction takes memory where it is asked for, and no answer depends
// on it.
TEST(LoaderTest, MtpModulesAreReadWhereTheyAreAskedFor) {
  const TinyModel model({.family = "qwen3_5_text", .num_layers = 3, .mtp = true});
  LoadOptions options = Options(model);
  options.source.weights_cache = model.dir() + "/cache";
  options.precision.weights = "int8";
  const auto without = LoadModel(options);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_FALSE(without->has_mtp);
  EXPECT_THAT(without->config.warnings,
              Contains(AllOf(HasSubstr("skipped: "), HasSubstr(" of mtp.; --speculation=mtp"))));
  options.reads_mtp = true;
  for (const bool again : {false, true}) {
    const auto with = LoadModel(options);
    ASSERT_TRUE(with.ok()) << with.status();
    EXPECT_TRUE(with->has_mtp);
    EXPECT_TRUE(with->cache_status.ok()) << with->cache_status;
    EXPECT_EQ(with->weights_from_cache, again);
    EXPECT_TRUE(with->config.warnings.empty());
    EXPECT_EQ(with->fingerprint.weights, without->fingerprint.weights);
    EXPECT_EQ(with->fingerprint.config, without->fingerprint.config);
    EXPECT_EQ(with->num_parameters, without->num_parameters);
    // One layer of three has keys and values, and the module's.
    EXPECT_EQ(with->bytes_per_block, 2 * without->bytes_per_block);
    EXPECT_EQ(EstimateLoad(options)->bytes_per_block, with->bytes_per_block);
    EXPECT_GT(with->ranks[0].weight_bytes, without->ranks[0].weight_bytes + 2 * 48 * 48);
  }
  options.reads_mtp = false;
  EXPECT_TRUE(LoadModel(options)->weights_from_cache);
}

TEST(LoaderTest, ModelsWithoutAnMtpModuleAreRefusedByName) {
  const TinyModel other, absent({.family = "qwen3_5_text"});
  const TinyModel dedicated({.family = "qwen3_5_text", .mtp = true});
  LoadOptions options = Options(other);
  options.reads_mtp = true;
  EXPECT_THAT(Error(options),
              AllOf(HasSubstr("--speculation=mtp: no module"), HasSubstr("LlamaForCausalLM")));
  options.source.dir = absent.dir();
  EXPECT_THAT(Error(options),
              AllOf(HasSubstr("--speculation=mtp: "), HasSubstr("mtp."), HasSubstr("is missing")));
  for (const char* const field :
       {R"("mtp_use_dedicated_embeddings": true)", R"("mtp_num_hidden_layers": 2)"}) {
    std::string config = dedicated.Read("config.json");
    config.insert(config.find('{') + 1, std::string(field) + ",");
    const TinyModel changed({.family = "qwen3_5_text", .mtp = true});
    changed.Write("config.json", config);
    options.source.dir = changed.dir();
    options.reads_mtp = true;
    EXPECT_THAT(Error(options), HasSubstr("mtp_use_dedicated_embeddings"));
    options.reads_mtp = false;
    EXPECT_TRUE(LoadModel(options).ok());
  }
}

TEST(LoaderTest, BadOptionsAreRefusedByName) {
  const TinyModel model;
  const auto refused = [&](auto change, const std::string& name, const std::string& limit) {
    LoadOptions options = Options(model);
    change(options);
    const auto loaded = LoadModel(options);
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(loaded.status().message()), AllOf(HasSubstr(name), HasSubstr(limit)));
  };
  for (const int ranks : {0, -1, 3, 5, 6, 16}) {
    refused([ranks](LoadOptions& o) { o.tensor_parallel = ranks; }, "tensor_parallel",
            "1, 2, 4 or 8");
  }
  refused([](LoadOptions& o) { o.device.num_threads = 0; }, "threads", "1");
  refused([](LoadOptions& o) { o.kv.block_size = 0; }, "block_size", "1024");
  refused([](LoadOptions& o) { o.max_batch_tokens = 0; }, "max_batch_tokens", "131072");
  refused([](LoadOptions& o) { o.source.max_context_tokens = 257; }, "max_context_tokens", "256");
  refused([](LoadOptions& o) { o.source.max_context_tokens = -1; }, "max_context_tokens", "256");
  refused([](LoadOptions& o) { o.kv.num_blocks = -1; }, "kv_blocks", "1");
  refused([](LoadOptions& o) { o.kv.num_blocks = 1 << 30; }, "kv_blocks", "134217727");
  refused([](LoadOptions& o) { o.precision.weights = "int3"; }, "weights", "fp8 or stored");
  refused([](LoadOptions& o) { o.precision.weights = "fp16"; }, "weights is fp16, with which cpu/",
          "it needs CUDA devices");
  refused([](LoadOptions& o) { o.precision.kv_dtype = "int4"; }, "kv_dtype", "fp16, int8 or fp8");
  refused([](LoadOptions& o) { o.precision.kv_dtype = "fp16"; }, "kv_dtype is fp16, in which cpu/",
          "it takes auto, fp32, bf16, int8");
  refused([](LoadOptions& o) { o.precision.kv_dtype = "fp8"; }, "kv_dtype is fp8, in which cpu/",
          "it takes auto, fp32, bf16, int8");
  LoadOptions fp8 = Options(model);
  fp8.precision.kv_dtype = "fp8";
  EXPECT_EQ(EstimateLoad(fp8).status().code(), absl::StatusCode::kInvalidArgument);
  refused([](LoadOptions& o) { o.device.device = "cuda:0"; }, "cuda:0", "cpu");
  refused([](LoadOptions& o) { o.device.isa = "sse9"; }, "sse9", "");
}

TEST(LoaderTest, MissingFilesAreNamed) {
  LoadOptions options;
  options.source.dir = "/nonexistent";
  EXPECT_EQ(LoadModel(options).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Error(options), HasSubstr("/nonexistent: there is no such folder"));
}

TEST(FingerprintTest, DoesNotDependOnRanksThreadsBlocksOrShards) {
  const TinyModel model({.seed = 3}), sharded({.seed = 3, .shard_bytes = 20000});
  const std::vector<std::string> text = {"text 1", "tokenizer", "template"};
  const auto fingerprint = [&text](const LoadOptions& options) {
    return MakeFingerprint(LoadModel(options)->fingerprint, text);
  };
  const std::string expected = fingerprint(Options(model));
  EXPECT_EQ(expected.size(), 32u);
  LoadOptions options = Options(sharded);
  options.tensor_parallel = 2;
  options.device.num_threads = 3;
  options.kv.num_blocks = 80;
  options.max_batch_tokens = 99;
  EXPECT_EQ(fingerprint(options), expected);
}

TEST(FingerprintTest, ChangesWithEverythingThatATokenDependsOn) {
  const TinyModel model({.seed = 3});
  const LoadOptions options = Options(model);
  std::vector<std::string> text = {"text 1", "tokenizer", "template"};
  std::vector<std::string> seen = {MakeFingerprint(LoadModel(options)->fingerprint, text)};
  const auto differs = [&](const LoadOptions& changed, const std::string& what) {
    const auto loaded = LoadModel(changed);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const std::string fingerprint = MakeFingerprint(loaded->fingerprint, text);
    EXPECT_THAT(seen, ::testing::Not(::testing::Contains(fingerprint))) << what;
    seen.push_back(fingerprint);
  };
  LoadOptions changed = options;
  changed.precision.weights = "bf16";
  differs(changed, "weights");
  for (const char* type : {"int8", "int4"}) {
    changed.precision.weights = type;
    differs(changed, "weights");
  }
  for (const char* type : {"bf16", "int8"}) {
    changed = options;
    changed.precision.kv_dtype = type;
    differs(changed, "kv_dtype");
  }
  changed = options;
  changed.source.max_context_tokens = 200;
  differs(changed, "context");
  changed = options;
  changed.device.isa = "scalar";
  differs(changed, "instruction set");
  model.Write("generation_config.json", R"({"temperature":0.6})");
  differs(options, "generation defaults");
  model.Write("generation_config.json", R"({"eos_token_id":5})");
  differs(options, "end of sequence");
  std::string config = model.Read("config.json");
  config.replace(config.find("10000.0"), 7, "10001.0");
  model.Write("config.json", config);
  differs(options, "rope");
  std::string weights = model.Read("model.safetensors");
  weights.back() = static_cast<char>(weights.back() ^ 1);
  model.Write("model.safetensors", weights);
  differs(options, "one bit of the weights");
  text[2] = "other template";
  differs(options, "template");
  // The place where one part ends counts.
  text = {"text 1", "tokenizert", "emplate"};
  differs(options, "parts");
}

TEST(FingerprintTest, DigestIsXxh3) {
  // XXH3-128 of nothing, as the algorithm's specification gives it.
  EXPECT_EQ(ToHex(DigestOf(std::string_view())), "99aa06d3014798d86001c324468d497f");
}

}  // namespace
}  // namespace continuo::model
