// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/math/bfloat16.h"
#include "services/base/check.h"
#include "services/worker/model/load/model_loader.h"
#include "tests/testing/tiny_model.h"
#include "tests/worker/model/run/plan_builder.h"

// Whole models on a device beside the same models on the CPU. The cases run on whatever is linked:
// the shim or a device.
namespace continuo::testing {

inline model::LoadedModel LoadOn(const TinyModel& model, const std::string& device,
                                 bool deterministic = false, const std::string& kv_dtype = "auto",
                                 const std::string& weights = "auto", bool graphs = true,
                                 bool reads_mtp = false) {
  model::LoadOptions options;
  options.reads_mtp = reads_mtp;
  options.source.dir = model.dir();
  options.device.device = device;
  // The scalar loops have the same bits on every machine.
  if (device == "cpu") options.device.isa = "scalar";
  options.device.deterministic = deterministic;
  options.precision.kv_dtype = kv_dtype;
  options.precision.weights = weights;
  options.device.graphs = graphs;
  options.kv.num_blocks = 64;
  options.max_batch_tokens = 256;
  auto loaded = model::LoadModel(options);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  CONTINUO_CHECK(loaded.ok());
  return *std::move(loaded);
}

inline std::vector<int32_t> Prompt(int length, int vocab, uint32_t seed) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < length; ++i) {
    seed = seed * 1664525u + 1013904223u;
    tokens.push_back(static_cast<int32_t>((seed >> 8) % static_cast<uint32_t>(vocab)));
  }
  return tokens;
}

// Returns the steps of two prompts, which come in chunks beside each other, then row by row. Every
// row's next token is scored.
inline std::vector<model::StepPlan> ScoredSteps(int vocab, int block_size) {
  const std::vector<int32_t> a = Prompt(41, vocab, 1), b = Prompt(23, vocab, 2);
  model::SamplingParams params;
  params.num_logprobs = 0;
  std::vector<model::StepPlan> steps;
  // Adds rows [begin, end) of a prompt.
  const auto add = [&](PlanBuilder& builder, int id, const std::vector<int32_t>& tokens, int begin,
                       int end) {
    const std::span<const int32_t> rows(tokens.data() + begin, static_cast<size_t>(end - begin));
    builder.Add(id, begin, rows, AllOf(rows), params, 0);
    model::StepPlan& plan = builder.plan();
    for (int i = 0; i < end - begin; ++i) {
      plan.sample_targets[plan.sample_targets.size() - static_cast<size_t>(end - begin - i)] =
          tokens[static_cast<size_t>(begin + i + 1)];
    }
  };
  constexpr int kBlocks = 4;
  {
    PlanBuilder builder(block_size, kBlocks);
    add(builder, 0, a, 0, 17);
    add(builder, 1, b, 0, 20);
    steps.push_back(builder.plan());
  }
  {
    PlanBuilder builder(block_size, kBlocks);
    add(builder, 0, a, 17, 38);
    add(builder, 1, b, 20, 21);
    steps.push_back(builder.plan());
  }
  for (int i = 0; i < 2; ++i) {
    PlanBuilder builder(block_size, kBlocks);
    add(builder, 0, a, 38 + i, 39 + i);
    if (i == 0) add(builder, 1, b, 21, 22);
    steps.push_back(builder.plan());
  }
  return steps;
}

// Returns the log-probabilities of ScoredSteps.
inline std::vector<float> Scores(model::LoadedModel& model) {
  std::vector<float> scores;
  for (model::StepPlan& step : ScoredSteps(model.config.vocab_size, model.block_size)) {
    if (model.config.has_states()) PlaceStates(step);
    const auto result = model.executor->Run(step, [](std::span<uint32_t>) {});
    EXPECT_TRUE(result.ok()) << result.status();
    CONTINUO_CHECK(result.ok());
    for (const model::TokenScore& score : result->scores) scores.push_back(score.logprob);
  }
  return scores;
}

