// SPDX-License-Identifier: Apache-2.0
// Ops of layers with state: beside their formulas in f64, and the same bits however sequences are
// divided into steps, whatever their slots, their neighbours and the number of threads.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kernels/state_ops.h"
#include "tests/kernels/host_tensor.h"

namespace continuo::testing {
namespace {

using kernels::DType;
using kernels::StateUpdate;
using kernels::Tensor;

struct StateShape {
  int key_heads = 2, heads = 4;
  int64_t key_dim = 16, value_dim = 32;
  StateUpdate::Rule rule = StateUpdate::Rule::kDelta;
};

// The rows of one sequence.
struct Inputs {
  Inputs(const StateShape& shape, DType type, int64_t rows, uint64_t seed) {
    Random random(seed);
    q = HostTensor::Of(type, rows, shape.key_heads * shape.key_dim, random, 0.4f);
    k = HostTensor::Of(type, rows, shape.key_heads * shape.key_dim, random, 0.2f);
    v = HostTensor::Of(type, rows, shape.heads * shape.value_dim, random);
    decay = HostTensor(DType::kF32, rows, shape.heads);
    strength = HostTensor(DType::kF32, rows, shape.heads);
    skip = HostTensor::Of(DType::kF32, shape.heads, 1, random);
    for (int64_t i = 0; i < rows * shape.heads; ++i) {
      decay.Set(i, 0.75f + 0.12f * random.Value());
      strength.Set(i, 0.5f + 0.2f * random.Value());
    }
  }
  StateUpdate Rows(const StateShape& shape, int64_t begin, int64_t end) const {
    StateUpdate update;
    update.rule = shape.rule;
    update.q = q.Rows(begin, end);
    update.k = k.Rows(begin, end);
    update.v = v.Rows(begin, end);
    update.decay = decay.Rows(begin, end);
    update.strength = strength.Rows(begin, end);
    if (shape.rule == StateUpdate::Rule::kSum) update.skip = skip;
    update.num_heads = shape.heads;
    update.num_key_heads = shape.key_heads;
    return update;
  }
  HostTensor q, k, v, decay, strength, skip;
};

HostTensor MakeStates(const StateShape& shape, int64_t slots) {
  HostTensor states(DType::kF32, {slots, shape.heads, shape.key_dim * shape.value_dim});
  std::memset(states.tensor().data, 0xff, states.tensor().bytes());  // NaN
  return states;
}

class Places {
 public:
  Places(const std::vector<int32_t>& begin, const std::vector<int32_t>& from,
         const std::vector<int32_t>& to)
      : begin_(HostTensor::OfInts(begin)),
        from_(HostTensor::OfInts(from)),
        to_(HostTensor::OfInts(to)) {}
  operator kernels::StatePlaces() const { return {begin_, from_, to_}; }  // NOLINT

