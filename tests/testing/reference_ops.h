// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention_ops.h"
#include "kernels/expert_ops.h"
#include "kernels/tensor.h"

namespace continuo::testing {

// The definitions of the ops: plain loops in float64 over plain vectors, row-major, with the shapes
// of kernels/*_ops.h. They are slow and obviously right, and round nothing on the way.
using Matrix = std::vector<double>;

// Returns the elements of a host tensor of any float type, exactly.
Matrix ToMatrix(const kernels::Tensor& t);

Matrix ReferenceEmbed(const Matrix& table, int64_t table_rows, int64_t cols,
                      std::span<const int32_t> ids, int first_id);
Matrix ReferenceRmsNorm(const Matrix& x, const Matrix& gain, double eps);
Matrix ReferenceLayerNorm(const Matrix& x, const Matrix& gain, const Matrix& bias, double eps);
// x [rows, k], w [columns, k], bias [columns] or empty.
Matrix ReferenceMatMul(const Matrix& x, const Matrix& w, const Matrix& bias, int64_t rows,
                       int64_t columns, int64_t k);
Matrix ReferenceAddSum(const Matrix& x, const Matrix& sum, const Matrix& bias);
// [rows, 2 * frequencies]
Matrix ReferenceRopeAngles(std::span<const int32_t> positions, const Matrix& frequencies,
                           double scale);
Matrix ReferenceGrowAngles(const Matrix& angles, std::span<const int32_t> positions,
                           const kernels::QueryGrowth& growth);
Matrix ReferenceRope(const Matrix& x, const Matrix& angles, int64_t rows, int64_t cols,
                     int64_t head_dim);
Matrix ReferenceSiluMul(const Matrix& gate, const Matrix& up);
Matrix ReferenceGeluMul(const Matrix& gate, const Matrix& up);
Matrix ReferenceClampedSwiglu(const Matrix& gate, const Matrix& up);
Matrix ReferenceSoftCap(const Matrix& x, double cap);

// Attention of one sequence whose keys and values lie in order: q [rows, num_heads * head_dim],
// keys and values [kv_len, num_kv_heads * head_dim]; the rows are the last `rows` of the kv_len
// positions.
Matrix ReferenceAttention(const Matrix& q, const Matrix& keys, const Matrix& values, int64_t rows,
                          int64_t kv_len, const kernels::AttentionParams& params);

// The k experts of one row and their weights, by ascending index.
struct ReferenceRoute {
  std::vector<int> experts;
  Matrix weights;
};
ReferenceRoute ReferenceRouting(std::span<const double> logits, int k,
                                const kernels::Routing& routing);

}  // namespace continuo::testing