// Decodes two sequences, a row each, step after step. With graphs, the second step of its kind is
// captured, and later ones are replayed.
inline std::vector<float> DecodeScores(model::LoadedModel& model, int num_steps) {
  const std::vector<int32_t> a = Prompt(60, model.config.vocab_size, 1);
  std::vector<float> scores;
  model::SamplingParams params;
  params.num_logprobs = 0;
  for (int step = 0; step < num_steps; ++step) {
    PlanBuilder builder(model.block_size, 4);
    for (const int id : {0, 1}) {
      const std::span<const int32_t> row(a.data() + step + 7 * id, 1);
      builder.Add(id, step, row, LastOf(row), params, a[static_cast<size_t>(step + 1)]);
    }
    if (model.config.has_states()) PlaceStates(builder.plan());
    const auto result = model.executor->Run(builder.plan(), [](std::span<uint32_t>) {});
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return {};
    for (const model::TokenScore& score : result->scores) scores.push_back(score.logprob);
  }
  return scores;
}

// Returns the log-probabilities of ScoredSteps, and those that the MTP module gives behind each of
// their rows, and behind its own of the last step.
inline std::vector<float> MtpScores(model::LoadedModel& model) {
  std::vector<float> scores;
  const auto run = [&](const model::StepPlan& plan) {
    const auto result = model.executor->Run(plan, [](std::span<uint32_t>) {});
    EXPECT_TRUE(result.ok()) << result.status();
    CONTINUO_CHECK(result.ok());
    for (const model::TokenScore& score : result->scores) scores.push_back(score.logprob);
  };
  constexpr int32_t kGuess = 5;  // of which the module tells the log-probability
  model::StepPlan module;
  for (model::StepPlan& step : ScoredSteps(model.config.vocab_size, model.block_size)) {
    module = step;
    PlaceStates(step);
    run(step);
    module.token_ids = step.sample_targets;  // the token behind each row
    std::ranges::fill(module.sample_targets, kGuess);
    for (int32_t row = 0; row < module.num_rows(); ++row) module.hidden_rows.push_back(row);
    run(module);
  }
  CONTINUO_CHECK(module.num_rows() == 1);
  module.token_ids[0] = kGuess;
  for (std::vector<int32_t>* const at : {&module.positions, &module.kv_slots, &module.kv_len}) {
    ++at->front();
  }
  run(module);
  return scores;
}

inline void ExpectSameScores(const std::vector<float>& got, const std::vector<float>& expected,
                             float tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], tolerance) << i;
}

// Compares scores of rounded numbers with bounds of the largest difference and of the mean one,
// which is not 0.
inline void ExpectScoresNear(const std::vector<float>& got, const std::vector<float>& expected,
                             double largest, double mean) {
  ASSERT_EQ(got.size(), expected.size());
  double sum = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(got[i] - expected[i]);
    ASSERT_LT(difference, largest) << i;
    sum += difference;
  }
  EXPECT_LT(sum / static_cast<double>(got.size()), mean);
  EXPECT_GT(sum, 0);
}

// A family, the seed of its weights and fields of its configuration.
struct FamilyCase {
  const char* family;
  bool has_experts = false;
  uint64_t seed = 1;
  const char* extra_config = "{}";

  TinyModel Files(const std::string& dtype) const {
    return TinyModel(
        {.family = family, .seed = seed, .dtype = dtype, .extra_config = extra_config});
  }
};
// With these seeds no choice of experts is a near tie, which roundings would decide: CheckRouters
// asserts it.
inline constexpr FamilyCase kFamilyCases[] = {
    {"llama"},
    {"mistral"},
    {"qwen2"},
    {"qwen3"},
    {"gemma2"},
    {"phi3"},
    {"gemma3_text"},
    {"granite"},
    {"smollm3"},
    {"ministral3"},
    {"olmo3"},
    {"glm4"},
    {"cohere2"},
    {"exaone4"},
    {"hunyuan_v1_dense"},
    {"internlm2"},
    {"starcoder2"},
    {"lfm2"},
    {"qwen3_5_text"},
    {"granitemoehybrid", true, 185},
    {"nemotron_h", true, 12},
    {"mamba2"},
    {"lfm2_moe", true, 29},
    {"qwen3_next", true, 13},
    {"mixtral", true, 15},
    {"qwen3_moe", true, 9},
    {"olmoe", true, 168},
    {"qwen2_moe", true, 160},
    {"glm4_moe", true, 95},
    {"ernie4_5_moe", true, 1},
    {"gpt_oss", true, 10},
    {"llama4_text", true, 9},
    // Each of its layers has a router: of five experts, no seed of many keeps all choices apart.
    {"gemma4_text", true, 2181, R"({"num_experts": 3})"},
    {"deepseek_v2", true, 10},
    {"deepseek_v3", true, 9},
    {"glm4_moe_lite", true, 6},
};

