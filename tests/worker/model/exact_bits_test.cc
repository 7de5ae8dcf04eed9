// SPDX-License-Identifier: Apache-2.0
// The whole model (exactness: fixed-k-order, fixed-attention-chunks): a row's logits have the same
// bits whatever runs beside it, however its prompt was cut, and on however many ranks and threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "kernels/math/arithmetic.h"
#include "services/worker/model/checkpoint/fingerprint.h"
#include "tests/testing/tiny_model.h"
#include "tests/worker/model/model_harness.h"
#include "tests/worker/model/run/plan_builder.h"

namespace continuo::testing {
namespace {

using Tokens = std::vector<int32_t>;

std::vector<Tokens> RandomSequences(uint32_t seed, int vocab) {
  std::mt19937 random(seed);
  std::vector<Tokens> sequences;
  for (const size_t length : {1u, 2u, 17u, 65u, 130u, 200u}) {
    Tokens tokens(length);
    for (int32_t& id : tokens) {
      id = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab));
    }
    sequences.push_back(tokens);
  }
  return sequences;
}

using Logits = std::vector<float>;

// Returns the logits of each sequence's last row, each run alone and whole.
std::vector<Logits> Alone(ModelHarness& harness, const std::vector<Tokens>& sequences,
                          int block_size) {
  std::vector<Logits> all;
  for (size_t i = 0; i < sequences.size(); ++i) {
    PlanBuilder builder(block_size, 256 / block_size);
    builder.Add(static_cast<int>(i), 0, sequences[i], LastOf(sequences[i]));
    all.push_back(harness.Run(builder.plan()));
  }
  return all;
}

// Returns the same, in random chunks, with all sequences mixed in every step. Every row of some
// chunks is sampled, and none of others.
std::vector<Logits> Mixed(ModelHarness& harness, const std::vector<Tokens>& sequences,
                          uint32_t seed, int block_size) {
  std::mt19937 random(seed);
  std::vector<Logits> all(sequences.size());
  std::vector<size_t> done(sequences.size(), 0);
  while (true) {
    PlanBuilder builder(block_size, 256 / block_size);
    std::vector<std::pair<size_t, int>> ended;  // sequences and their last rows' samples
    for (size_t i = 0; i < sequences.size(); ++i) {
      const size_t left = sequences[i].size() - done[i];
      const size_t n = std::min<size_t>(left, random() % 3 == 0 ? 1 : random() % 40);
      if (n == 0) continue;
      const auto tokens = std::span(sequences[i]).subspan(done[i], n);
      const Tokens sampled = random() % 4 == 0 ? AllOf(tokens)
                             : n == left       ? LastOf(tokens)
                                               : Tokens{};
      builder.Add(static_cast<int>(i), static_cast<int>(done[i]), tokens, sampled);
      done[i] += n;
      if (n == left) ended.emplace_back(i, builder.plan().num_samples() - 1);
    }
    if (builder.plan().num_rows() == 0) {
      if (std::all_of(all.begin(), all.end(), [](const Logits& l) { return !l.empty(); })) break;
      continue;
    }
    const Logits logits = harness.Run(builder.plan());
    const size_t vocab = static_cast<size_t>(harness.config().vocab_size);
    for (const auto& [sequence, sample] : ended) {
      const auto row = std::span(logits).subspan(static_cast<size_t>(sample) * vocab, vocab);
      all[sequence].assign(row.begin(), row.end());
    }
  }
  return all;
}

void ExpectSameBits(const std::vector<Logits>& a, const std::vector<Logits>& b,
                    const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].size(), b[i].size());
    EXPECT_EQ(std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)), 0)
        << what << ", sequence " << i;
  }
}

std::unique_ptr<ModelHarness> Harness(const TinyModel& model, HarnessOptions options) {
  options.num_blocks = 6 * 256 / options.block_size;
  auto harness = ModelHarness::Make(model.dir(), options);
  EXPECT_TRUE(harness.ok()) << harness.status();
  return *std::move(harness);
}

