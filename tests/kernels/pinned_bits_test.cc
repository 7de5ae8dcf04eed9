// SPDX-License-Identifier: Apache-2.0
// Pins the bits of every op on fixed inputs, for each instruction set. They must be the same in
// every build type, under every sanitizer and compiler. Whoever means to change them raises
// kArithmeticVersion (kernels/math/arithmetic.h) and writes the new ones here; a failure prints
// them.
#include <cstdio>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "kernels/adapters/adapter_ops.h"
#include "kernels/device.h"
#include "kernels/math/arithmetic.h"
#include "kernels/math/exact_math.h"
#include "tests/kernels/grouped_weight.h"
#include "tests/kernels/host_tensor.h"
#include "tests/kernels/packed_weight.h"
#include "tests/kernels/paged_case.h"

namespace continuo::testing {
namespace {

using PinnedBitsTest = IsaTest;
INSTANTIATE_FOR_ISAS(PinnedBitsTest);

uint64_t Hash(uint64_t hash, const std::vector<std::byte>& bytes) {  // FNV-1a
  for (const std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3u;
  return hash;
}

std::string Hex(uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

using Hashes = std::map<std::string, uint64_t>;

template <typename Take>
void HashAdapters(kernels::Device& device, const Take& take) {
  using kernels::DType;
  Random random(20261130);
  const HostTensor rows = HostTensor::OfInts({4, 0, 3});
  const std::vector<int64_t> splits = {0, 40, 75};
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const DType stored : {DType::kF32, DType::kBF16}) {
      const HostTensor x = HostTensor::Of(type, 5, 75, random);
      const HostTensor a = HostTensor::Of(stored, 75, 9, random);
      const HostTensor b = HostTensor::Of(stored, 9, 85, random);
      HostTensor inner = HostTensor::Poisoned(DType::kF32, 3, 11);
      HostTensor out = HostTensor::Of(type, 5, 85, random);
      const kernels::ShrinkGroup shrink = {0, 3, a};
      device.ops().adapters->Shrink(inner, x, rows, std::span(&shrink, 1), splits);
      take("Adapters", inner);
      const kernels::ExpandGroup expand = {1, 3, b, 2, 0.7f};
      device.ops().adapters->Expand(out, inner, rows, std::span(&expand, 1));
      take("Adapters", out);
    }
  }
}

// Ops of layers with state: two steps of one sequence, the state in a slot between them.
template <typename Take>
void HashStates(kernels::Device& device, const Take& take) {
  using kernels::DType;
  Random random(20261128);
  const HostTensor begin = HostTensor::OfInts({0, 7}), fresh = HostTensor::OfInts({-1}),
                   kept = HostTensor::OfInts({1}),
                   to = HostTensor::OfInts({-1, -1, 0, -1, -1, -1, 1});
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const HostTensor x = HostTensor::Of(type, 7, 85, random);
    const HostTensor taps = HostTensor::Of(DType::kF32, 4, 85, random);
    HostTensor out = HostTensor::Poisoned(type, 7, 85);
    HostTensor rows(type, {2, 3, 85});
    device.ops().states.CausalConv(out, x, {taps}, /*silu=*/false, rows, {begin, fresh, to});
    take("CausalConv", out);
    take("CausalConv", rows);
    device.ops().states.CausalConv(out, x, {taps}, /*silu=*/true, rows, {begin, kept, to});
    take("CausalConv with silu", out);
    const HostTensor gates = HostTensor::Of(type, 7, 4, random, 5.0f);
    const HostTensor rate = HostTensor::OfFloats({-0.1f, -1, -4, -16});
    const HostTensor bias = HostTensor::Of(DType::kF32, 4, 1, random);
    HostTensor decay = HostTensor::Poisoned(DType::kF32, 7, 4), strength = decay.Clone();
    device.ops().states.StateDecay(decay, strength, gates, rate, bias, 0.001f, 0.1f);
    take("StateDecay", decay);
    take("StateDecay", strength);
    device.ops().states.Sigmoid(strength, gates);
    take("Sigmoid", strength);
    const HostTensor q = HostTensor::Of(type, 7, 2 * 18, random);
    const HostTensor k = HostTensor::Of(type, 7, 2 * 18, random, 0.2f);
    const HostTensor v = HostTensor::Of(type, 7, 4 * 37, random);
    const HostTensor skip = HostTensor::Of(DType::kF32, 4, 1, random);
    for (const auto rule : {kernels::StateUpdate::Rule::kDelta, kernels::StateUpdate::Rule::kSum}) {
      kernels::StateUpdate update;
      update.rule = rule;
      update.q = q;
      update.k = k;
      update.v = v;
      update.decay = decay;
      update.strength = strength;
      update.skip = skip;
      update.num_heads = 4;
      update.num_key_heads = 2;
      HostTensor states(DType::kF32, {2, 4, 18 * 37});
      HostTensor results = HostTensor::Poisoned(type, 7, 4 * 37);
      device.ops().states.UpdateStates(results, update, states, {begin, fresh, to});
      device.ops().states.UpdateStates(results, update, states, {begin, kept, to});
      take("UpdateStates", results);
      take("UpdateStates", states);
    }
  }
}

// Products with the integers of files, in K splits of which one is empty. Each format has numbers
// of its own, so that another one does not change them.
template <typename Take>
void HashGroups(kernels::Device& device, const Take& take) {
  for (const GroupCase& c : GroupCases()) {
    Random random(62);
    const int64_t unit = c.groups.unit, k = 4 * unit;
    const StoredMatrix stored(c, 45, k, random);
    const std::vector<int64_t> cut = {0, unit, unit, 2 * unit, k};
    const GroupedWeight w(device, stored, stored.Elements(), cut);
    const HostTensor x = HostTensor::Of(kernels::DType::kBF16, 7, k, random, 1.7f);
    HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 7, 45);
    device.ops().matmul.MatMulSplitK(out, x, w.weight(), cut);
    take("MatMul stored " + c.name, out);
  }
}