// In fp32 a model differs by sums in another order; in bf16 by roundings to 8 bits in each layer,
// of logits whose size is about 1.
inline void CheckModels(const std::string& device) {
  for (const FamilyCase& c : kFamilyCases) {
    for (const char* dtype : {"fp32", "bf16"}) {
      SCOPED_TRACE(std::string(c.family) + " " + dtype);
      const TinyModel files = c.Files(dtype);
      model::LoadedModel cpu = LoadOn(files, "cpu");
      model::LoadedModel other = LoadOn(files, device);
      const bool narrow = std::string(dtype) == "bf16";
      ExpectSameScores(Scores(other), Scores(cpu), narrow ? 0.1f : 1e-3f);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// The same of experts that read a shorter vector, with a shared expert beside them.
inline void CheckLatentExperts(const std::string& device) {
  for (const char* dtype : {"fp32", "bf16"}) {
    SCOPED_TRACE(dtype);
    const TinyModel files({.family = "nemotron_h",
                           .seed = 12,
                           .dtype = dtype,
                           .extra_config = R"({"moe_latent_size": 20})"});
    model::LoadedModel cpu = LoadOn(files, "cpu"), other = LoadOn(files, device);
    const bool narrow = std::string(dtype) == "bf16";
    ExpectSameScores(Scores(other), Scores(cpu), narrow ? 0.1f : 1e-3f);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// The same of a module for multi-token prediction, which reads what the model left on the device.
inline void CheckMtp(const std::string& device) {
  for (const FamilyCase& c : {FamilyCase{"qwen3_5_text"}, FamilyCase{"qwen3_next", true, 13}}) {
    for (const char* dtype : {"fp32", "bf16"}) {
      SCOPED_TRACE(std::string(c.family) + " " + dtype);
      const TinyModel files({.family = c.family, .seed = c.seed, .mtp = true, .dtype = dtype});
      model::LoadedModel cpu = LoadOn(files, "cpu", false, "auto", "auto", true, true);
      model::LoadedModel other = LoadOn(files, device, false, "auto", "auto", true, true);
      const bool narrow = std::string(dtype) == "bf16";
      ExpectSameScores(MtpScores(other), MtpScores(cpu), narrow ? 0.1f : 1e-3f);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

struct RankCase {
  const char *family, *dtype, *weights;
  float tolerance;
};
inline constexpr RankCase kRankCases[] = {{"llama", "fp32", "auto", 1e-3f},
                                          {"qwen3_moe", "fp32", "auto", 1e-3f},
                                          {"lfm2", "fp32", "auto", 1e-3f},
                                          {"qwen3_5_text", "fp32", "auto", 1e-3f},
                                          {"granitemoehybrid", "fp32", "auto", 1e-3f},
                                          {"mamba2", "fp32", "auto", 1e-3f},
                                          {"gemma2", "bf16", "auto", 0.1f},
                                          {"qwen3", "fp16", "fp16", 0.0125f},
                                          {"llama", "fp32", "int8", 0.05f}};

// A model on cuda:0 and cuda:1 scores as on cuda:0 alone, prompts in chunks and decoding, with
// graphs and without, except for the order of sums over ranks. Where two ranks are `deterministic`,
// and add up in a tree, they have the same bits every time.
inline void CheckTwoRanks(const RankCase& c) {
  constexpr int kSteps = 6;
  const TinyModel files({.family = c.family, .dtype = c.dtype});
  for (const bool deterministic : {false, true}) {
    model::LoadedModel one = LoadOn(files, "cuda:0", deterministic, "auto", c.weights);
    const std::vector<float> expected = Scores(one), expected_steps = DecodeScores(one, kSteps);
    std::vector<std::vector<float>> prompts, steps;
    for (const bool graphs : {true, false}) {
      SCOPED_TRACE(::testing::Message()
                   << c.family << ' ' << c.dtype << ' ' << c.weights << ", deterministic "
                   << deterministic << ", graphs " << graphs);
      model::LoadedModel two = LoadOn(files, "cuda:0,1", deterministic, "auto", c.weights, graphs);
      EXPECT_EQ(two.ranks.size(), 2u);
      prompts.push_back(Scores(two));
      ExpectSameScores(prompts.back(), expected, c.tolerance);
      for (int again = 0; again < 2; ++again) {
        steps.push_back(DecodeScores(two, kSteps));
        ExpectSameScores(steps.back(), expected_steps, c.tolerance);
      }
      if (::testing::Test::HasFailure()) return;
    }
    if (!deterministic) continue;
    EXPECT_EQ(prompts[0], prompts[1]) << c.family;
    for (const std::vector<float>& other : steps) EXPECT_EQ(other, steps[0]) << c.family;
  }
}

// Makes each matrix of a model integers from -7 to 7 times a power of two, which every format
// keeps.
inline void RoundToSteps(const TinyModel& files) {
  std::string file = files.Read("model.safetensors");
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof(size));
  const auto header = nlohmann::json::parse(file.substr(sizeof(size), size));
  for (const auto& [name, tensor] : header.items()) {
    if (!tensor.contains("shape") || tensor["shape"].size() != 2) continue;
    const bool is_bf16 = tensor["dtype"] == "BF16";
    const size_t bytes = is_bf16 ? 2 : 4, begin = tensor["data_offsets"][0],
                 end = tensor["data_offsets"][1];
    char* const data = file.data() + sizeof(size) + size;
    std::vector<float> values;
    for (size_t at = begin; at < end; at += bytes) {
      uint32_t bits = 0;
      std::memcpy(&bits, data + at, bytes);
      values.push_back(is_bf16 ? kernels::FromBF16(static_cast<uint16_t>(bits))
                               : std::bit_cast<float>(bits));
    }
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::fabs(value));
    const float step = std::exp2(std::ceil(std::log2(largest / 7)));
    for (size_t k = 0; k < values.size(); ++k) {
      const float value = std::nearbyint(values[k] / step) * step;
      const uint32_t bits = is_bf16 ? kernels::ToBF16(value) : std::bit_cast<uint32_t>(value);
      std::memcpy(data + begin + k * bytes, &bits, bytes);
    }
  }
  files.Write("model.safetensors", file);
}

// The devices' groups differ, so weights are such that both keep them, also where a K split cuts a
// row into groups of 32. The CPU rounds activations to int8 as well: the bounds are between what
// that does to models of this size, some hundredths in the mean and a third at most, and what other
// weights do, which is about 1.
inline void CheckQuantisedModels(const std::string& device) {
  for (const char* family : {"llama", "qwen2", "gemma2", "qwen3_moe"}) {
    for (const char* weights : {"int8", "int4"}) {
      SCOPED_TRACE(std::string(family) + " " + weights);
      for (const char* dtype : {"fp32", "bf16"}) {
        const TinyModel files({.family = family,
                               .hidden_size = 256,
                               .intermediate_size = 256,
                               .num_heads = 8,
                               .head_dim = 32,
                               .dtype = dtype});
        RoundToSteps(files);
        model::LoadedModel cpu = LoadOn(files, "cpu", false, "auto", weights);
        model::LoadedModel other = LoadOn(files, device, false, "auto", weights);
        EXPECT_EQ(other.weight_format, weights);
        // A router that chooses otherwise now and then moves a score by more.
        const double largest = cpu.config.experts.num_experts > 0 ? 1 : 0.5;
        ExpectScoresNear(Scores(other), Scores(cpu), largest, 0.06);
      }
    }
  }
}

// Models stored and computed in fp16 beside the CPU's fp32. Activations have 11 bits, so scores
// move by an eighth of what bf16 moves them by. Keys and values are fp16 or bytes.
inline void CheckFp16Models(const std::string& device) {
  for (const char* family :
       {"llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe", "gemma2", "phi3"}) {
    SCOPED_TRACE(family);
    const TinyModel files({.family = family, .dtype = "fp16"});
    model::LoadedModel cpu = LoadOn(files, "cpu");
    model::LoadedModel other = LoadOn(files, device, false, "auto", "fp16");
    EXPECT_EQ(other.weight_format, "fp16");
    EXPECT_EQ(other.kv_format, "fp16");
    const std::vector<float> scores = Scores(other);
    ExpectSameScores(scores, Scores(cpu), 0.0125f);
    if (::testing::Test::HasFatalFailure()) return;
    model::LoadedModel named = LoadOn(files, device, false, "fp16", "fp16");
    EXPECT_EQ(Scores(named), scores);
  }
  for (const int head_dim : {8, 64}) {
    const TinyModel files({.head_dim = head_dim, .dtype = "fp16"});
    model::LoadedModel cpu = LoadOn(files, "cpu"), cpu_int8 = LoadOn(files, "cpu", false, "int8");
    model::LoadedModel int8 = LoadOn(files, device, false, "int8", "fp16");
    model::LoadedModel fp8 = LoadOn(files, device, false, "fp8", "fp16");
    ExpectSameScores(Scores(int8), Scores(cpu_int8), 0.05f);
    ExpectScoresNear(Scores(fp8), Scores(cpu), 0.5, 0.12);
  }
}

// Three bits of fraction in weights and activations move scores of models of this size by a fifth
// in the mean, other weights by about 1. The tests of the op show that products are right.
inline void CheckFp8Models(const std::string& device) {
  for (const char* family : {"llama", "qwen2", "gemma2", "qwen3_moe"}) {
    SCOPED_TRACE(family);
    const TinyModel files({.family = family, .dtype = "bf16"});
    model::LoadedModel cpu = LoadOn(files, "cpu");
    model::LoadedModel other = LoadOn(files, device, false, "auto", "fp8");
    EXPECT_EQ(other.weight_format, "fp8");
    ExpectScoresNear(Scores(other), Scores(cpu), 2, 0.35);
  }
}

// The device's own arithmetic beside the CPU's with the same keys and values. The CPU does not
// store e4m3, so that is beside the CPU's unrounded ones: three bits of fraction in keys and values
// move scores of models of this size by some hundredths in the mean, other keys or values by about
// 1. Sums in another order may round a number to the next of its int8 codes, which moves scores of
// fp32 models by some thousandths. Rows of heads of 64 are 16-byte aligned.
inline void CheckKvTypes(const std::string& device) {
  for (const auto& [family, head_dim] : {std::pair{"llama", 8}, std::pair{"gemma2", 8},
                                         std::pair{"qwen3", 8}, std::pair{"llama", 64}}) {
    for (const char* dtype : {"fp32", "bf16"}) {
      SCOPED_TRACE(::testing::Message() << family << " " << dtype << " heads of " << head_dim);
      const TinyModel files({.family = family, .head_dim = head_dim, .dtype = dtype});
      model::LoadedModel cpu = LoadOn(files, "cpu"), cpu_int8 = LoadOn(files, "cpu", false, "int8");
      model::LoadedModel int8 = LoadOn(files, device, false, "int8");
      model::LoadedModel fp8 = LoadOn(files, device, false, "fp8");
      EXPECT_EQ(int8.fingerprint.kv_format, "int8");
      EXPECT_EQ(fp8.kv_format, "fp8");
      EXPECT_EQ(fp8.fingerprint.kv_format, "fp8");
      const bool narrow = std::string(dtype) == "bf16";
      ExpectSameScores(Scores(int8), Scores(cpu_int8), narrow ? 0.1f : 1e-2f);
      ExpectScoresNear(Scores(fp8), Scores(cpu), 0.5, 0.12);
    }
  }
}

}  // namespace continuo::testing