struct Case {
  std::string family;
  kernels::DType dtype;
  kernels::WeightType weights =
      kernels::WeightType::kF32;  // quantised ones: beside the activations' type
  bool int8_kv = false;
};

HarnessOptions OptionsOf(const Case& c) {
  HarnessOptions options = {.dtype = c.dtype,
                            .kv_dtype = c.int8_kv ? kernels::DType::kI8 : c.dtype};
  if (c.weights != kernels::WeightType::kF32) options.weights = c.weights;
  return options;
}

class ExactBitsTest : public ::testing::TestWithParam<Case> {};

TEST_P(ExactBitsTest, DoNotDependOnBatchChunksBlocksThreadsOrRanks) {
  const Case& c = GetParam();
  const TinyModel model({.family = c.family, .tied_embeddings = c.family != "mistral"});
  for (const std::string& isa : UsableIsas()) {
    HarnessOptions options = OptionsOf(c);
    options.isa = isa;
    const auto base = Harness(model, options);
    const std::vector<Tokens> sequences = RandomSequences(7, base->config().vocab_size);
    const std::vector<Logits> expected = Alone(*base, sequences, 16);
    ExpectSameBits(expected, Mixed(*base, sequences, 1, 16), isa + ", mixed");
    for (const int ranks : {2, 4, 8}) {
      options.tensor_parallel = ranks;
      const auto harness = Harness(model, options);
      ExpectSameBits(expected, Mixed(*harness, sequences, 2, 16),
                     isa + ", " + std::to_string(ranks) + " ranks");
    }
    options.tensor_parallel = 1;
    options.threads = 3;
    options.block_size = 4;
    const auto threads = Harness(model, options);
    ExpectSameBits(expected, Mixed(*threads, sequences, 3, 4), isa + ", threads, small blocks");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, ExactBitsTest,
    ::testing::Values(
        Case{"llama", kernels::DType::kF32}, Case{"llama", kernels::DType::kBF16},
        Case{"mistral", kernels::DType::kF32}, Case{"qwen2", kernels::DType::kF32},
        Case{"qwen3", kernels::DType::kBF16}, Case{"mixtral", kernels::DType::kF32},
        Case{"qwen3_moe", kernels::DType::kBF16}, Case{"gemma2", kernels::DType::kF32},
        Case{"gemma2", kernels::DType::kBF16}, Case{"phi3", kernels::DType::kBF16},
        Case{"gemma3_text", kernels::DType::kF32}, Case{"gemma3_text", kernels::DType::kBF16},
        Case{"granite", kernels::DType::kF32}, Case{"smollm3", kernels::DType::kBF16},
        Case{"ministral3", kernels::DType::kF32}, Case{"seed_oss", kernels::DType::kF32},
        Case{"olmo2", kernels::DType::kF32}, Case{"olmo3", kernels::DType::kBF16},
        Case{"glm4", kernels::DType::kF32}, Case{"cohere2", kernels::DType::kF32},
        Case{"cohere2", kernels::DType::kBF16}, Case{"exaone4", kernels::DType::kF32},
        Case{"ernie4_5", kernels::DType::kF32}, Case{"hunyuan_v1_dense", kernels::DType::kF32},
        Case{"internlm2", kernels::DType::kF32}, Case{"minicpm", kernels::DType::kBF16},
        Case{"starcoder2", kernels::DType::kF32}, Case{"olmoe", kernels::DType::kF32},
        Case{"granitemoeshared", kernels::DType::kF32}, Case{"qwen2_moe", kernels::DType::kBF16},
        Case{"glm4_moe", kernels::DType::kF32}, Case{"ernie4_5_moe", kernels::DType::kF32},
        Case{"gpt_oss", kernels::DType::kF32}, Case{"gpt_oss", kernels::DType::kBF16},
        Case{"deepseek_v2", kernels::DType::kF32}, Case{"deepseek_v3", kernels::DType::kF32},
        Case{"deepseek_v3", kernels::DType::kBF16}, Case{"glm4_moe_lite", kernels::DType::kF32},
        Case{"lfm2", kernels::DType::kF32}, Case{"lfm2", kernels::DType::kBF16},
        Case{"lfm2", kernels::DType::kBF16, kernels::WeightType::kInt4, true},
        Case{"qwen3_5_text", kernels::DType::kF32}, Case{"qwen3_5_text", kernels::DType::kBF16},
        Case{"qwen3_5_text", kernels::DType::kBF16, kernels::WeightType::kInt8, true},
        Case{"qwen3_5_moe_text", kernels::DType::kF32}, Case{"qwen3_next", kernels::DType::kF32},
        Case{"lfm2_moe", kernels::DType::kF32}, Case{"granitemoehybrid", kernels::DType::kF32},
        Case{"granitemoehybrid", kernels::DType::kBF16, kernels::WeightType::kInt8, true},
        Case{"nemotron_h", kernels::DType::kF32},
        Case{"nemotron_h", kernels::DType::kBF16, kernels::WeightType::kInt8, true},
        Case{"mamba2", kernels::DType::kF32}, Case{"mamba2", kernels::DType::kBF16},
        Case{"llama4_text", kernels::DType::kF32}, Case{"llama4_text", kernels::DType::kBF16},
        Case{"llama4_text", kernels::DType::kBF16, kernels::WeightType::kInt8, true},
        Case{"gemma4_text", kernels::DType::kF32}, Case{"gemma4_text", kernels::DType::kBF16},
        Case{"gemma4_text", kernels::DType::kBF16, kernels::WeightType::kInt8, true},
        Case{"gpt_oss", kernels::DType::kBF16, kernels::WeightType::kInt4, true},
        Case{"qwen2_moe", kernels::DType::kBF16, kernels::WeightType::kInt8},
        Case{"deepseek_v3", kernels::DType::kBF16, kernels::WeightType::kInt8, true},
        Case{"olmo2", kernels::DType::kBF16, kernels::WeightType::kInt8},
        Case{"cohere2", kernels::DType::kBF16, kernels::WeightType::kInt8},
        Case{"starcoder2", kernels::DType::kBF16, kernels::WeightType::kInt4},
        Case{"glm4", kernels::DType::kBF16, kernels::WeightType::kInt4, true},
        Case{"qwen3", kernels::DType::kBF16, kernels::WeightType::kInt8},
        Case{"gemma2", kernels::DType::kF32, kernels::WeightType::kInt4},
        Case{"qwen3_moe", kernels::DType::kF32, kernels::WeightType::kInt8},
        Case{"phi3", kernels::DType::kBF16, kernels::WeightType::kInt4},
        Case{"qwen3", kernels::DType::kBF16, kernels::WeightType::kF32, true},
        Case{"gemma2", kernels::DType::kF32, kernels::WeightType::kF32, true},
        Case{"mixtral", kernels::DType::kBF16, kernels::WeightType::kInt8, true}),
    [](const auto& info) {
      const Case& c = info.param;
      std::string name = c.family + (c.dtype == kernels::DType::kF32 ? "_fp32" : "_bf16");
      if (c.weights != kernels::WeightType::kF32)
        name += std::string("_weights_") + NameOf(c.weights);
      if (c.int8_kv) name += "_kv_int8";
      return name;
    });

TEST(Bf16Test, LogitsAreNearThoseInFp32) {
  const TinyModel model({.family = "qwen3", .dtype = "bf16"});
  const auto sequences = RandomSequences(3, 301);
  const auto f32 = Harness(model, {.dtype = kernels::DType::kF32});
  const std::vector<Logits> exact = Alone(*f32, sequences, 16);
  double scale = 0;
  for (const Logits& logits : exact) {
    for (const float l : logits) scale = std::max(scale, std::abs(static_cast<double>(l)));
  }
  for (const auto& [dtype, kv_dtype] : {std::pair{kernels::DType::kBF16, kernels::DType::kBF16},
                                        std::pair{kernels::DType::kF32, kernels::DType::kBF16},
                                        std::pair{kernels::DType::kBF16, kernels::DType::kF32}}) {
    const auto bf16 = Harness(model, {.dtype = dtype, .kv_dtype = kv_dtype});
    const std::vector<Logits> rounded = Alone(*bf16, sequences, 16);
    double error = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      for (size_t j = 0; j < exact[i].size(); ++j) {
        error = std::max(error, std::abs(static_cast<double>(exact[i][j]) - rounded[i][j]));
      }
    }
    // A rounding to 8 bits moves a value by 2^-8 of it at most and by less than half of that in the
    // mean; about a dozen in a row per layer add up like a random walk.
    EXPECT_LE(error, scale * 12 * 0x1p-9);
    EXPECT_GT(error, 0);
  }
}

