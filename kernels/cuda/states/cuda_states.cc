// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/states/cuda_states.h"

#include "kernels/cuda/runtime/dispatch.h"
#include "kernels/cuda/states/states.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {
namespace {

StateArrays ArraysOf(const StatePlaces& places) {
  return {.query_begin = Data<const int32_t>(places.query_begin),
          .from = Data<const int32_t>(places.from),
          .to = Data<const int32_t>(places.to),
          .num_seqs = places.from.size()};
}

const float* FloatsOrNull(const Tensor& t) {
  return t.size() == 0 ? nullptr : Data<const float>(t);
}

}  // namespace

void CudaStateOps::DoCausalConv(Tensor out, Tensor x, const ConvWeights& weights, bool silu,
                                Tensor states, const StatePlaces& places) {
  CONTINUO_CHECK(weights.taps.rows() <= kMaxConvWidth);
  context_.Enqueue("CausalConv", [&] {
    return WithType(x.dtype, [&]<typename T>() {
      return cuda::CausalConv(Data<T>(out), Data<const T>(x), Data<const float>(weights.taps),
                              FloatsOrNull(weights.bias), silu, Data<T>(states), ArraysOf(places),
                              x.cols(), static_cast<int>(weights.taps.rows()), context_.kernels());
    });
  });
}

void CudaStateOps::DoStateDecay(Tensor decay, Tensor step, Tensor x, Tensor rate, Tensor bias,
                                float least, float most) {
  context_.Enqueue("StateDecay", [&] {
    return WithType(x.dtype, [&]<typename T>() {
      return cuda::StateDecay(Data<float>(decay), step.size() == 0 ? nullptr : Data<float>(step),
                              Data<const T>(x), Data<const float>(rate), Data<const float>(bias),
                              least, most, x.rows(), static_cast<int>(x.cols()),
                              context_.kernels());
    });
  });
}

void CudaStateOps::DoSigmoid(Tensor out, Tensor x) {
  context_.Enqueue("Sigmoid", [&] {
    return WithType(x.dtype, [&]<typename T>() {
      return cuda::Sigmoid(Data<float>(out), Data<const T>(x), x.size(), context_.kernels());
    });
  });
}

void CudaStateOps::DoUpdateStates(Tensor out, const StateUpdate& update, Tensor states,
                                  const StatePlaces& places) {
  const int64_t keys = update.k.cols() / update.num_key_heads;
  CONTINUO_CHECK(keys <= kMaxStateKeys);
  context_.Enqueue("UpdateStates", [&] {
    return WithType(out.dtype, [&]<typename T>() {
      const StateRows<T> rows = {.q = Data<const T>(update.q),
                                 .k = Data<const T>(update.k),
                                 .v = Data<const T>(update.v),
                                 .decay = Data<const float>(update.decay),
                                 .strength = Data<const float>(update.strength),
                                 .skip = FloatsOrNull(update.skip),
                                 .is_delta = update.rule == StateUpdate::Rule::kDelta,
                                 .num_heads = update.num_heads,
                                 .num_key_heads = update.num_key_heads,
                                 .keys = static_cast<int>(keys),
                                 .values = static_cast<int>(out.cols() / update.num_heads)};
      return cuda::UpdateStates(Data<T>(out), rows, Data<float>(states), ArraysOf(places),
                                context_.kernels());
    });
  });
}

}  // namespace continuo::kernels::cuda