// Packed f32, and the activation of encoders.
template <typename Take>
void HashFloatPanels(kernels::Device& device, const Take& take) {
  Random random(41);
  const std::vector<int64_t> cut = {0, 21, 43, 64, 86, 107, 129, 150, 172}, whole = {0, 172};
  const HostTensor x = HostTensor::Of(kernels::DType::kF32, 7, 172, random, 1.7f);
  const HostTensor w = HostTensor::Of(kernels::DType::kF32, 45, 172, random);
  HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 7, 45);
  const PackedWeight split(device, kernels::WeightType::kF32, w, cut);
  device.ops().matmul.MatMulSplitK(out, x, split.weight(), cut);
  take("MatMul packed f32", out);
  const PackedWeight packed(device, kernels::WeightType::kF32, w, whole);
  const HostTensor bias = HostTensor::Of(kernels::DType::kF32, 1, 45, random);
  device.ops().matmul.ActivatedMatMul(x.tensor(), {out, packed.weight(), bias},
                                      kernels::GateFunction::kGeluErf);
  take("ActivatedMatMul packed f32", out);
}

Hashes HashOps(kernels::Device& device) {
  Hashes hashes;
  const auto take = [&](const std::string& op, const HostTensor& t) {
    const auto [it, is_new] = hashes.emplace(op, 0xcbf29ce484222325u);
    it->second = Hash(it->second, t.bytes());
  };
  Random random(20261121);
  for (const kernels::DType type : {kernels::DType::kF32, kernels::DType::kBF16}) {
    const int64_t rows = 7, cols = 172;
    const HostTensor x = HostTensor::Of(type, rows, cols, random, 1.7f);
    const HostTensor gain = HostTensor::Of(type, 1, cols, random);
    const HostTensor bias = HostTensor::Of(kernels::DType::kF32, 1, 45, random);
    for (const kernels::DType weight_type :
         {kernels::DType::kF32, kernels::DType::kBF16, kernels::DType::kF16}) {
      const HostTensor w = HostTensor::Of(weight_type, 45, cols, random);
      HostTensor out = HostTensor::Poisoned(type, rows, 45);
      device.ops().matmul.MatMul(out, x, w.weight(), bias);
      take("MatMul", out);
      HostTensor sum = HostTensor::Poisoned(kernels::DType::kF32, rows, 45);
      device.ops().matmul.MatMulSplitK(sum, x, w.weight(),
                                       std::vector<int64_t>{0, 21, 43, 64, 86, 107, 129, 150, 172});
      take("MatMulSplitK", sum);
    }
    HostTensor y = HostTensor::Poisoned(type, rows, cols);
    device.ops().rows.RmsNorm(y, x, gain, 1e-5f);
    take("RmsNorm", y);
    y = x.Clone();
    // Every tensor is made in a statement of its own or as the only one of a call, because the
    // compiler chooses the order of arguments.
    const HostTensor sum_bias = HostTensor::Of(kernels::DType::kF32, 1, cols, random, 0.7f);
    device.ops().rows.AddSum(y, HostTensor::Of(kernels::DType::kF32, rows, cols, random, 0.3f),
                             sum_bias);
    take("AddSum", y);
    HostTensor frequencies(kernels::DType::kF32, 1, 32), angles(kernels::DType::kF32, rows, 64);
    for (int i = 0; i < 32; ++i) {
      frequencies.Set(i, static_cast<float>(kernels::ExactPow(10000.0, -i / 32.0)));
    }
    take("ExactPow", frequencies);
    device.ops().attention.RopeAngles(
        angles, HostTensor::OfInts({0, 1, 5, 77, 1000, 40000, 131071}), frequencies, 1.1f);
    take("RopeAngles", angles);
    y = x.Clone();
    device.ops().attention.Rope(y, angles, 86);
    take("Rope", y);
    device.ops().rows.GateMul(kernels::GateFunction::kSilu, y,
                              HostTensor::Of(type, rows, cols, random, 20.0f), x);
    take("SiluMul", y);
    HostTensor embedded = HostTensor::Poisoned(type, 3, cols);
    device.ops().rows.Embed(embedded, gain.weight(), HostTensor::OfInts({0, 1, -1}), 0, 1.0f);
    take("Embed", embedded);
    for (const int window : {0, 70}) {
      const PagedCase c({{150, 40}, {3, 3}}, Heads(6, 2, 40, window), type, random.Next(), 16);
      take("PagedAttention", c.Run(device));
    }
  }
  HostTensor functions(kernels::DType::kF32, 3, 1000);
  for (int i = 0; i < 1000; ++i) {
    const float value = random.Value() * 20;
    functions.Set(i, kernels::ExactExp(value));
    functions.Set(1000 + i, kernels::ExactLog(value < 0 ? -value : value));
    functions.Set(2000 + i, static_cast<float>(kernels::SinCos(value).sin));
  }
  take("exact_math", functions);
  for (const kernels::DType type : {kernels::DType::kF32, kernels::DType::kBF16}) {
    HostTensor y = HostTensor::Poisoned(type, 7, 172);
    const HostTensor up = HostTensor::Of(type, 7, 172, random);
    device.ops().rows.GateMul(kernels::GateFunction::kGelu, y,
                              HostTensor::Of(type, 7, 172, random, 3.0f), up);
    take("GeluMul", y);
    kernels::AttentionParams capped = Heads(6, 2, 40);
    capped.softcap = 5.0f;
    take("PagedAttention capped",
         PagedCase({{150, 40}, {3, 3}}, capped, type, random.Next(), 16).Run(device));
  }
  HostTensor capped = HostTensor::Of(kernels::DType::kF32, 3, 301, random, 20.0f);
  device.ops().rows.SoftCap(capped, 7.0f);
  take("SoftCap", capped);
  HostTensor weights(kernels::DType::kF32, 9, 2), entries(kernels::DType::kI32, 9, 2),
      rows(kernels::DType::kI32, 18, 1), begin(kernels::DType::kI32, 6, 1),
      combined(kernels::DType::kF32, 9, 33);
  const kernels::ExpertRoutes routes = {weights, entries, rows, begin};
  device.ops().experts.RouteExperts(routes, HostTensor::Of(kernels::DType::kF32, 9, 5, random), {});
  take("RouteExperts", weights);
  take("RouteExperts", entries);
  device.ops().experts.CombineExperts(combined,
                                      HostTensor::Of(kernels::DType::kF32, 18, 33, random), routes);
  take("CombineExperts", combined);
  for (const kernels::WeightType type :
       {kernels::WeightType::kBF16, kernels::WeightType::kInt8, kernels::WeightType::kInt4}) {
    const char* name = type == kernels::WeightType::kBF16   ? "MatMul packed bf16"
                       : type == kernels::WeightType::kInt8 ? "MatMul packed int8"
                                                            : "MatMul packed int4";
    const std::vector<int64_t> cut = {0, 21, 43, 64, 86, 107, 129, 150, 172};
    const HostTensor x = HostTensor::Of(kernels::DType::kBF16, 7, 172, random, 1.7f);
    const PackedWeight w(device, type, HostTensor::Of(kernels::DType::kBF16, 45, 172, random), cut);
    HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 7, 45);
    device.ops().matmul.MatMulSplitK(out, x, w.weight(), cut);
    take(name, out);
  }
  for (const kernels::DType type : {kernels::DType::kF32, kernels::DType::kBF16}) {
    for (const int window : {0, 70}) {
      const PagedCase c({{150, 40}, {3, 3}, {290, 1}}, Heads(6, 2, 40, window), type, random.Next(),
                        16, kernels::DType::kI8);
      take("PagedAttention int8", c.Run(device));
    }
  }
  for (const kernels::DType type : {kernels::DType::kF32, kernels::DType::kBF16}) {
    HostTensor y = HostTensor::Of(type, 7, 172, random, 1.7f);
    const HostTensor gain = HostTensor::Of(kernels::DType::kF32, 1, 172, random);
    const HostTensor bias = HostTensor::Of(kernels::DType::kF32, 1, 172, random);
    device.ops().rows.LayerNorm(y, y, gain, bias, 1e-5f);
    take("LayerNorm", y);
    HostTensor squares = HostTensor::Poisoned(kernels::DType::kF32, 7, 4);
    device.ops().rows.SumSquares(squares, y, 43, 0);
    device.ops().rows.RmsNormBySquares(y, squares, gain, 172, 1e-5f);
    take("RmsNormBySquares", y);
    device.ops().rows.GateMul(kernels::GateFunction::kGelu, y, y, kernels::Tensor());
    take("Gelu", y);
  }
  HostTensor grown = HostTensor::Of(kernels::DType::kF32, 7, 64, random);
  device.ops().attention.GrowAngles(
      grown, grown, HostTensor::OfInts({0, 1, 5, 77, 1000, 40000, 131071}), {0.1, 64});
  device.ops().rows.Scale(grown, 0.22f);
  take("GrowAngles, Scale", grown);
  Random own(52);  // the stream of what comes before does not matter here
  for (const kernels::DType type : {kernels::DType::kF32, kernels::DType::kBF16}) {
    HostTensor y = HostTensor::Poisoned(type, 7, 172);
    const HostTensor up = HostTensor::Of(type, 7, 172, own, 6.0f);
    device.ops().rows.GateMul(kernels::GateFunction::kClampedSwiglu, y,
                              HostTensor::Of(type, 7, 172, own, 6.0f), up);
    take("ClampedSwiglu", y);
  }
  const HostTensor sinks = HostTensor::Of(kernels::DType::kF32, 6, 1, own);
  kernels::AttentionParams with_sinks = Heads(6, 2, 40);
  with_sinks.sinks = sinks;
  take(
      "PagedAttention sinks",
      PagedCase({{150, 40}, {3, 3}}, with_sinks, kernels::DType::kF32, own.Next(), 16).Run(device));
  for (const auto scores :
       {kernels::Routing::Scores::kSoftmax, kernels::Routing::Scores::kSigmoid}) {
    const HostTensor correction = HostTensor::Of(kernels::DType::kF32, 12, 1, own, 0.2f);
    HostTensor begins(kernels::DType::kI32, 13, 1);
    const kernels::ExpertRoutes corrected = {weights, entries, rows, begins};
    device.ops().experts.RouteExperts(corrected, HostTensor::Of(kernels::DType::kF32, 9, 12, own),
                                      {.scores = scores,
                                       .normalise = true,
                                       .correction = correction,
                                       .num_groups = 4,
                                       .top_groups = 2,
                                       .by_top_two = true,
                                       .factor = 2.5f});
    take("RouteExperts corrected", weights);
    take("RouteExperts corrected", entries);
    const HostTensor bias = HostTensor::Of(kernels::DType::kF32, 12, 33, own);
    const HostTensor shared = HostTensor::Of(kernels::DType::kF32, 9, 33, own);
    const HostTensor gate = HostTensor::Of(kernels::DType::kF32, 9, 1, own);
    device.ops().experts.CombineExperts(combined, HostTensor::Of(kernels::DType::kF32, 18, 33, own),
                                        corrected, {bias, shared, gate});
    take("CombineExperts with addends", combined);
  }
  HashStates(device, take);
  Random last(61);
  for (const kernels::DType type : {kernels::DType::kF32, kernels::DType::kBF16}) {
    HostTensor y = HostTensor::Of(type, 7, 172, last, 3.0f);
    device.ops().rows.GateMul(kernels::GateFunction::kReluSquared, y, y, kernels::Tensor());
    take("ReluSquared", y);
    HostTensor squares = HostTensor::Poisoned(kernels::DType::kF32, 7, 4);
    device.ops().rows.SumSquares(squares, y, 43, 0);
    device.ops().rows.RmsNormBySquares(
        y, squares, HostTensor::Of(kernels::DType::kF32, 1, 172, last), 172, 1e-5f, {2, 0});
    take("RmsNormBySquares in groups", y);
  }
  HashGroups(device, take);
  HashAdapters(device, take);
  HashFloatPanels(device, take);
  return hashes;
}

