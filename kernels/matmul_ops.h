// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/row_ops.h"
#include "kernels/tensor.h"

namespace continuo::kernels {

// out = x · wᵀ + bias, as MatMulOps::MatMul computes it.
struct Product {
  Tensor out;
  Weight w;
  Tensor bias;
};

// Rows of a matrix of integers in groups, as a file stores them (GroupFormat), one row after the
// other. Integers are in the range of the format; a row has whole groups, of kShared whole units.
struct GroupedRows {
  const int8_t* integers;
  const float* scales;  // of each group; of kShared whole numbers in the range of int8_t
  const float* minima;  // likewise; not read where there are none
  const float* shared_scales = nullptr;  // of kShared: of each unit, with which they are multiplied
  const float* shared_minima = nullptr;
};

// Weight matrices and products with them. Rules of all ops: ops.h.
//
// `split_begin` are the K splits of a matrix as MatMulSplitK takes them, {0, in} for the other ops.
// Splits are packed one by one, so that every rank holds the same numbers.
class MatMulOps {
 public:
  virtual ~MatMulOps() = default;

  // SupportsWeights returns whether the device computes with matrices of a type, FormatOf the
  // format in which it keeps them.
  virtual bool SupportsWeights(WeightType type) const = 0;
  virtual WeightFormat FormatOf(WeightType type) const = 0;
  // Returns the format in which products of many rows are fastest. Their bits may be others than
  // those of FormatOf.
  virtual WeightFormat PackedFormatOf(WeightType type) const { return FormatOf(type); }
  // Returns the bytes of a matrix of w's shape and format.
  virtual size_t WeightBytes(const Weight& w, std::span<const int64_t> split_begin) const = 0;
  // Returns the bytes of what an op may prepare beside rows of k activations for products with
  // weights of a format (MatMulInput); 0: such products read activations alone.
  virtual size_t PreparedBytes(WeightFormat /*format*/, int64_t /*rows*/, int64_t /*k*/) const {
    return 0;
  }
  // Fills rows [first_row, first_row + n) of a packed w from f32 rows on the host. first_row is a
  // multiple of kPackedRows, and so is n unless the rows are the last ones.
  void PackRows(const Weight& w, std::span<const int64_t> split_begin, int64_t first_row,
                const float* rows, int64_t n);
  // The same from integers, which are not rounded. Numbers that w.groups keeps as f16 are such. w
  // has a GroupFormat and is kInt8Panels or kInt4Panels; the device is the CPU.
  void PackGroups(const Weight& w, std::span<const int64_t> split_begin, int64_t first_row,
                  const GroupedRows& rows, int64_t n);

  // out = x · wᵀ (+ bias, f32 [out], may be empty). out has the activations' type or f32. Ranks on
  // equal devices that multiply the same get the same bits, which routing to experts depends on.
  void MatMul(Tensor out, const MatMulInput& x, const Weight& w, Tensor bias);
  // Several products of one x, with the bits that MatMul gives each on a device whose bits do not
  // depend on the step. The device may read x, prepare it and wait for its threads once for all.
  void MatMuls(const MatMulInput& x, std::span<const Product> products);
  // gate.out = function(x · gate.wᵀ) * (x · up.wᵀ), biases added, with the bits that MatMuls and
  // GateMul give. gate.out and up.out [rows, columns] have one type and overlap neither x nor each
  // other; up.out is scratch and holds anything afterwards. `prepared`, where not null, is memory
  // of PreparedBytes for gate.out: the result then holds what products read there.
  MatMulInput GatedMatMul(const MatMulInput& x, const Product& gate, const Product& up,
                          GateFunction function, void* prepared = nullptr);
  // MatMul, then GateMul of its result in place, without a factor, with the bits that the single
  // ops give.
  void ActivatedMatMul(const MatMulInput& x, const Product& product, GateFunction function);
  // MatMul for a K that tensor parallelism splits: x and w hold this rank's columns, and split i is
  // columns [split_begin[i], split_begin[i+1]) of them, perhaps empty; their number is a power of
  // two. The splits' f32 sums are added in a balanced binary tree. out is f32; there is no bias.
  void MatMulSplitK(Tensor out, const MatMulInput& x, const Weight& w,
                    std::span<const int64_t> split_begin);

 protected:
  // `rows` outlives this.
  explicit MatMulOps(RowOps& rows) : rows_(rows) {}

  // The arguments of all Do… have been checked. Outputs of MatMuls may be empty, those of the
  // others are not; x may have no columns. The defaults of the joined ops are the single ones; a
  // device that overrides them may call these for products that it does not join.
  virtual void DoMatMuls(const MatMulInput& x, std::span<const Product> products);
  virtual void DoGatedMatMul(const MatMulInput& x, const Product& gate, const Product& up,
                             GateFunction function, void* prepared);
  virtual void DoActivatedMatMul(const MatMulInput& x, const Product& product,
                                 GateFunction function);

 private:
  virtual void DoPackRows(const Weight& w, std::span<const int64_t> split_begin, int64_t first_row,
                          const float* rows, int64_t n) = 0;
  // A device that supports WeightType::kStored overrides it.
  virtual void DoPackGroups(const Weight& w, std::span<const int64_t> split_begin,
                            int64_t first_row, const GroupedRows& rows, int64_t n);
  virtual void DoMatMul(const MatMulInput& x, const Product& product) = 0;
  virtual void DoMatMulSplitK(Tensor out, const MatMulInput& x, const Weight& w,
                              std::span<const int64_t> split_begin) = 0;

  RowOps& rows_;
};

}  // namespace continuo::kernels
