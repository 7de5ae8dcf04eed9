// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace continuo::kernels {

// The slots of a step's states. A layer with state keeps one state of each sequence in a slot of
// its array. Within a step no slot of `to` is one of `from` of another sequence, and each slot is
// in `to` once.
struct StatePlaces {
  Tensor query_begin;  // i32 [num_seqs + 1]: the first row of each sequence, and the end
  Tensor from;         // i32 [num_seqs]: the slot with the state before the first row; -1: zeros
  Tensor to;           // i32 [rows]: the slot that receives the state behind the row; -1: none
};

// Weights of a causal convolution.
struct ConvWeights {
  Tensor taps;       // f32 [width, channels], the oldest row's first; width ≥ 2
  Tensor bias = {};  // f32 [channels], or empty
};

// The rows of StateOps::UpdateStates, and how each of them changes a state. All but `skip` have the
// step's rows. Heads share keys and queries in groups of neighbours.
struct StateUpdate {
  enum class Rule : uint8_t {
    // The gated delta rule (Yang et al., 2024, arXiv 2412.06464, equation 10).
    kDelta,
    // The state space of Mamba-2 (Dao and Gu, 2024, arXiv 2405.21060, section 6): v is x, k is B
    // and q is C there, `strength` is Δ and `decay` e^(ΔA).
    kSum,
  };
  Rule rule = Rule::kDelta;
  Tensor q, k;        // activations [rows, key heads * key dim]
  Tensor v;           // activations [rows, heads * value dim]
  Tensor decay;       // f32 [rows, heads]
  Tensor strength;    // f32 [rows, heads]
  Tensor skip = {};   // f32 [heads]: out gets skip · v added; empty: nothing
  int num_heads = 0;  // a multiple of num_key_heads
  int num_key_heads = 0;
};

// Layers with a recurrent state in place of keys and values. What a row gives depends on the state
// behind the row before it and on nothing else, in one order of operations, so the bits are the
// same however a sequence is divided into steps (exactness: rows-in-order). Rules of all ops:
// ops.h.
class StateOps {
 public:
  virtual ~StateOps() = default;

  // out[r][c] = f(bias[c] + Σ taps[j][c] · x[r - width + 1 + j][c]), over ascending j, each product
  // and sum rounded; f is silu where `silu` says so, else nothing. states has x's type, [slots,
  // width - 1, channels]: the rows of x before the sequence's next one, the oldest first. out does
  // not overlap x.
  void CausalConv(Tensor out, Tensor x, const ConvWeights& weights, bool silu, Tensor states,
                  const StatePlaces& places);
  // step = softplus(x + bias), at least `least` and at most `most`; decay = e^(rate · step).
  // x activations [rows, heads], rate and bias f32 [heads], decay and step f32 [rows, heads]; step
  // may be empty. Computed in f64 (exact_math.h) and rounded at the end.
  void StateDecay(Tensor decay, Tensor step, Tensor x, Tensor rate, Tensor bias, float least,
                  float most);
  // out = 1 / (1 + e^-x): out f32, x activations, of one size. Computed in f64.
  void Sigmoid(Tensor out, Tensor x);
  // For each row and head, S being the state before the row:
  //   u = (v - decay · Sᵀk) · strength for kDelta, v · strength for kSum
  //   S = decay · S + k uᵀ
  //   out = Sᵀq + skip · v
  // states f32 [slots, heads, key dim * value dim], S row-major. out activations, v's shape; it
  // overlaps no input.
  void UpdateStates(Tensor out, const StateUpdate& update, Tensor states,
                    const StatePlaces& places);

 private:
  // The arguments have been checked, and no output is empty.
  virtual void DoCausalConv(Tensor out, Tensor x, const ConvWeights& weights, bool silu,
                            Tensor states, const StatePlaces& places) = 0;
  virtual void DoStateDecay(Tensor decay, Tensor step, Tensor x, Tensor rate, Tensor bias,
                            float least, float most) = 0;
  virtual void DoSigmoid(Tensor out, Tensor x) = 0;
  virtual void DoUpdateStates(Tensor out, const StateUpdate& update, Tensor states,
                              const StatePlaces& places) = 0;
};

}  // namespace continuo::kernels
