// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/ops/cpu_state_ops.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cpu/matmul/panel_layout.h"
#include "kernels/cpu/runtime/rows.h"
#include "kernels/math/exact_math.h"
#include "services/base/check.h"

namespace continuo::kernels::cpu {
namespace {

// Channels of a convolution, and columns of a state, that a thread takes at a time.
constexpr int64_t kChannels = 256, kColumns = 64;
// Rows of which a thread holds keys, queries and values as floats.
constexpr int64_t kRows = 32;
// KernelTable::update_state takes multiples of these: the lanes of every set, and four sums.
constexpr int64_t kWholeColumns = 16, kWholeKeys = 4;

// The places of a step's states, checked.
class Places {
 public:
  Places(const StatePlaces& places, int64_t num_rows, int64_t num_slots)
      : query_begin_(static_cast<const int32_t*>(places.query_begin.data)),
        from_(static_cast<const int32_t*>(places.from.data)),
        to_(static_cast<const int32_t*>(places.to.data)),
        num_seqs_(places.from.size()) {
    CONTINUO_CHECK(query_begin_[0] == 0 && query_begin_[num_seqs_] == num_rows);
    for (int64_t i = 0; i < num_seqs_; ++i) {
      CONTINUO_CHECK(query_begin_[i] <= query_begin_[i + 1]);
      CONTINUO_CHECK(from_[i] >= -1 && from_[i] < num_slots);
    }
    for (int64_t r = 0; r < num_rows; ++r) CONTINUO_CHECK(to_[r] >= -1 && to_[r] < num_slots);
  }

  int64_t num_seqs() const { return num_seqs_; }
  int64_t begin(int64_t seq) const { return query_begin_[seq]; }
  int64_t end(int64_t seq) const { return query_begin_[seq + 1]; }
  int64_t from(int64_t seq) const { return from_[seq]; }
  int64_t to(int64_t row) const { return to_[row]; }