// Returns the pinned bits of a path; empty where there are none.
Hashes PinnedOf(const std::string& isa);

TEST_P(PinnedBitsTest, AreThoseOfTheArithmeticVersion) {
  EXPECT_EQ(kernels::kArithmeticVersion, 5) << "pin the new bits below";
  const Hashes hashes = HashOps(*device_);
  const Hashes pinned = PinnedOf(GetParam());
  ASSERT_FALSE(pinned.empty()) << "no bits are pinned for " << GetParam();
  std::string table;
  for (const auto& [op, hash] : hashes) table += "    {\"" + op + "\", 0x" + Hex(hash) + "},\n";
  EXPECT_EQ(hashes, pinned) << GetParam() << " gives\n" << table;
}

// Returns `hashes` with some replaced and added.
Hashes With(Hashes hashes, const Hashes& others) {
  for (const auto& [op, hash] : others) hashes[op] = hash;
  return hashes;
}

Hashes PinnedOf(const std::string& isa) {
  const Hashes every = {
      {"ActivatedMatMul packed f32", 0xf7628bee7e849300},
      {"Adapters", 0x904a6b53cbc4f5ed},
      {"AddSum", 0x32fd869af8cbd558},
      {"CausalConv", 0x32482549df3e98b4},
      {"CausalConv with silu", 0x1d59c54a54cbdfa6},
      {"ClampedSwiglu", 0xb01c386346ae7d5c},
      {"CombineExperts", 0x0862f6925e858876},
      {"CombineExperts with addends", 0xbae076523aa4edc9},
      {"Embed", 0xf0bec4a7968fd132},
      {"ExactPow", 0xe75012329adbcf6d},
      {"Gelu", 0x3ff61a6b9718d574},
      {"GeluMul", 0xacf7a96adf083e02},
      {"GrowAngles, Scale", 0xc594512d92e9fad1},
      {"LayerNorm", 0x00690cc920833f97},
      {"MatMul packed bf16", 0x3baa01a58bd5623b},
      {"MatMul packed f32", 0xe2e481d1f4fd1cd0},
      {"MatMul packed int4", 0x27950cf4f203d940},
      {"MatMul packed int8", 0x0033c909f8fb264a},
      {"MatMul stored IQ4_NL", 0x9e8e3d0fda11dd98},
      {"MatMul stored IQ4_XS", 0xd0cc9805ca13ce1b},
      {"MatMul stored MXFP4", 0x37790c582ca4bb98},
      {"MatMul stored Q2_K", 0xb7b2b5cf7453d1d4},
      {"MatMul stored Q3_K", 0x29a02be75c47aea0},
      {"MatMul stored Q4_0", 0xb37a268a04721c38},
      {"MatMul stored Q4_1", 0xb24b7be1fbfe326c},
      {"MatMul stored Q4_K", 0x71f5ec682e324141},
      {"MatMul stored Q5_1", 0x13779940e12b3c08},
      {"MatMul stored Q5_K", 0x66ecd141262c2bb0},
      {"MatMul stored Q6_K", 0xef3dc7bf9e7cdbe9},
      {"MatMul stored Q8_0", 0xbe38b69e2d8d50db},
      {"MatMul stored int4 by 128 with minima", 0x244ff60a53b50a3a},
      {"MatMul stored int4 by 32 with minima", 0xb24b7be1fbfe326c},
      {"MatMul stored int4 by 64 with minima", 0x8694fe68a507b7f2},
      {"MatMul stored int4 by 8", 0x9b21feb6f435ad07},
      {"MatMul stored int8 by 128 with minima", 0x466e754e745cf33f},
      {"ReluSquared", 0x6b08fa88e4c4ab61},
      {"RmsNormBySquares", 0xffa1b91fa550c835},
      {"RmsNormBySquares in groups", 0x59d945df94eb5346},
      {"Rope", 0x3034ce25ac6a84a8},
      {"RopeAngles", 0x040c8560742d0ced},
      {"RouteExperts", 0xe64fde4e1e7ac1f5},
      {"RouteExperts corrected", 0x177ac2edcb0d3db0},
      {"Sigmoid", 0xa5062c7357c7060e},
      {"SiluMul", 0xad76841e5f8afc79},
      {"SoftCap", 0x484908e4956b3c0b},
      {"StateDecay", 0x1d9821a2e350dd4a},
      {"UpdateStates", 0xf8ee62c4837b2195},
      {"exact_math", 0x843916fcafa5100c},
  };
  const Hashes scalar = With(every, {
                                        {"ActivatedMatMul packed f32", 0x7956503e6fde15f6},
                                        {"CausalConv with silu", 0xd06b4412fc574871},
                                        {"ClampedSwiglu", 0xed9bbab6824649cf},
                                        {"Gelu", 0xeb03ea7969ca82f2},
                                        {"GeluMul", 0xc2a9a011eb4e94a3},
                                        {"MatMul packed f32", 0x04652df4d2d359a5},
                                        {"MatMul", 0x113543ea1d2f2e33},
                                        {"MatMulSplitK", 0x2ca4cc51d0c6c0b0},
                                        {"PagedAttention", 0x25a2698f1224f9fe},
                                        {"PagedAttention capped", 0x4580249c93aa7498},
                                        {"PagedAttention int8", 0x2822bb937019d15d},
                                        {"PagedAttention sinks", 0xb2b2b78fccb0a9dd},
                                        {"RmsNorm", 0xf1d1d5d81fc4d86f},
                                        {"SiluMul", 0xb397270c29316732},
                                        {"SoftCap", 0xf3094a309b00be3a},
                                        {"UpdateStates", 0xf4fe19d10b2023cb},
                                    });
  const Hashes avx2 = With(every, {
                                      {"MatMul", 0xbaf97b38afd46a75},
                                      {"MatMulSplitK", 0xcc5be3c7428779a7},
                                      {"PagedAttention", 0x41269c0e9b56340b},
                                      {"PagedAttention capped", 0x1249be2ce2c73f8d},
                                      {"PagedAttention int8", 0x858b6d072d57d1b8},
                                      {"PagedAttention sinks", 0x8c7a3a2a57d5d759},
                                      {"RmsNorm", 0x786301dd4caca13b},
                                  });
  const Hashes avx512 = With(every, {
                                        {"MatMul", 0xa8ded1904be15f73},
                                        {"MatMulSplitK", 0x592d1c75b2bf79a1},
                                        {"PagedAttention", 0x14c9088c3626fcae},
                                        {"PagedAttention capped", 0x2d8e614862430e82},
                                        {"PagedAttention int8", 0x7cc7853e736f0e21},
                                        {"PagedAttention sinks", 0xac98dcb3cd466601},
                                        {"RmsNorm", 0x4ed9b41131d0a843},
                                    });
  const Hashes avx512_bf16 = With(avx512, {
                                              {"MatMul packed bf16", 0x738688ede957de73},
                                              {"PagedAttention", 0x6dddc6024a395962},
                                              {"PagedAttention capped", 0xf0d37f84922a7e98},
                                          });
  return isa == "scalar"                  ? scalar
         : isa == "avx2" || isa == "neon" ? avx2
         : isa == "avx512"                ? avx512
         : isa == "avx512_bf16"           ? avx512_bf16
                                          : Hashes();
}

}  // namespace
}  // namespace continuo::testing
