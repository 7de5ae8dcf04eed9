// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/ops/cuda_row_ops.h"

#include "kernels/cuda/formats/fp8.h"
#include "kernels/cuda/formats/quantised_layout.h"
#include "kernels/cuda/ops/elementwise.h"
#include "kernels/cuda/ops/row_ops.h"
#include "kernels/cuda/runtime/dispatch.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {

void CudaRowOps::DoEmbed(Tensor out, const Weight& table, Tensor token_ids, int first_id,
                         float scale) {
  const auto* const ids = Data<const int32_t>(token_ids);
  const auto embed = [&]<typename T, typename W>() {
    return cuda::Embed(Data<T>(out), Data<const W>(table.data), ids, out.rows(), out.cols(),
                       table.data.rows(), first_id, scale, context_.kernels());
  };
  if (table.format != WeightFormat::kDense) {
    const int64_t splits[] = {0, out.cols()};
    context_.Enqueue("EmbedQuantised", [&] {
      return WithF32OrBF16(out.dtype, [&]<typename T>() {
        return WithQuantised(table, splits, [&](const auto& matrix) {
          return EmbedQuantised(Data<T>(out), matrix, ids, out.rows(), table.data.rows(), first_id,
                                scale, context_.kernels());
        });
      });
    });
    return;
  }
  context_.Enqueue("Embed", [&] {
    if (table.data.dtype == DType::kF16) {
      CONTINUO_CHECK(out.dtype == DType::kF16 || out.dtype == DType::kF32);
      return out.dtype == DType::kF16 ? embed.template operator()<Half, Half>()
                                      : embed.template operator()<float, Half>();
    }
    return WithF32OrBF16(out.dtype, [&]<typename T>() {
      return WithF32OrBF16(table.data.dtype,
                           [&]<typename W>() { return embed.template operator()<T, W>(); });
    });
  });
}

void CudaRowOps::DoRmsNorm(Tensor out, Tensor x, Tensor gain, float eps) {
  CONTINUO_CHECK(gain.dtype == DType::kF32);
  const int64_t n = gain.size();
  context_.Enqueue("RmsNorm", [&] {
    return WithType(x.dtype, [&]<typename T>() {
      return cuda::RmsNorm(Data<T>(out), Data<const T>(x), Data<const float>(gain), x.size() / n, n,
                           eps, context_.kernels());
    });
  });
}

void CudaRowOps::DoLayerNorm(Tensor out, Tensor x, Tensor gain, Tensor bias, float eps) {
  context_.Enqueue("LayerNorm", [&] {
    return WithType(x.dtype, [&]<typename T>() {
      return cuda::LayerNorm(Data<T>(out), Data<const T>(x), Data<const float>(gain),
                             bias.size() == 0 ? nullptr : Data<const float>(bias), x.rows(),
                             x.cols(), eps, context_.kernels());
    });
  });
}

void CudaRowOps::DoSumSquares(Tensor out, Tensor x, int width, int first) {
  context_.Enqueue("SumSquares", [&] {
    return WithType(x.dtype, [&]<typename T>() {
      return cuda::SumSquares(Data<float>(out), Data<const T>(x) + int64_t{first} * width, x.rows(),
                              x.cols(), out.cols(), width, context_.kernels());
    });
  });
}

void CudaRowOps::DoRmsNormBySquares(Tensor x, Tensor squares, Tensor gain, int64_t count, float eps,
                                    const NormGroups& groups) {
  context_.Enqueue("RmsNormBySquares", [&] {
    return WithType(x.dtype, [&]<typename T>() {
      return cuda::RmsNormBySquares(Data<T>(x), Data<const float>(squares), Data<const float>(gain),
                                    x.rows(), x.cols(), squares.cols(), count, eps, groups,
                                    context_.kernels());
    });
  });
}

void CudaRowOps::DoAddSum(Tensor x, Tensor sum, Tensor bias) {
  context_.Enqueue("AddSum", [&] {
    return WithType(x.dtype, [&]<typename T>() {
      return cuda::AddSum(Data<T>(x), Data<const float>(sum),
                          bias.size() == 0 ? nullptr : Data<const float>(bias), x.rows(), x.cols(),
                          context_.kernels());
    });
  });
}

