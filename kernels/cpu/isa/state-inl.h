// SPDX-License-Identifier: Apache-2.0
// Convolutions and recurrent states, in the words that kernels-inl.h names. Included inside an
// instruction set's unnamed namespace. No include guard: not a header.

// A column of the state depends on no other one, so a panel of columns runs through all rows while
// it lies in the L1 cache. Sums over the keys have four accumulators, of i mod 4; (0 + 1) + (2 +
// 3).
template <size_t kVectors, bool kDelta>
INLINE void UpdatePanel(const StateBlock& b, float* state, size_t stride, size_t column) {
  const Vec zero = Zero();
  for (size_t r = 0; r < b.num_rows; ++r) {
    const float* k = b.k + r * b.key_dim;
    const float* q = b.q + r * b.key_dim;
    const float* v = b.v + r * b.value_stride + column;
    const Vec decay = Set(b.decay[r * b.gate_stride]);
    const Vec strength = Set(b.strength[r * b.gate_stride]);
    Vec u[kVectors];
    UNROLL for (size_t p = 0; p < kVectors; ++p) u[p] = Load(v + p * kLanes);
    if constexpr (kDelta) {
      Vec sum[4][kVectors];
      UNROLL for (size_t a = 0; a < 4; ++a) {
        UNROLL for (size_t p = 0; p < kVectors; ++p) sum[a][p] = zero;
      }
      for (size_t i = 0; i < b.key_dim; i += 4) {
        UNROLL for (size_t a = 0; a < 4; ++a) {
          const Vec key = Set(k[i + a]);
          UNROLL for (size_t p = 0; p < kVectors; ++p) {
            sum[a][p] = MulAdd(key, Load(state + (i + a) * stride + p * kLanes), sum[a][p]);
          }
        }
      }
      UNROLL for (size_t p = 0; p < kVectors; ++p) {
        const Vec old = Add(Add(sum[0][p], sum[1][p]), Add(sum[2][p], sum[3][p]));
        u[p] = Sub(u[p], Mul(decay, old));
      }
    }
    UNROLL for (size_t p = 0; p < kVectors; ++p) u[p] = Mul(u[p], strength);
    Vec sum[4][kVectors];
    UNROLL for (size_t a = 0; a < 4; ++a) {
      UNROLL for (size_t p = 0; p < kVectors; ++p) sum[a][p] = zero;
    }
    for (size_t i = 0; i < b.key_dim; i += 4) {
      UNROLL for (size_t a = 0; a < 4; ++a) {
        const Vec key = Set(k[i + a]), query = Set(q[i + a]);
        UNROLL for (size_t p = 0; p < kVectors; ++p) {
          float* at = state + (i + a) * stride + p * kLanes;
          const Vec now = MulAdd(key, u[p], Mul(decay, Load(at)));
          Store(at, now);
          sum[a][p] = MulAdd(query, now, sum[a][p]);
        }
      }
    }
    UNROLL for (size_t p = 0; p < kVectors; ++p) {
      Vec result = Add(Add(sum[0][p], sum[1][p]), Add(sum[2][p], sum[3][p]));
      if (b.skip != nullptr) {
        result = Add(result, Mul(Set(*b.skip), Load(v + p * kLanes)));
      }
      Store(b.out + r * b.value_stride + column + p * kLanes, result);
    }
  }
}

template <bool kDelta>
static void UpdateState(const StateBlock& b) {
  constexpr size_t kVectors = 2;
  size_t j = 0;
  for (; j + kVectors * kLanes <= b.num_columns; j += kVectors * kLanes) {
    UpdatePanel<kVectors, kDelta>(b, b.state + j, b.state_stride, j);
  }
  for (; j < b.num_columns; j += kLanes) {
    UpdatePanel<1, kDelta>(b, b.state + j, b.state_stride, j);
  }
}

// Products and sums are rounded one by one: the same bits on every instruction set.
static void ConvRow(float* out, const float* const* rows, const float* taps, size_t tap_stride,
                    size_t width, const float* bias, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Vec sum = bias == nullptr ? Zero() : Load(bias + i);
    for (size_t j = 0; j < width; ++j) {
      sum = Add(sum, Mul(Load(taps + j * tap_stride + i), Load(rows[j] + i)));
    }
    Store(out + i, sum);
  }
  for (; i < n; ++i) {
    float sum = bias == nullptr ? 0.0f : bias[i];
    for (size_t j = 0; j < width; ++j) sum = sum + taps[j * tap_stride + i] * rows[j][i];
    out[i] = sum;
  }
}
