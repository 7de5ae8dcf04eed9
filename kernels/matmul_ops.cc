// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul_ops.h"

#include "kernels/check_tensor.h"
#include "services/base/check.h"

namespace continuo::kernels {
namespace {

void CheckProduct(const Tensor& x, const Product& p) {
  const int64_t columns = p.out.cols();
  CONTINUO_CHECK(IsActivation(x.dtype) && IsActivation(p.out.dtype));
  CONTINUO_CHECK(p.out.rows() == x.rows() && p.w.data.rows() == columns);
  CONTINUO_CHECK(columns == 0 || p.w.data.cols() == x.cols());
  CheckBias(p.bias, columns);
}

void CheckPacked(const Weight& w, std::span<const int64_t> split_begin, int64_t first_row,
                 int64_t n) {
  CONTINUO_CHECK(w.format != WeightFormat::kDense && first_row % kPackedRows == 0);
  CONTINUO_CHECK(n % kPackedRows == 0 || first_row + n == w.data.rows());
  CONTINUO_CHECK(n >= 0 && first_row >= 0 && first_row + n <= w.data.rows());
  CheckSplits(split_begin, w.data.cols());
}

}  // namespace

void MatMulOps::PackRows(const Weight& w, std::span<const int64_t> split_begin, int64_t first_row,
                         const float* rows, int64_t n) {
  CheckPacked(w, split_begin, first_row, n);
  if (n > 0 && w.data.cols() > 0) DoPackRows(w, split_begin, first_row, rows, n);
}

void MatMulOps::PackGroups(const Weight& w, std::span<const int64_t> split_begin, int64_t first_row,
                           const GroupedRows& rows, int64_t n) {
  CheckPacked(w, split_begin, first_row, n);
  const GroupFormat& groups = w.groups;
  CONTINUO_CHECK(w.format == WeightFormat::kInt8Panels || w.format == WeightFormat::kInt4Panels);
  CONTINUO_CHECK(groups.size > 0);
  CONTINUO_CHECK(groups.codes == GroupCodes::kIntegers ||
                 (w.format == WeightFormat::kInt4Panels && !groups.has_minimum));
  const int64_t whole = groups.scales == GroupScales::kShared ? groups.unit : groups.size;
  for (const int64_t begin : split_begin) CONTINUO_CHECK(begin % whole == 0);
  if (n > 0 && w.data.cols() > 0) DoPackGroups(w, split_begin, first_row, rows, n);
}

void MatMulOps::DoPackGroups(const Weight& /*w*/, std::span<const int64_t> /*split_begin*/,
                             int64_t /*first_row*/, const GroupedRows& /*rows*/, int64_t /*n*/) {
  CONTINUO_CHECK(!"this device keeps no integers of files");
}

void MatMulOps::MatMul(Tensor out, const MatMulInput& x, const Weight& w, Tensor bias) {
  const Product product = {out, w, bias};
  CheckProduct(x.x, product);
  if (out.size() > 0) DoMatMul(x, product);
}

void MatMulOps::MatMuls(const MatMulInput& x, std::span<const Product> products) {
  for (const Product& product : products) CheckProduct(x.x, product);
  if (!products.empty() && x.x.rows() > 0) DoMatMuls(x, products);
}

void MatMulOps::DoMatMuls(const MatMulInput& x, std::span<const Product> products) {
  for (const Product& product : products) {
    if (product.out.size() > 0) DoMatMul(x, product);
  }
}

MatMulInput MatMulOps::GatedMatMul(const MatMulInput& x, const Product& gate, const Product& up,
                                   GateFunction function, void* prepared) {
  CheckProduct(x.x, gate);
  CheckProduct(x.x, up);
  CONTINUO_CHECK(up.out.dtype == gate.out.dtype && up.out.cols() == gate.out.cols());
  if (gate.out.size() == 0) return gate.out;
  DoGatedMatMul(x, gate, up, function, prepared);
  return {gate.out, prepared};
}

void MatMulOps::DoGatedMatMul(const MatMulInput& x, const Product& gate, const Product& up,
                              GateFunction function, void* prepared) {
  CONTINUO_CHECK(prepared == nullptr);  // a device that prepares inputs does so here
  const Product products[] = {gate, up};
  DoMatMuls(x, products);
  rows_.GateMul(function, gate.out, gate.out, up.out);
}

void MatMulOps::ActivatedMatMul(const MatMulInput& x, const Product& product,
                                GateFunction function) {
  CheckProduct(x.x, product);
  if (product.out.size() > 0) DoActivatedMatMul(x, product, function);
}

void MatMulOps::DoActivatedMatMul(const MatMulInput& x, const Product& product,
                                  GateFunction function) {
  DoMatMul(x, product);
  rows_.GateMul(function, product.out, product.out, Tensor());
}

void MatMulOps::MatMulSplitK(Tensor out, const MatMulInput& x, const Weight& w,
                             std::span<const int64_t> split_begin) {
  CONTINUO_CHECK(out.dtype == DType::kF32);
  CheckProduct(x.x, {out, w, Tensor()});
  CheckSplits(split_begin, x.x.cols());
  if (out.size() > 0) DoMatMulSplitK(out, x, w, split_begin);
}

}  // namespace continuo::kernels