// Rounding weights and rows, or keys and values, to integers moves logits, by less the more bits
// there are. A group's largest element is some 2.5 times the typical one, so a rounding loses
// about 2.5/127/√12 of it, or 2.5/8/√12; a dozen products in turn add up like a random walk.
TEST(QuantisedTest, LogitsAreNearThoseInFp32) {
  // Experts are left out: where two are nearly equal, a rounding picks the other one.
  for (const std::string family : {"llama", "qwen3", "gemma2", "phi3"}) {
    const TinyModel model({.family = family, .hidden_size = 256, .intermediate_size = 512});
    const auto sequences = RandomSequences(4, 301);
    const std::vector<Logits> exact = Alone(*Harness(model, {}), sequences, 16);
    double size = 0;
    for (const Logits& logits : exact) {
      for (const float l : logits) size += static_cast<double>(l) * l;
    }
    const HarnessOptions int8 = {.weights = kernels::WeightType::kInt8};
    const HarnessOptions int4 = {.weights = kernels::WeightType::kInt4};
    const HarnessOptions int8_kv = {.kv_dtype = kernels::DType::kI8};
    for (const auto& [options, bound] : {std::pair{int8, 0.03}, {int4, 0.35}, {int8_kv, 0.03}}) {
      const auto rounded = Alone(*Harness(model, options), sequences, 16);
      double error = 0;
      for (size_t i = 0; i < exact.size(); ++i) {
        for (size_t j = 0; j < exact[i].size(); ++j) {
          const double difference = static_cast<double>(exact[i][j]) - rounded[i][j];
          error += difference * difference;
        }
      }
      EXPECT_LE(std::sqrt(error / size), bound)
          << family << " " << NameOf(options.weights.value_or(kernels::WeightType::kF32));
      EXPECT_GT(error, 0);
    }
  }
}

