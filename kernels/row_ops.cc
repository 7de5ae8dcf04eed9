// SPDX-License-Identifier: Apache-2.0
#include "kernels/row_ops.h"

#include "kernels/check_tensor.h"
#include "services/base/check.h"

namespace continuo::kernels {
namespace {

void CheckAddSum(const Tensor& x, const Tensor& sum, const Tensor& bias) {
  CONTINUO_CHECK(IsActivation(x.dtype) && sum.dtype == DType::kF32 && sum.size() == x.size());
  CheckBias(bias, x.cols());
}

}  // namespace

void RowOps::Embed(Tensor out, const Weight& table, Tensor token_ids, int first_id, float scale) {
  CONTINUO_CHECK(IsActivation(out.dtype));
  CONTINUO_CHECK(token_ids.dtype == DType::kI32 && token_ids.size() == out.rows());
  CONTINUO_CHECK(table.data.rows() == 0 || table.data.cols() == out.cols());
  if (out.size() > 0) DoEmbed(out, table, token_ids, first_id, scale);
}

void RowOps::RmsNorm(Tensor out, Tensor x, Tensor gain, float eps) {
  CONTINUO_CHECK(IsActivation(x.dtype) && out.dtype == x.dtype && out.size() == x.size());
  if (x.size() == 0) return;
  CONTINUO_CHECK(gain.size() > 0 && x.size() % gain.size() == 0);
  DoRmsNorm(out, x, gain, eps);
}

void RowOps::LayerNorm(Tensor out, Tensor x, Tensor gain, Tensor bias, float eps) {
  CONTINUO_CHECK(IsActivation(x.dtype) && out.dtype == x.dtype && out.size() == x.size());
  CONTINUO_CHECK(gain.dtype == DType::kF32 && gain.size() == x.cols());
  CheckBias(bias, x.cols());
  if (x.size() > 0) DoLayerNorm(out, x, gain, bias, eps);
}

void RowOps::SumSquares(Tensor out, Tensor x, int width, int first) {
  CONTINUO_CHECK(IsActivation(x.dtype) && out.dtype == DType::kF32 && out.rows() == x.rows());
  if (out.size() == 0) return;
  CONTINUO_CHECK(width > 0 && first >= 0 && (first + out.cols()) * width <= x.cols());
  DoSumSquares(out, x, width, first);
}

void RowOps::RmsNormBySquares(Tensor x, Tensor squares, Tensor gain, int64_t count, float eps,
                              const NormGroups& groups) {
  CONTINUO_CHECK(IsActivation(x.dtype) && squares.dtype == DType::kF32);
  CONTINUO_CHECK(squares.rows() == x.rows() && count > 0);
  if (x.size() == 0) return;
  CONTINUO_CHECK(gain.dtype == DType::kF32 && gain.size() == x.cols() && squares.cols() > 0);
  const int64_t heads = squares.cols();
  CONTINUO_CHECK(count % heads == 0 && groups.num_groups > 0 && heads % groups.num_groups == 0);
  CONTINUO_CHECK(groups.first_head >= 0 && groups.first_head * (count / heads) + x.cols() <= count);
  DoRmsNormBySquares(x, squares, gain, count, eps, groups);
}

void RowOps::AddSum(Tensor x, Tensor sum, Tensor bias) {
  CheckAddSum(x, sum, bias);
  if (x.size() > 0) DoAddSum(x, sum, bias);
}

MatMulInput RowOps::AddSumNorm(Tensor out, Tensor x, Tensor sum, Tensor bias, Tensor gain,
                               float eps, void* prepared) {
  CheckAddSum(x, sum, bias);
  CONTINUO_CHECK(out.dtype == x.dtype && out.size() == x.size() && gain.size() == x.cols());
  if (x.size() == 0) return out;
  DoAddSumNorm(out, x, sum, bias, gain, eps, prepared);
  return {out, prepared};
}

void RowOps::DoAddSumNorm(Tensor out, Tensor x, Tensor sum, Tensor bias, Tensor gain, float eps,
                          void* prepared) {
  CONTINUO_CHECK(prepared == nullptr);  // a device that prepares inputs does so here
  DoAddSum(x, sum, bias);
  DoRmsNorm(out, x, gain, eps);
}

void RowOps::GateMul(GateFunction function, Tensor out, Tensor gate, Tensor up) {
  CONTINUO_CHECK(IsActivation(out.dtype) && gate.dtype == out.dtype);
  CONTINUO_CHECK(up.size() == 0 || up.dtype == out.dtype);
  CONTINUO_CHECK(gate.size() == out.size() && (up.size() == out.size() || up.size() == 0));
  if (out.size() > 0) DoGateMul(function, out, gate, up);
}

void RowOps::Scale(Tensor x, float factor) {
  CONTINUO_CHECK(x.dtype == DType::kF32);
  if (x.size() > 0) DoScale(x, factor);
}

void RowOps::ScaleBy(Tensor x, Tensor factor) {
  CONTINUO_CHECK(IsActivation(x.dtype) && factor.dtype == DType::kF32 && factor.size() == 1);
  if (x.size() > 0) DoScaleBy(x, factor);
}

void RowOps::SoftCap(Tensor x, float cap) {
  CONTINUO_CHECK(x.dtype == DType::kF32 && cap > 0);
  if (x.size() > 0) DoSoftCap(x, cap);
}

void RowOps::GatherRows(Tensor out, Tensor x, Tensor rows) {
  CONTINUO_CHECK(rows.dtype == DType::kI32 && rows.size() == out.rows());
  CONTINUO_CHECK(out.dtype == x.dtype && out.cols() == x.cols());
  if (out.size() > 0) DoGatherRows(out, x, rows);
}

void RowOps::CopyHeads(Tensor out, Tensor x, const HeadPlaces& places) {
  const auto& [num_heads, count, out_stride, out_begin, x_stride, x_begin] = places;
  CONTINUO_CHECK(IsActivation(out.dtype) && out.dtype == x.dtype && out.rows() == x.rows());
  CONTINUO_CHECK(num_heads >= 0 && count >= 0 && out_begin >= 0 && x_begin >= 0);
  if (out.rows() == 0 || num_heads == 0 || count == 0) return;
  CONTINUO_CHECK(out_begin + count <= out_stride &&
                 (num_heads - 1) * out_stride + out_begin + count <= out.cols());
  CONTINUO_CHECK(x_stride >= 0 && (num_heads - 1) * x_stride + x_begin + count <= x.cols());
  DoCopyHeads(out, x, places);
}

}  // namespace continuo::kernels