 private:
  HostTensor begin_, from_, to_;
};

// Keeps the last row's state alone.
std::vector<int32_t> Last(int64_t rows, int32_t slot) {
  std::vector<int32_t> to(static_cast<size_t>(rows), -1);
  to.back() = slot;
  return to;
}

std::vector<std::byte> SlotOf(const HostTensor& states, int64_t slot) {
  const auto bytes = static_cast<std::ptrdiff_t>(states.bytes().size()) / states.tensor().rows();
  return {states.bytes().begin() + slot * bytes, states.bytes().begin() + (slot + 1) * bytes};
}

// The formulas, in f64.
Matrix Expected(const StateShape& shape, const Inputs& in) {
  const Matrix q = in.q.matrix(), k = in.k.matrix(), v = in.v.matrix(), decay = in.decay.matrix(),
               strength = in.strength.matrix(), skip = in.skip.matrix();
  const int64_t rows = in.q.tensor().rows(), n = shape.key_dim, m = shape.value_dim;
  Matrix out(static_cast<size_t>(rows * shape.heads * m));
  for (int64_t h = 0; h < shape.heads; ++h) {
    std::vector<double> state(static_cast<size_t>(n * m), 0.0);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t key = (r * shape.key_heads + h / (shape.heads / shape.key_heads)) * n;
      const double d = decay[r * shape.heads + h], s = strength[r * shape.heads + h];
      for (int64_t j = 0; j < m; ++j) {
        const int64_t at = (r * shape.heads + h) * m + j;
        double old = 0;
        for (int64_t i = 0; i < n; ++i) old += d * state[i * m + j] * k[key + i];
        const bool is_delta = shape.rule == StateUpdate::Rule::kDelta;
        const double u = (v[at] - (is_delta ? old : 0)) * s;
        double sum = is_delta ? 0 : skip[h] * v[at];
        for (int64_t i = 0; i < n; ++i) {
          state[i * m + j] = d * state[i * m + j] + k[key + i] * u;
          sum += state[i * m + j] * q[key + i];
        }
        out[at] = sum;
      }
    }
  }
  return out;
}

using StatesTest = IsaTest;
INSTANTIATE_FOR_ISAS(StatesTest);

TEST_P(StatesTest, UpdatesAreThoseOfTheFormulas) {
  for (const auto rule : {StateUpdate::Rule::kDelta, StateUpdate::Rule::kSum}) {
    for (const StateShape& shape :
         {StateShape{2, 4, 16, 32, rule}, StateShape{1, 3, 6, 5, rule},
          StateShape{3, 3, 64, 96, rule}, StateShape{1, 1, 8, 130, rule}}) {
      for (const DType type : {DType::kF32, DType::kBF16}) {
        const int64_t rows = 70;
        const Inputs in(shape, type, rows, 7);
        HostTensor out = HostTensor::Poisoned(type, rows, shape.heads * shape.value_dim);
        HostTensor states = MakeStates(shape, 2);
        ops().states.UpdateStates(out, in.Rows(shape, 0, rows), states,
                                  Places({0, 70}, {-1}, Last(rows, 1)));
        ExpectNear(out, Expected(shape, in), RoundingOf(type), {2e-5});
      }
    }
  }
}

TEST_P(StatesTest, UpdatesHaveTheSameBitsHoweverSequencesAreDivided) {
  Random random(11);
  for (const auto rule : {StateUpdate::Rule::kDelta, StateUpdate::Rule::kSum}) {
    for (const StateShape& shape : {StateShape{2, 4, 16, 32, rule}, StateShape{1, 2, 7, 21, rule},
                                    StateShape{1, 1, 32, 128, rule}}) {
      const int64_t rows = 90, cols = shape.heads * shape.value_dim;
      const Inputs in(shape, DType::kBF16, rows, random.Next());
      HostTensor whole = HostTensor::Poisoned(DType::kBF16, rows, cols);
      HostTensor states = MakeStates(shape, 1);
      ops().states.UpdateStates(whole, in.Rows(shape, 0, rows), states,
                                Places({0, 90}, {-1}, Last(rows, 0)));
      for (int run = 0; run < 8; ++run) {
        const auto device = MakeCpu(GetParam(), 1 + run % 3);
        HostTensor parts = HostTensor::Poisoned(DType::kBF16, rows, cols);
        HostTensor slots = MakeStates(shape, 8);
        int32_t from = -1;
        for (int64_t begin = 0; begin < rows;) {
          const int64_t end = std::min<int64_t>(rows, begin + 1 + random.Below(run == 0 ? 1 : 50));
          // The state stays in its slot or moves; rows between are kept, too.
          const int32_t to =
              from >= 0 && random.Below(2) == 0 ? from : random.Below(4) + 4 * (from < 4);
          std::vector<int32_t> kept = Last(end - begin, to);
          for (int32_t slot = 0, spare = 0; slot < 2 && end - begin > 4; ++slot, ++spare) {
            while (spare == to || spare == from) ++spare;
            kept[static_cast<size_t>(1 + slot)] = spare;
          }
          device->ops().states.UpdateStates(
              parts.Rows(begin, end), in.Rows(shape, begin, end), slots,
              Places({0, static_cast<int32_t>(end - begin)}, {from}, kept));
          from = to;
          begin = end;
        }
        ASSERT_TRUE(parts.SameBits(whole)) << run;
        ASSERT_EQ(SlotOf(slots, from), SlotOf(states, 0));
      }
    }
  }
}

TEST_P(StatesTest, AKeptStateIsWhereAnotherSequenceGoesOn) {
  const StateShape shape;
  const int64_t rows = 40, cols = shape.heads * shape.value_dim;
  const Inputs in(shape, DType::kF32, rows, 3);
  HostTensor whole = HostTensor::Poisoned(DType::kF32, rows, cols);
  HostTensor states = MakeStates(shape, 4);
  std::vector<int32_t> to = Last(rows, 0);
  to[15] = 3;
  to[31] = 1;
  ops().states.UpdateStates(whole, in.Rows(shape, 0, rows), states, Places({0, 40}, {-1}, to));
  // Two sequences go on behind row 15, beside an empty one; both read the slot that is kept.
  HostTensor rest = HostTensor::Poisoned(DType::kF32, 24, cols);
  Places both({0, 24, 24}, {3, -1}, Last(24, 2));
  ops().states.UpdateStates(rest, in.Rows(shape, 16, 40), states, both);
  for (int64_t i = 0; i < 24 * cols; ++i) {
    ASSERT_EQ(rest.matrix()[i], whole.matrix()[16 * cols + i]);
  }
  EXPECT_EQ(SlotOf(states, 2), SlotOf(states, 0));
  HostTensor end = HostTensor::Poisoned(DType::kF32, 8, cols);
  ops().states.UpdateStates(end, in.Rows(shape, 32, 40), states,
                            Places({0, 8}, {1}, std::vector<int32_t>(8, -1)));
  for (int64_t i = 0; i < 8 * cols; ++i) ASSERT_EQ(end.matrix()[i], whole.matrix()[32 * cols + i]);
}

TEST_P(StatesTest, ConvolutionsAreThoseOfTheFormulaHoweverSequencesAreDivided) {
  Random random(5);
  for (const int64_t width : {2, 3, 4}) {
    for (const int64_t channels : {5, 300}) {
      for (const DType type : {DType::kF32, DType::kBF16}) {
        for (const bool silu : {false, true}) {
          const int64_t rows = 33;
          const HostTensor x = HostTensor::Of(type, rows, channels, random);
          const HostTensor taps = HostTensor::Of(DType::kF32, width, channels, random);
          const HostTensor bias =
              silu ? HostTensor() : HostTensor::Of(DType::kF32, channels, 1, random);
          const kernels::ConvWeights weights = {taps, bias};
          HostTensor out = HostTensor::Poisoned(type, rows, channels);
          HostTensor states(type, {2, width - 1, channels});
          ops().states.CausalConv(out, x, weights, silu, states,
                                  Places({0, 33}, {-1}, Last(rows, 1)));
          const Matrix in = x.matrix(), w = taps.matrix();
          Matrix expected;
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t c = 0; c < channels; ++c) {
              double sum = silu ? 0 : bias.matrix()[c];
              for (int64_t j = 0; j < width; ++j) {
                const int64_t row = r - width + 1 + j;
                if (row >= 0) sum += w[j * channels + c] * in[row * channels + c];
              }
              expected.push_back(silu ? sum / (1 + std::exp(-sum)) : sum);
            }
          }
          ExpectNear(out, expected, RoundingOf(type), {1e-5});
          HostTensor parts = HostTensor::Poisoned(type, rows, channels);
          HostTensor slots(type, {4, width - 1, channels});
          int32_t from = -1;
          for (int64_t begin = 0; begin < rows;) {
            const int64_t end = std::min<int64_t>(rows, begin + 1 + random.Below(6));
            const int32_t to = random.Below(4);
            MakeCpu(GetParam(), 2)
                ->ops()
                .states.CausalConv(
                    parts.Rows(begin, end), x.Rows(begin, end), weights, silu, slots,
                    Places({0, static_cast<int32_t>(end - begin)}, {from}, Last(end - begin, to)));
            from = to;
            begin = end;
          }
          ASSERT_TRUE(parts.SameBits(out));
          ASSERT_EQ(SlotOf(slots, from), SlotOf(states, 1));
        }
      }
    }
  }
}

