// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kernels/state_ops.h"
#include "tests/kernels/cuda/device_tensor.h"
#include "tests/kernels/host_tensor.h"

// Ops of layers with state on a device, beside the CPU's in f32, and their bits however a sequence
// is divided into steps.
namespace continuo::testing {

struct StateCase {
  int key_heads = 2, heads = 4;
  int64_t keys = 16, values = 32;
};

// Runs the rows of one sequence in steps that end at `ends`, the state moving from slot to slot.
// Returns all outputs, and the last state.
struct StateRun {
  HostTensor out, state;
};

inline StateRun RunStates(kernels::Device& device, const StateCase& c,
                          kernels::StateUpdate::Rule rule, kernels::DType type,
                          const std::vector<int64_t>& ends) {
  using kernels::DType;
  Random random(17);
  const int64_t rows = ends.back();
  const auto make = [&](DType dtype, int64_t cols, float factor, float middle) {
    HostTensor t(dtype, rows, cols);
    for (int64_t i = 0; i < rows * cols; ++i) t.Set(i, middle + factor * random.Value());
    return t;
  };
  const HostTensor q = make(type, c.key_heads * c.keys, 0.4f, 0);
  const HostTensor k = make(type, c.key_heads * c.keys, 0.2f, 0);
  const HostTensor v = make(type, c.heads * c.values, 1, 0);
  const HostTensor decay = make(DType::kF32, c.heads, 0.12f, 0.75f);
  const HostTensor strength = make(DType::kF32, c.heads, 0.2f, 0.5f);
  const HostTensor skip = HostTensor::Of(DType::kF32, c.heads, 1, random);
  const DeviceTensor skips(device, skip);
  HostTensor slots(DType::kF32, {2, c.heads, c.keys * c.values});
  const DeviceTensor states(device, slots);
  StateRun run = {HostTensor(type, rows, c.heads * c.values), {}};
  int64_t begin = 0;
  int32_t from = -1;
  for (const int64_t end : ends) {
    const int32_t to = from == 0 ? 1 : 0;
    std::vector<int32_t> kept(static_cast<size_t>(end - begin), -1);
    kept.back() = to;
    const DeviceTensor begins(device, HostTensor::OfInts({0, static_cast<int32_t>(end - begin)}));
    const DeviceTensor froms(device, HostTensor::OfInts({from}));
    const DeviceTensor tos(device, HostTensor::OfInts(kept));
    const DeviceTensor qs(device, q.Rows(begin, end)), ks(device, k.Rows(begin, end)),
        vs(device, v.Rows(begin, end)), decays(device, decay.Rows(begin, end)),
        strengths(device, strength.Rows(begin, end)),
        out(device, HostTensor::Poisoned(type, end - begin, c.heads * c.values));
    kernels::StateUpdate update;
    update.rule = rule;
    update.q = qs;
    update.k = ks;
    update.v = vs;
    update.decay = decays;
    update.strength = strengths;
    if (rule == kernels::StateUpdate::Rule::kSum) update.skip = skips;
    update.num_heads = c.heads;
    update.num_key_heads = c.key_heads;
    device.ops().states.UpdateStates(out, update, states, {begins, froms, tos});
    const HostTensor part = out.Get();
    std::copy(part.bytes().begin(), part.bytes().end(),
              static_cast<std::byte*>(run.out.Rows(begin, end).data));
    from = to;
    begin = end;
  }
  const HostTensor all = states.Get();
  run.state = HostTensor(DType::kF32, c.heads, c.keys * c.values);
  const kernels::Tensor slot = all.Rows(from, from + 1);
  std::copy_n(static_cast<const std::byte*>(slot.data), slot.bytes(),
              static_cast<std::byte*>(run.state.tensor().data));
  return run;
}

inline void CheckStates(kernels::Device& device, kernels::Device& cpu, const StateCase& c) {
  for (const auto rule : {kernels::StateUpdate::Rule::kDelta, kernels::StateUpdate::Rule::kSum}) {
    for (const kernels::DType type : kActivations) {
      const StateRun whole = RunStates(device, c, rule, type, {21});
      const StateRun parts = RunStates(device, c, rule, type, {1, 2, 9, 20, 21});
      EXPECT_TRUE(parts.out.SameBits(whole.out));
      EXPECT_TRUE(parts.state.SameBits(whole.state));
      if (type == kernels::DType::kF16) continue;
      const StateRun expected = RunStates(cpu, c, rule, type, {21});
      ExpectNear(whole.out, expected.out.matrix(), 2 * RoundingOf(type), {1e-5});
      ExpectNear(whole.state, expected.state.matrix(), 1e-5, {1e-5});
    }
  }
}

inline HostTensor RunConv(kernels::Device& device, kernels::DType type, int64_t width,
                          int64_t channels, bool silu, const std::vector<int64_t>& ends) {
  using kernels::DType;
  Random random(23);
  const int64_t rows = ends.back();
  const HostTensor x = HostTensor::Of(type, rows, channels, random);
  const DeviceTensor taps(device, HostTensor::Of(DType::kF32, width, channels, random));
  const DeviceTensor bias(device, HostTensor::Of(DType::kF32, channels, 1, random));
  const DeviceTensor states(device, HostTensor(type, {2, width - 1, channels}));
  HostTensor all(type, rows, channels);
  int64_t begin = 0;
  int32_t from = -1;
  for (const int64_t end : ends) {
    // In place from the second step on.
    std::vector<int32_t> kept(static_cast<size_t>(end - begin), -1);
    kept.back() = 1;
    const DeviceTensor begins(device, HostTensor::OfInts({0, static_cast<int32_t>(end - begin)}));
    const DeviceTensor froms(device, HostTensor::OfInts({from}));
    const DeviceTensor tos(device, HostTensor::OfInts(kept));
    const DeviceTensor in(device, x.Rows(begin, end));
    const DeviceTensor out(device, HostTensor::Poisoned(type, end - begin, channels));
    kernels::ConvWeights weights = {taps};
    if (!silu) weights.bias = bias;
    device.ops().states.CausalConv(out, in, weights, silu, states, {begins, froms, tos});
    const HostTensor part = out.Get();
    std::copy(part.bytes().begin(), part.bytes().end(),
              static_cast<std::byte*>(all.Rows(begin, end).data));
    from = 1;
    begin = end;
  }
  return all;
}

inline void CheckConv(kernels::Device& device, kernels::Device& cpu, int64_t width,
                      int64_t channels) {
  for (const bool silu : {false, true}) {
    for (const kernels::DType type : kActivations) {
      const HostTensor whole = RunConv(device, type, width, channels, silu, {13});
      EXPECT_TRUE(RunConv(device, type, width, channels, silu, {1, 2, 3, 8, 13}).SameBits(whole));
      if (type == kernels::DType::kF16) continue;
      const HostTensor expected = RunConv(cpu, type, width, channels, silu, {13});
      ExpectNear(whole, expected.matrix(), 2 * RoundingOf(type), {1e-6});
    }
  }
}

inline void CheckDecays(kernels::Device& device, kernels::Device& cpu) {
  using kernels::DType;
  for (const DType type : {DType::kF32, DType::kBF16}) {
    Random random(29);
    const HostTensor x = HostTensor::Of(type, 70, 5, random, 9.0f);
    const HostTensor rate = HostTensor::OfFloats({-0.1f, -2, -7, -0.5f, -16});
    const HostTensor bias = HostTensor::OfFloats({0, 1.5f, -4, 0.25f, -0.5f});
    HostTensor results[2][3];
    for (kernels::Device* of : {&device, &cpu}) {
      const DeviceTensor in(*of, x), rates(*of, rate), biases(*of, bias),
          decay(*of, HostTensor::Poisoned(DType::kF32, 70, 5)),
          step(*of, HostTensor::Poisoned(DType::kF32, 70, 5)),
          sigmoid(*of, HostTensor::Poisoned(DType::kF32, 70, 5));
      of->ops().states.StateDecay(decay, step, in, rates, biases, 0.001f, 0.1f);
      of->ops().states.Sigmoid(sigmoid, in);
      HostTensor* const got = results[of == &cpu];
      got[0] = decay.Get();
      got[1] = step.Get();
      got[2] = sigmoid.Get();
    }
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(results[0][i].SameBits(results[1][i])) << i;
  }
}

}  // namespace continuo::testing
