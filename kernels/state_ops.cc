// SPDX-License-Identifier: Apache-2.0
#include "kernels/state_ops.h"

#include "kernels/check_tensor.h"
#include "services/base/check.h"

namespace continuo::kernels {
namespace {

void CheckPlaces(const StatePlaces& places, int64_t rows) {
  CONTINUO_CHECK(places.query_begin.dtype == DType::kI32 && places.from.dtype == DType::kI32 &&
                 places.to.dtype == DType::kI32);
  CONTINUO_CHECK(places.query_begin.size() == places.from.size() + 1);
  CONTINUO_CHECK(places.to.size() == rows);
}

void CheckFloats(const Tensor& t, int64_t rows, int64_t cols) {
  CONTINUO_CHECK(t.dtype == DType::kF32 && t.rows() == rows && t.cols() == cols);
}

}  // namespace

void StateOps::CausalConv(Tensor out, Tensor x, const ConvWeights& weights, bool silu,
                          Tensor states, const StatePlaces& places) {
  const int64_t rows = x.rows(), channels = x.cols(), width = weights.taps.rows();
  CONTINUO_CHECK(IsActivation(x.dtype) && out.dtype == x.dtype && states.dtype == x.dtype);
  CONTINUO_CHECK(out.rows() == rows && out.cols() == channels && width >= 2);
  CheckFloats(weights.taps, width, channels);
  CheckBias(weights.bias, channels);
  CONTINUO_CHECK(states.cols() == (width - 1) * channels);
  CheckPlaces(places, rows);
  if (out.size() > 0) DoCausalConv(out, x, weights, silu, states, places);
}

void StateOps::StateDecay(Tensor decay, Tensor step, Tensor x, Tensor rate, Tensor bias,
                          float least, float most) {
  const int64_t rows = x.rows(), heads = x.cols();
  CONTINUO_CHECK(IsActivation(x.dtype));
  CheckFloats(decay, rows, heads);
  if (step.size() > 0) CheckFloats(step, rows, heads);
  CONTINUO_CHECK(rate.dtype == DType::kF32 && rate.size() == heads);
  CONTINUO_CHECK(bias.dtype == DType::kF32 && bias.size() == heads);
  CONTINUO_CHECK(least >= 0 && least <= most);
  if (decay.size() > 0) DoStateDecay(decay, step, x, rate, bias, least, most);
}

void StateOps::Sigmoid(Tensor out, Tensor x) {
  CONTINUO_CHECK(IsActivation(x.dtype));
  CheckFloats(out, x.rows(), x.cols());
  if (out.size() > 0) DoSigmoid(out, x);
}

void StateOps::UpdateStates(Tensor out, const StateUpdate& update, Tensor states,
                            const StatePlaces& places) {
  const int64_t rows = out.rows(), heads = update.num_heads, key_heads = update.num_key_heads;
  if (heads == 0) return;
  CONTINUO_CHECK(key_heads > 0 && heads % key_heads == 0);
  for (const Tensor* t : {&update.q, &update.k, &update.v}) {
    CONTINUO_CHECK(t->dtype == out.dtype && t->rows() == rows);
  }
  CONTINUO_CHECK(IsActivation(out.dtype) && update.v.cols() == out.cols());
  CONTINUO_CHECK(update.q.cols() == update.k.cols());
  CONTINUO_CHECK(out.cols() % heads == 0 && update.k.cols() % key_heads == 0);
  CheckFloats(update.decay, rows, heads);
  CheckFloats(update.strength, rows, heads);
  CheckBias(update.skip, heads);
  CONTINUO_CHECK(states.dtype == DType::kF32 && states.shape[1] == heads);
  CONTINUO_CHECK(states.shape[2] == out.cols() / heads * (update.k.cols() / key_heads));
  CheckPlaces(places, rows);
  if (out.size() > 0) DoUpdateStates(out, update, states, places);
}

}  // namespace continuo::kernels