TEST_P(StatesTest, SequencesOfAStepDoNotTouchEachOther) {
  const StateShape shape;
  const int64_t cols = shape.heads * shape.value_dim;
  const Inputs in(shape, DType::kF32, 30, 9);
  // Rows [0, 10) and [10, 30) as two sequences, alone and together.
  HostTensor together = HostTensor::Poisoned(DType::kF32, 30, cols), states = MakeStates(shape, 3);
  std::vector<int32_t> to(30, -1);
  to[9] = 2;
  to[29] = 0;
  ops().states.UpdateStates(together, in.Rows(shape, 0, 30), states,
                            Places({0, 10, 30}, {-1, -1}, to));
  HostTensor first = HostTensor::Poisoned(DType::kF32, 10, cols),
             second = HostTensor::Poisoned(DType::kF32, 20, cols), alone = MakeStates(shape, 2);
  ops().states.UpdateStates(first, in.Rows(shape, 0, 10), alone,
                            Places({0, 10}, {-1}, Last(10, 0)));
  ops().states.UpdateStates(second, in.Rows(shape, 10, 30), alone,
                            Places({0, 20}, {-1}, Last(20, 1)));
  std::vector<std::byte> both = first.bytes();
  both.insert(both.end(), second.bytes().begin(), second.bytes().end());
  EXPECT_EQ(together.bytes(), both);
  EXPECT_EQ(SlotOf(states, 2), SlotOf(alone, 0));
  EXPECT_EQ(SlotOf(states, 0), SlotOf(alone, 1));
}