 private:
  const int32_t* query_begin_;
  const int32_t* from_;
  const int32_t* to_;
  int64_t num_seqs_;
};

}  // namespace

void CpuStateOps::DoCausalConv(Tensor out, Tensor x, const ConvWeights& weights, bool silu,
                               Tensor states, const StatePlaces& places) {
  const int64_t channels = x.cols(), width = weights.taps.rows(), before = width - 1;
  const Places at(places, x.rows(), states.rows());
  const auto* const taps = static_cast<const float*>(weights.taps.data);
  const auto* const bias = static_cast<const float*>(weights.bias.data);
  const bool has_bias = weights.bias.size() > 0;
  const int64_t panels = (channels + kChannels - 1) / kChannels;
  context_.ForRanges(
      panels, x.rows() * kChannels * width, [&](int64_t first, int64_t last, int thread) {
        // The rows that a row sees, in a ring: the oldest at `next`.
        float* const ring = context_.Scratch(thread, (width + 2) * kChannels);
        float* const row = ring + width * kChannels;
        float* const ones = row + kChannels;
        std::fill_n(ones, kChannels, 1.0f);
        std::vector<const float*> rows(static_cast<size_t>(width));
        const auto slot_row = [&](int64_t slot, int64_t i, int64_t c) {
          return (slot * before + i) * channels + c;
        };
        for (int64_t panel = first; panel < last; ++panel) {
          const int64_t c = panel * kChannels, n = std::min(kChannels, channels - c);
          for (int64_t seq = 0; seq < at.num_seqs(); ++seq) {
            if (at.begin(seq) == at.end(seq)) continue;
            for (int64_t i = 0; i < before; ++i) {
              float* const to = ring + i * kChannels;
              if (at.from(seq) < 0) {
                std::fill_n(to, n, 0.0f);
              } else {
                kernels_.widen[ElementOf(x.dtype)](to, At(states, slot_row(at.from(seq), i, c)), n);
              }
            }
            int64_t next = before;
            for (int64_t r = at.begin(seq); r < at.end(seq); ++r) {
              kernels_.widen[ElementOf(x.dtype)](ring + next * kChannels, At(x, r * channels + c),
                                                 n);
              next = (next + 1) % width;
              for (int64_t j = 0; j < width; ++j) rows[j] = ring + (next + j) % width * kChannels;
              float* const result = Begin(out, r * channels + c, row);
              kernels_.conv_row(result, rows.data(), taps + c, channels, width,
                                has_bias ? bias + c : nullptr, n);
              if (silu) kernels_.silu_mul(result, result, ones, n);
              Finish(kernels_, out, r * channels + c, n, result);
              if (at.to(r) < 0) continue;
              for (int64_t i = 0; i < before; ++i) {
                // Elements that were widened are narrowed to what they were.
                kernels_.narrow[ElementOf(x.dtype)](At(states, slot_row(at.to(r), i, c)),
                                                    rows[i + 1], n);
              }
            }
          }
        }
      });
}

void CpuStateOps::DoStateDecay(Tensor decay, Tensor step, Tensor x, Tensor rate, Tensor bias,
                               float least, float most) {
  const int64_t heads = x.cols();
  const auto* const rates = static_cast<const float*>(rate.data);
  const auto* const biases = static_cast<const float*>(bias.data);
  context_.ForRanges(x.rows(), 64 * heads, [&](int64_t begin, int64_t end, int thread) {
    float* const buffer = context_.Scratch(thread, heads);
    for (int64_t r = begin; r < end; ++r) {
      const float* const in = Read(kernels_, x, r * heads, heads, buffer);
      for (int64_t h = 0; h < heads; ++h) {
        const double wanted =
            ExactSoftplus(static_cast<double>(in[h]) + static_cast<double>(biases[h]));
        // Also for NaN, which stays.
        const float value = static_cast<float>(wanted < least  ? least
                                               : wanted > most ? most
                                                               : wanted);
        if (step.size() > 0) reinterpret_cast<float*>(At(step, r * heads))[h] = value;
        reinterpret_cast<float*>(At(decay, r * heads))[h] =
            static_cast<float>(ExactExp(static_cast<double>(rates[h]) * value));
      }
    }
  });
}

void CpuStateOps::DoSigmoid(Tensor out, Tensor x) {
  const int64_t cols = x.cols();
  context_.ForRanges(x.rows(), 32 * cols, [&](int64_t begin, int64_t end, int thread) {
    float* const buffer = context_.Scratch(thread, cols);
    for (int64_t r = begin; r < end; ++r) {
      const float* const in = Read(kernels_, x, r * cols, cols, buffer);
      auto* const to = reinterpret_cast<float*>(At(out, r * cols));
      for (int64_t i = 0; i < cols; ++i) {
        to[i] = static_cast<float>(1.0 / (1.0 + ExactExp(-static_cast<double>(in[i]))));
      }
    }
  });
}

void CpuStateOps::DoUpdateStates(Tensor out, const StateUpdate& update, Tensor states,
                                 const StatePlaces& places) {
  const Places at(places, out.rows(), states.rows());
  const int64_t heads = update.num_heads, key_cols = update.k.cols(), value_cols = out.cols();
  const int64_t keys = key_cols / update.num_key_heads, values = value_cols / heads;
  const int64_t heads_per_key = heads / update.num_key_heads;
  const int64_t padded_keys = RoundUp(keys, kWholeKeys);
  const int64_t parts = (values + kColumns - 1) / kColumns;
  const auto loop = kernels_.update_state[update.rule == StateUpdate::Rule::kDelta];
  const int64_t num_units = at.num_seqs() * heads * parts;
  const int64_t cost = keys * kColumns * 4 * std::max<int64_t>(1, out.rows() / at.num_seqs());
  context_.ForRanges(num_units, cost, [&](int64_t first, int64_t last, int thread) {
    float* const q =
        context_.Scratch(thread, kRows * (2 * padded_keys + 2 * kColumns) + padded_keys * kColumns);
    float* const k = q + kRows * padded_keys;
    float* const v = k + kRows * padded_keys;
    float* const results = v + kRows * kColumns;
    float* const scratch = results + kRows * kColumns;
    for (int64_t unit = first; unit < last; ++unit) {
      const int64_t seq = unit / (heads * parts), head = unit / parts % heads;
      const int64_t column = unit % parts * kColumns, n = std::min(kColumns, values - column);
      const int64_t begin = at.begin(seq), end = at.end(seq);
      if (begin == end) continue;
      const int64_t padded = RoundUp(n, kWholeColumns);
      const auto in_slot = [&](int64_t slot) {
        return reinterpret_cast<float*>(At(states, (slot * heads + head) * keys * values + column));
      };
      const auto copy = [&](float* to, int64_t to_stride, const float* from, int64_t from_stride) {
        for (int64_t i = 0; i < keys; ++i) {
          std::memcpy(to + i * to_stride, from + i * from_stride, n * sizeof(float));
        }
      };
      // The state is changed in the slot that it ends in, if the loop can work there.
      const int64_t home = padded == n && padded_keys == keys ? at.to(end - 1) : -1;
      float* const state = home >= 0 ? in_slot(home) : scratch;
      const int64_t stride = home >= 0 ? values : kColumns;
      const int64_t from = at.from(seq);
      if (home < 0) std::fill_n(scratch, padded_keys * kColumns, 0.0f);
      if (from >= 0 && from != home) {
        copy(state, stride, in_slot(from), values);
      } else if (from < 0 && home >= 0) {
        for (int64_t i = 0; i < keys; ++i) std::fill_n(state + i * stride, n, 0.0f);
      }
      for (int64_t r = begin; r < end;) {
        int64_t stop = r + 1;
        while (stop < end && stop - r < kRows && at.to(stop - 1) < 0) ++stop;
        for (int64_t i = r; i < stop; ++i) {
          const auto widen = [&](float* to, const Tensor& t, int64_t element, int64_t count,
                                 int64_t room) {
            kernels_.widen[ElementOf(t.dtype)](to, At(t, element), count);
            std::fill(to + count, to + room, 0.0f);
          };
          const int64_t key = i * key_cols + head / heads_per_key * keys;
          widen(q + (i - r) * padded_keys, update.q, key, keys, padded_keys);
          widen(k + (i - r) * padded_keys, update.k, key, keys, padded_keys);
          widen(v + (i - r) * kColumns, update.v, i * value_cols + head * values + column, n,
                padded);
        }
        const auto gate = [&](const Tensor& t) {
          return reinterpret_cast<const float*>(At(t, r * heads + head));
        };
        loop({.out = results,
              .state = state,
              .state_stride = static_cast<size_t>(stride),
              .q = q,
              .k = k,
              .v = v,
              .value_stride = static_cast<size_t>(kColumns),
              .decay = gate(update.decay),
              .strength = gate(update.strength),
              .gate_stride = static_cast<size_t>(heads),
              .skip = update.skip.size() > 0 ? static_cast<const float*>(update.skip.data) + head
                                             : nullptr,
              .num_rows = static_cast<size_t>(stop - r),
              .key_dim = static_cast<size_t>(padded_keys),
              .num_columns = static_cast<size_t>(padded)});
        for (int64_t i = r; i < stop; ++i) {
          kernels_.narrow[ElementOf(out.dtype)](At(out, i * value_cols + head * values + column),
                                                results + (i - r) * kColumns, n);
        }
        const int64_t to = at.to(stop - 1);
        if (to >= 0 && to != home) copy(in_slot(to), values, state, stride);
        r = stop;
      }
    }
  });
}

}  // namespace continuo::kernels::cpu