// The bits of the logits of fixed models, by instruction set. Whoever changes one must raise
// kArithmeticVersion, since workers of both builds may serve one stream.
TEST(PinnedBitsTest, LogitsAreThoseOfTheArithmeticVersion) {
  EXPECT_EQ(kernels::kArithmeticVersion, 5);
  struct Pinned {
    const char* isa;
    const char* llamas;  // and their like
    const char* others;
    const char* quantised;
  };
  constexpr Pinned kPinned[] = {
      {"scalar", "9580fd175e84dc12561d17f6c0a44658", "cd86ae21b2a779a5b589a567456a0ca2",
       "abc19445ca40ed36ad7efa5a2d58731bddaee257741dabdffce2cc2102f2a063"},
      {"avx2", "94ffc92f513c8bd635f37daa9db104e6", "cd13912bdc3992ad9f3eb266dfe4069b",
       "c04d167d3cfcd7739dd561a96fb2cf835d86927f577cd8c7cf3b1935c8271fe0"},
      {"avx512", "ebf29093ab53cbd6eff385d1542b4d4b", "2e74e04f16c5cf9a5063d22c9207cf73",
       "0a86e1a6b78291dc92393dd397780b94878104ac624b6787cc9a6b8fa3b6847c"},
      {"avx512_bf16", "619ef20cd605489674b9ff7aeb6c62eb", "533587b7228edd625d380fb7c8748ef6",
       "157dae81a531e7e005ed841be32f723a068f208f2e4904ea5d422e439746b6f1"},
  };
  const auto digest = [](const std::string& isa, const std::vector<std::string>& families,
                         std::optional<kernels::WeightType> weights = std::nullopt) {
    std::string bytes;
    for (const std::string& family : families) {
      for (const kernels::DType dtype : {kernels::DType::kF32, kernels::DType::kBF16}) {
        const TinyModel model({.family = family,
                               .hidden_size = 72,
                               .intermediate_size = 152,
                               .head_dim = 20,
                               .seed = 5});
        const auto harness =
            Harness(model, {.isa = isa, .dtype = dtype, .weights = weights, .kv_dtype = dtype});
        for (const Logits& logits : Alone(*harness, RandomSequences(5, 301), 16)) {
          bytes.append(reinterpret_cast<const char*>(logits.data()), logits.size() * sizeof(float));
        }
      }
    }
    return model::ToHex(model::DigestOf(bytes));
  };
  for (const std::string& isa : UsableIsas()) {
    const auto* pinned = std::find_if(std::begin(kPinned), std::end(kPinned),
                                      [&](const Pinned& p) { return isa == p.isa; });
    ASSERT_NE(pinned, std::end(kPinned)) << "no bits are pinned for " << isa;
    EXPECT_EQ(digest(isa, {"llama", "mistral", "qwen2", "qwen3"}), pinned->llamas) << isa;
    EXPECT_EQ(digest(isa, {"mixtral", "qwen3_moe", "gemma2", "phi3"}), pinned->others) << isa;
    EXPECT_EQ(digest(isa, {"qwen3", "mixtral"}, kernels::WeightType::kInt8) +
                  digest(isa, {"qwen3", "mixtral"}, kernels::WeightType::kInt4),
              pinned->quantised)
        << isa;
  }
}