TEST_P(StatesTest, DecaysAndSigmoids) {
  const std::vector<float> values = {-60, -20, -9.3f, -3, -0.4f, 0, 0.7f, 2, 15, 60, 1e30f, -1e30f};
  const auto n = static_cast<int64_t>(values.size());
  HostTensor x(DType::kF32, n, 2), rate(DType::kF32, 2, 1), bias(DType::kF32, 2, 1);
  for (int64_t i = 0; i < 2 * n; ++i) x.Set(i, values[static_cast<size_t>(i / 2)]);
  rate.Set(0, -0.3f);
  rate.Set(1, -7.0f);
  bias.Set(0, 0.25f);
  bias.Set(1, -1.5f);
  HostTensor decay = HostTensor::Poisoned(DType::kF32, n, 2), step = decay.Clone();
  ops().states.StateDecay(decay, step, x, rate, bias, 0.001f, 0.5f);
  Matrix steps, decays, sigmoids;
  for (int64_t i = 0; i < 2 * n; ++i) {
    const double in = x.matrix()[i] + bias.matrix()[i % 2];
    const double value = std::clamp(in > 40 ? in : std::log1p(std::exp(in)), double{0.001f}, 0.5);
    steps.push_back(value);
    decays.push_back(std::exp(rate.matrix()[i % 2] * static_cast<float>(value)));
    sigmoids.push_back(1 / (1 + std::exp(-x.matrix()[i])));
  }
  ExpectNear(step, steps, 0x1p-23, {0});
  ExpectNear(decay, decays, 0x1p-22, {0});
  HostTensor out = HostTensor::Poisoned(DType::kF32, n, 2);
  ops().states.Sigmoid(out, x);
  ExpectNear(out, sigmoids, 0x1p-23, {1e-45});
  // Without bounds and without steps.
  HostTensor free = HostTensor::Poisoned(DType::kF32, n, 2);
  ops().states.StateDecay(free, Tensor(), x, rate, bias, 0, 1e30f);
  Matrix wanted;
  for (int64_t i = 0; i < 2 * n; ++i) {
    const double in = x.matrix()[i] + bias.matrix()[i % 2];
    wanted.push_back(std::exp(rate.matrix()[i % 2] * (in > 40 ? in : std::log1p(std::exp(in)))));
  }
  ExpectNear(free, wanted, 1e-5, {1e-30});
}

}  // namespace
}  // namespace continuo::testing
