// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/ops/cpu_row_ops.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/matmul/panel_layout.h"
#include "kernels/cpu/runtime/rows.h"
#include "services/base/check.h"

namespace continuo::kernels::cpu {
namespace {

// Sums value(0) … value(n - 1) in eight lanes of f64, element i in lane i mod 8, then the lanes
// pairwise. No instruction set changes its bits.
template <typename Value>
double SumInLanes(int64_t n, const Value& value) {
  constexpr int64_t kLanes = 8;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += value(i + lane);
  }
  for (int64_t lane = 0; i < n; ++i, ++lane) lanes[lane] += value(i);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

}  // namespace

void CpuRowOps::DoEmbed(Tensor out, const Weight& table, Tensor token_ids, int first_id,
                        float scale) {
  const int64_t cols = out.cols();
  const auto* const ids = static_cast<const int32_t*>(token_ids.data);
  const bool is_dense = table.format == WeightFormat::kDense;
  const int64_t whole[] = {0, cols};
  const PanelLayout layout(is_dense ? WeightFormat::kBF16Panels : table.format, whole,
                           table.groups);
  const auto widen = [&](int64_t row, float* to) {
    if (is_dense) {
      kernels_.widen[ElementOf(table.data.dtype)](to, At(table.data, row * cols), cols);
      return;
    }
    const uint8_t* panels = static_cast<const uint8_t*>(table.data.data);
    UnpackRow(layout, panels + row / kPanelColumns * layout.panel_bytes, row % kPanelColumns, to);
  };
  context_.ForRanges(out.rows(), cols, [&](int64_t begin, int64_t end, int thread) {
    float* buffer = context_.Scratch(thread, cols);
    for (int64_t r = begin; r < end; ++r) {
      const int64_t id = static_cast<int64_t>(ids[r]) - first_id;
      float* row = Begin(out, r * cols, buffer);
      if (id >= 0 && id < table.data.rows()) {
        widen(id, row);
        if (scale != 1) {
          for (int64_t i = 0; i < cols; ++i) row[i] *= scale;
        }
      } else {
        std::fill_n(row, cols, -0.0f);
      }
      Finish(kernels_, out, r * cols, cols, row);
    }
  });
}

void CpuRowOps::DoRmsNorm(Tensor out, Tensor x, Tensor gain, float eps) {
  const int64_t n = gain.size();
  const float* g = Read(kernels_, gain, 0, n, gain_.Get(n));
  context_.ForRanges(x.size() / n, n, [&](int64_t begin, int64_t end, int thread) {
    float* buffer = context_.Scratch(thread, n);
    for (int64_t r = begin; r < end; ++r) {
      const float* in = Read(kernels_, x, r * n, n, buffer);
      float* row = Begin(out, r * n, buffer);
      const float mean = kernels_.sum_squares(in, n) / static_cast<float>(n);
      kernels_.scale(row, in, 1.0f / std::sqrt(mean + eps), g, n);
      Finish(kernels_, out, r * n, n, row);
    }
  });
}

void CpuRowOps::DoLayerNorm(Tensor out, Tensor x, Tensor gain, Tensor bias, float eps) {
  const int64_t n = x.cols();
  const auto* const g = static_cast<const float*>(gain.data);
  context_.ForRanges(x.rows(), n, [&](int64_t begin, int64_t end, int thread) {
    float* buffer = context_.Scratch(thread, 2 * n);
    float* centred = buffer + n;
    for (int64_t r = begin; r < end; ++r) {
      const float* in = Read(kernels_, x, r * n, n, buffer);
      const auto value = [in](int64_t i) { return static_cast<double>(in[i]); };
      const double mean = SumInLanes(n, value) / static_cast<double>(n);
      const auto square = [&](int64_t i) { return (value(i) - mean) * (value(i) - mean); };
      const double variance = SumInLanes(n, square) / static_cast<double>(n);
      for (int64_t i = 0; i < n; ++i) centred[i] = static_cast<float>(value(i) - mean);
      const double factor = 1.0 / std::sqrt(variance + static_cast<double>(eps));
      float* row = Begin(out, r * n, buffer);
      kernels_.scale(row, centred, static_cast<float>(factor), g, n);
      if (bias.size() > 0) kernels_.add(row, row, static_cast<const float*>(bias.data), n);
      Finish(kernels_, out, r * n, n, row);
    }
  });
}

void CpuRowOps::DoSumSquares(Tensor out, Tensor x, int width, int first) {
  const int64_t n = out.cols(), cols = x.cols();
  context_.ForRanges(x.rows(), n * width, [&](int64_t begin, int64_t end, int thread) {
    float* buffer = context_.Scratch(thread, width);
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t i = 0; i < n; ++i) {
        const float* in = Read(kernels_, x, r * cols + (first + i) * width, width, buffer);
        const auto square = [in](int64_t j) { return static_cast<double>(in[j]) * in[j]; };
        *reinterpret_cast<float*>(At(out, r * n + i)) =
            static_cast<float>(SumInLanes(width, square));
      }
    }
  });
}

