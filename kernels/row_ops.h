// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/tensor.h"

namespace continuo::kernels {

// The function of a gate and what it multiplies, in an MLP the first five:
enum class GateFunction {
  kSilu,  // g / (1 + e^-g) · u
  kGelu,  // its tanh form: g / (1 + e^(-2√(2/π)(g + 0.044715 g³))) · u
  // gpt-oss: with g at most 7 and u from -7 to 7, g / (1 + e^(-1.702 g)) · (u + 1)
  kClampedSwiglu,
  kReluSquared,  // max(g, 0)² · u
  kGeluErf,      // g · (1 + erf(g / √2)) / 2 · u, within 2e-7 |g u|; on the CPU alone
  // Gates without a function of their own, in layers with state and in attention:
  kProduct,  // g · u
  kSigmoid,  // u / (1 + e^-g)
};
inline constexpr float kSwigluLimit = 7, kSwigluSlope = 1.702f;

// The groups of neighbouring heads that RmsNormBySquares normalises, all of one size.
struct NormGroups {
  int64_t num_groups = 1;
  int64_t first_head = 0;  // the head at which the part of the rows that is there begins
};

// Places of heads' elements in two tensors: element i of head h is at h * stride + begin + i of a
// row. With an x_stride of 0 all heads get the same elements.
struct HeadPlaces {
  int num_heads = 0, count = 0;
  int64_t out_stride = 0, out_begin = 0;
  int64_t x_stride = 0, x_begin = 0;
};

// Ops that treat each row or element by itself. Rules of all ops: ops.h.
class RowOps {
 public:
  virtual ~RowOps() = default;

  // out[r] = table[token_ids[r] - first_id] * scale. A row whose id is outside this rank's part of
  // the table becomes -0.0, the neutral element of addition. token_ids: i32 [rows].
  void Embed(Tensor out, const Weight& table, Tensor token_ids, int first_id, float scale);
  // out[r] = x[r] / sqrt(mean(x[r]²) + eps) * gain, for each row of gain's length: x may be
  // [rows, heads * gain] for a norm per head. out may be x.
  void RmsNorm(Tensor out, Tensor x, Tensor gain, float eps);
  // out[r] = (x[r] - m) / sqrt(v + eps) * gain + bias, m being the mean of x[r] and v that of
  // (x[r] - m)²: gain and bias f32 [cols], bias may be empty. out may be x.
  void LayerNorm(Tensor out, Tensor x, Tensor gain, Tensor bias, float eps);
  // The two halves of an RmsNorm over rows that several ranks hold in parts. SumSquares gives the
  // squares of some groups of `width` elements: out f32 [rows, n], out[r][i] = Σ of group first + i
  // of x[r]. RmsNormBySquares takes those of all ranks, whose number of elements is `count`: x[r] =
  // x[r] / sqrt(Σ squares[r] / count + eps) * gain, in place; gain f32 [cols]. With several groups,
  // the squares are of one head each, count / squares.cols() elements, and the mean is that of the
  // element's group.
  void SumSquares(Tensor out, Tensor x, int width, int first);
  void RmsNormBySquares(Tensor x, Tensor squares, Tensor gain, int64_t count, float eps,
                        const NormGroups& groups = {});
  // x = round(x + round(sum + bias)): sum f32 [rows, cols], bias f32 [cols] or empty. The inner
  // rounding is to x's type.
  void AddSum(Tensor x, Tensor sum, Tensor bias);
  // AddSum of x, sum and bias, then out = RmsNorm(x, gain), with the same bits. out has x's type
  // and shape, and does not overlap it. `prepared`, where not null, is memory of
  // MatMulOps::PreparedBytes for out: the result then holds what products read there.
  MatMulInput AddSumNorm(Tensor out, Tensor x, Tensor sum, Tensor bias, Tensor gain, float eps,
                         void* prepared = nullptr);
  // out = function of gate and up, all of one type; an empty up counts as ones. out may be gate.
  void GateMul(GateFunction function, Tensor out, Tensor gate, Tensor up);
  // x = x * factor, f32, in place.
  void Scale(Tensor x, float factor);
  // x = x * factor[0], in place: x of any type of activations, factor f32 [1].
  void ScaleBy(Tensor x, Tensor factor);
  // x = cap · tanh(x / cap), f32, in place; cap > 0.
  void SoftCap(Tensor x, float cap);
  // out[i] = x[rows[i]]; rows i32 [out's rows].
  void GatherRows(Tensor out, Tensor x, Tensor rows);
  // Copies `count` elements of each head and row, of one type. Other elements of out stay.
  void CopyHeads(Tensor out, Tensor x, const HeadPlaces& places);

 protected:
  // The arguments of all Do… have been checked, and no output is empty. The default of the joined
  // op is the single ones; a device with PreparedBytes overrides it.
  virtual void DoAddSumNorm(Tensor out, Tensor x, Tensor sum, Tensor bias, Tensor gain, float eps,
                            void* prepared);

 private:
  virtual void DoEmbed(Tensor out, const Weight& table, Tensor token_ids, int first_id,
                       float scale) = 0;
  virtual void DoRmsNorm(Tensor out, Tensor x, Tensor gain, float eps) = 0;
  virtual void DoLayerNorm(Tensor out, Tensor x, Tensor gain, Tensor bias, float eps) = 0;
  virtual void DoSumSquares(Tensor out, Tensor x, int width, int first) = 0;
  virtual void DoRmsNormBySquares(Tensor x, Tensor squares, Tensor gain, int64_t count, float eps,
                                  const NormGroups& groups) = 0;
  virtual void DoAddSum(Tensor x, Tensor sum, Tensor bias) = 0;
  virtual void DoGateMul(GateFunction function, Tensor out, Tensor gate, Tensor up) = 0;
  virtual void DoScale(Tensor x, float factor) = 0;
  virtual void DoScaleBy(Tensor x, Tensor factor) = 0;
  virtual void DoSoftCap(Tensor x, float cap) = 0;
  virtual void DoGatherRows(Tensor out, Tensor x, Tensor rows) = 0;
  virtual void DoCopyHeads(Tensor out, Tensor x, const HeadPlaces& places) = 0;
};

}  // namespace continuo::kernels