// Returns the digest of the logits of tiny models of the families, in fp32.
std::string DigestOfLogits(const std::string& isa, std::initializer_list<const char*> families) {
  std::string bytes;
  for (const char* family : families) {
    const TinyModel model({.family = family, .seed = 5});
    const auto harness = Harness(model, {.isa = isa});
    for (const Logits& logits : Alone(*harness, RandomSequences(5, 301), 16)) {
      bytes.append(reinterpret_cast<const char*>(logits.data()), logits.size() * sizeof(float));
    }
  }
  return model::ToHex(model::DigestOf(bytes));
}

// The families that are described by their mechanisms, in fp32, where avx512_bf16 does as avx512.
TEST(PinnedBitsTest, LogitsOfNewerFamiliesAreThoseOfTheArithmeticVersion) {
  const std::map<std::string, std::string> pinned = {
      {"scalar", "259c9912863019a86156d5a304580d88"},
      {"avx2", "9a90b30759d9a927b4d8f735ed54ae42"},
      {"avx512", "1039093ce0f48d5a1fa54223ae76d3bf"},
      {"avx512_bf16", "1039093ce0f48d5a1fa54223ae76d3bf"}};
  for (const std::string& isa : UsableIsas()) {
    ASSERT_TRUE(pinned.contains(isa)) << "no bits are pinned for " << isa;
    EXPECT_EQ(
        DigestOfLogits(isa, {"gemma3_text", "granite", "smollm3", "ministral3", "seed_oss", "olmo2",
                             "olmo3", "glm4", "cohere2", "exaone4", "ernie4_5", "hunyuan_v1_dense",
                             "internlm2", "internlm3", "minicpm", "starcoder2"}),
        pinned.at(isa))
        << isa;
  }
}