void CudaRowOps::DoAddSumNorm(Tensor out, Tensor x, Tensor sum, Tensor bias, Tensor gain, float eps,
                              void* prepared) {
  CONTINUO_CHECK(gain.dtype == DType::kF32);
  CONTINUO_CHECK(prepared == nullptr || x.dtype == DType::kBF16);
  const Fp8Rows fp8 =
      prepared == nullptr ? Fp8Rows{} : PreparedFp8Rows(prepared, x.rows(), x.cols());
  context_.Enqueue("AddSumNorm", [&] {
    return WithType(x.dtype, [&]<typename T>() {
      return cuda::AddSumNorm(Data<T>(out), fp8, Data<T>(x), Data<const float>(sum),
                              bias.size() == 0 ? nullptr : Data<const float>(bias),
                              Data<const float>(gain), x.rows(), x.cols(), eps, context_.kernels());
    });
  });
}

void CudaRowOps::DoGateMul(GateFunction function, Tensor out, Tensor gate, Tensor up) {
  const auto enqueue = [&](const char* name, auto launch) {
    context_.Enqueue(name, [&] {
      return WithType(out.dtype, [&]<typename T>() {
        const T* const factor = up.size() == 0 ? nullptr : Data<const T>(up);
        return launch(Data<T>(out), Data<const T>(gate), factor, out.size(), context_.kernels());
      });
    });
  };
  switch (function) {
    case GateFunction::kSilu:
      return enqueue("SiluMul", [](auto... args) { return SiluMul(args...); });
    case GateFunction::kGelu:
      return enqueue("GeluMul", [](auto... args) { return GeluMul(args...); });
    case GateFunction::kClampedSwiglu:
      return enqueue("ClampedSwiglu", [](auto... args) { return ClampedSwiglu(args...); });
    case GateFunction::kReluSquared:
      return enqueue("ReluSquaredMul", [](auto... args) { return ReluSquaredMul(args...); });
    case GateFunction::kGeluErf:
      CONTINUO_CHECK(!"encoders run on the CPU");
    case GateFunction::kProduct:
      return enqueue("Multiply", [](auto... args) { return Multiply(args...); });
    case GateFunction::kSigmoid:
      return enqueue("SigmoidMul", [](auto... args) { return SigmoidMul(args...); });
  }
}

void CudaRowOps::DoScale(Tensor x, float factor) {
  context_.Enqueue(
      "Scale", [&] { return cuda::Scale(Data<float>(x), factor, x.size(), context_.kernels()); });
}

void CudaRowOps::DoScaleBy(Tensor x, Tensor factor) {
  context_.Enqueue("ScaleBy", [&] {
    return WithType(x.dtype, [&]<typename T>() {
      return cuda::ScaleBy(Data<T>(x), Data<const float>(factor), x.size(), context_.kernels());
    });
  });
}

void CudaRowOps::DoSoftCap(Tensor x, float cap) {
  context_.Enqueue(
      "SoftCap", [&] { return cuda::SoftCap(Data<float>(x), cap, x.size(), context_.kernels()); });
}

void CudaRowOps::DoGatherRows(Tensor out, Tensor x, Tensor rows) {
  context_.Enqueue("GatherRows", [&] {
    return WithType(out.dtype, [&]<typename T>() {
      return cuda::GatherRows(Data<T>(out), Data<const T>(x), Data<const int32_t>(rows), out.rows(),
                              out.cols(), context_.kernels());
    });
  });
}

void CudaRowOps::DoCopyHeads(Tensor out, Tensor x, const HeadPlaces& places) {
  context_.Enqueue("CopyHeads", [&] {
    return WithType(out.dtype, [&]<typename T>() {
      return cuda::CopyHeads(Data<T>(out), Data<const T>(x), out.rows(), out.cols(), x.cols(),
                             places, context_.kernels());
    });
  });
}

}  // namespace continuo::kernels::cuda