void CpuRowOps::DoRmsNormBySquares(Tensor x, Tensor squares, Tensor gain, int64_t count, float eps,
                                   const NormGroups& groups) {
  const int64_t n = x.cols(), heads = squares.cols(), sharing = heads / groups.num_groups;
  const int64_t mean_of = count / groups.num_groups;
  const auto* const g = static_cast<const float*>(gain.data);
  context_.ForRanges(x.rows(), n, [&](int64_t begin, int64_t end, int thread) {
    float* buffer = context_.Scratch(thread, n);
    for (int64_t r = begin; r < end; ++r) {
      const float* in = Read(kernels_, x, r * n, n, buffer);
      float* row = Begin(x, r * n, buffer);
      int64_t group = groups.first_head / sharing;
      for (int64_t from = 0, to = 0; from < n; from = to, ++group) {
        to = std::min(n, ((group + 1) * sharing - groups.first_head) * (count / heads));
        double sum = 0;
        for (int64_t i = group * sharing; i < (group + 1) * sharing; ++i) {
          sum += *reinterpret_cast<const float*>(At(squares, r * heads + i));
        }
        const double factor =
            1.0 / std::sqrt(sum / static_cast<double>(mean_of) + static_cast<double>(eps));
        kernels_.scale(row + from, in + from, static_cast<float>(factor), g + from, to - from);
      }
      Finish(kernels_, x, r * n, n, row);
    }
  });
}

void CpuRowOps::DoAddSum(Tensor x, Tensor sum, Tensor bias) {
  const int64_t cols = x.cols();
  context_.ForRanges(x.rows(), cols, [&](int64_t begin, int64_t end, int thread) {
    float* buffer = context_.Scratch(thread, 3 * cols);
    float* rounded = buffer + cols;
    for (int64_t r = begin; r < end; ++r) {
      const float* addend = reinterpret_cast<const float*>(At(sum, r * cols));
      if (bias.size() > 0) {
        kernels_.add(rounded, addend, static_cast<const float*>(bias.data), cols);
        addend = rounded;
      }
      if (x.dtype == DType::kBF16) {
        void* narrow = buffer + 2 * cols;
        kernels_.narrow[kElementBF16](narrow, addend, cols);
        kernels_.widen[kElementBF16](rounded, narrow, cols);
        addend = rounded;
      }
      const float* before = Read(kernels_, x, r * cols, cols, buffer);
      float* row = Begin(x, r * cols, buffer);
      kernels_.add(row, before, addend, cols);
      Finish(kernels_, x, r * cols, cols, row);
    }
  });
}

void CpuRowOps::DoGateMul(GateFunction function, Tensor out, Tensor gate, Tensor up) {
  const GateLoop loop = GateLoopOf(kernels_, function);
  constexpr int64_t kRun = 1024;
  const int64_t size = out.size();
  const bool is_plain = up.size() == 0;
  context_.ForRanges(
      (size + kRun - 1) / kRun, 4 * kRun, [&](int64_t begin, int64_t end, int thread) {
        float* buffer = context_.Scratch(thread, 2 * kRun);
        for (int64_t at = begin * kRun; at < std::min(end * kRun, size); at += kRun) {
          const int64_t n = std::min(kRun, size - at);
          const float* g = Read(kernels_, gate, at, n, buffer);
          const float* u = buffer + kRun;
          if (is_plain) {
            std::fill_n(buffer + kRun, n, 1.0f);
          } else {
            u = Read(kernels_, up, at, n, buffer + kRun);
          }
          float* row = Begin(out, at, buffer);
          loop(row, g, u, n);
          Finish(kernels_, out, at, n, row);
        }
      });
}

void CpuRowOps::DoScale(Tensor x, float factor) {
  context_.ForRanges(x.size(), 1, [&](int64_t begin, int64_t end, int) {
    auto* const values = reinterpret_cast<float*>(At(x, 0));
    for (int64_t i = begin; i < end; ++i) values[i] *= factor;
  });
}

void CpuRowOps::DoScaleBy(Tensor x, Tensor factor) {
  const int64_t cols = x.cols();
  const float by = *static_cast<const float*>(factor.data);
  context_.ForRanges(x.rows(), cols, [&](int64_t begin, int64_t end, int thread) {
    float* const buffer = context_.Scratch(thread, cols);
    for (int64_t r = begin; r < end; ++r) {
      const float* const from = Read(kernels_, x, r * cols, cols, buffer);
      float* const to = Begin(x, r * cols, buffer);
      for (int64_t c = 0; c < cols; ++c) to[c] = from[c] * by;
      Finish(kernels_, x, r * cols, cols, to);
    }
  });
}

void CpuRowOps::DoSoftCap(Tensor x, float cap) {
  context_.ForRanges(x.size(), 8, [&](int64_t begin, int64_t end, int) {
    kernels_.soft_cap(reinterpret_cast<float*>(At(x, begin)), cap, end - begin);
  });
}

void CpuRowOps::DoGatherRows(Tensor out, Tensor x, Tensor rows) {
  const int64_t cols = out.cols();
  const auto* const r = static_cast<const int32_t*>(rows.data);
  context_.ForRanges(out.rows(), cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      CONTINUO_CHECK(r[i] >= 0 && r[i] < x.rows());
      std::memcpy(At(out, i * cols), At(x, r[i] * cols), cols * SizeOf(out.dtype));
    }
  });
}

void CpuRowOps::DoCopyHeads(Tensor out, Tensor x, const HeadPlaces& places) {
  const size_t bytes = static_cast<size_t>(places.count) * SizeOf(out.dtype);
  context_.ForRanges(out.rows(), int64_t{places.num_heads} * places.count,
                     [&](int64_t begin, int64_t end, int) {
                       for (int64_t r = begin; r < end; ++r) {
                         const int64_t to = r * out.cols() + places.out_begin;
                         const int64_t from = r * x.cols() + places.x_begin;
                         for (int64_t h = 0; h < places.num_heads; ++h) {
                           std::memcpy(At(out, to + h * places.out_stride),
                                       At(x, from + h * places.x_stride), bytes);
                         }
                       }
                     });
}

}  // namespace continuo::kernels::cpu