// Families with states in fp32, on the instruction sets whose bits are pinned.
TEST(PinnedBitsTest, LogitsOfStatesAreThoseOfTheArithmeticVersion) {
  const std::map<std::string, std::map<std::string, std::string>> pinned = {
      {"scalar",
       {
           {"lfm2", "0220f50c2cc316364299a0a377d0e49e"},
           {"qwen3_5_text", "dbdad877c66928fe9f4ba2bf720d86f8"},
           {"lfm2_moe", "e3eb7f555a2f73d611965db4a7d70a7e"},
           {"qwen3_5_moe_text", "cd3e4d9af8d4cb404696fa9e66ec6491"},
           {"qwen3_next", "33ecce9a50790458b471a4a8ab043886"},
           {"granitemoehybrid", "82781f2693e0d7743613de4f53ce4b08"},
           {"nemotron_h", "3952741409e45a86bf48a2292a2e2373"},
           {"mamba2", "be6bdb4580ceec40407ad705e872134c"},
       }},
      {"avx2",
       {
           {"lfm2", "0b2a0498ec540f8e9b7c15832e1d2e35"},
           {"qwen3_5_text", "e7addf597b0d41e0008c874215ba6751"},
           {"lfm2_moe", "5670ce9c7869b7c0c3c4e35863b9ed2e"},
           {"qwen3_5_moe_text", "5afa81a1bd43abbd7c5056de61ba0de7"},
           {"qwen3_next", "16a9cbd4161868356c13ee6ac01d5304"},
           {"granitemoehybrid", "19954130207b48d93b7a29ec1ba051f9"},
           {"nemotron_h", "d5f34ccb3e1555548e45f0738710bd69"},
           {"mamba2", "f0e0dd3b2be8accf56fde83a7a1b041e"},
       }},
  };
  const std::vector<std::string> usable = UsableIsas();
  for (const auto& [isa, digests] : pinned) {
    if (std::ranges::find(usable, isa) == usable.end()) continue;
    for (const auto& [family, digest] : digests) {
      EXPECT_EQ(DigestOfLogits(isa, {family.c_str()}), digest) << isa << ", " << family;
    }
  }
}

// The families with experts and latent vectors, in fp32 too.
TEST(PinnedBitsTest, LogitsOfExpertsAndLatentVectorsAreThoseOfTheArithmeticVersion) {
  const std::map<std::string, std::string> pinned = {
      {"scalar", "e892663476e76335d99caf2f86cf8509"},
      {"avx2", "2ee4c841b380adeda4c37eb4080a9e71"},
      {"avx512", "5d5e85c5acb276abf44f2079c41bfb82"},
      {"avx512_bf16", "5d5e85c5acb276abf44f2079c41bfb82"}};
  for (const std::string& isa : UsableIsas()) {
    ASSERT_TRUE(pinned.contains(isa)) << "no bits are pinned for " << isa;
    EXPECT_EQ(
        DigestOfLogits(isa, {"olmoe", "granitemoeshared", "qwen2_moe", "glm4_moe", "ernie4_5_moe",
                             "gpt_oss", "deepseek_v2", "deepseek_v3", "glm4_moe_lite"}),
        pinned.at(isa))
        << isa;
  }
}

// Families whose layers differ in the positions and heads that they have, in fp32.
TEST(PinnedBitsTest, LogitsOfLayersThatDifferAreThoseOfTheArithmeticVersion) {
  const std::map<std::string, std::map<std::string, std::string>> pinned = {
      {"scalar",
       {{"llama4_text", "b647f03367e9a143845d509ab55b91c7"},
        {"gemma4_text", "6baab0d8814e44d7ab44a07d55be9a1e"}}},
      {"avx2",
       {{"llama4_text", "1703b63f9e11f04f3f54d7c0403b0e1e"},
        {"gemma4_text", "898257bd5ba421ad3929a776d5505964"}}},
      {"avx512",
       {{"llama4_text", "88780530c18e79ea02a088ef5aeef078"},
        {"gemma4_text", "522fddac9c30b1c6c9e6d87c3d2d2b53"}}},
      {"avx512_bf16",
       {{"llama4_text", "88780530c18e79ea02a088ef5aeef078"},
        {"gemma4_text", "522fddac9c30b1c6c9e6d87c3d2d2b53"}}},
  };
  for (const std::string& isa : UsableIsas()) {
    ASSERT_TRUE(pinned.contains(isa)) << "no bits are pinned for " << isa;
    for (const auto& [family, digest] : pinned.at(isa)) {
      EXPECT_EQ(DigestOfLogits(isa, {family.c_str()}), digest) << isa << ", " << family;
    }
  }
}

}  // namespace
}  // namespace continuo::testing
