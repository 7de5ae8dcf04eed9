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

void CpuRowOps::DoEmbed(Tensor out, const Weight& table, Tensor token_ids, int first_id,
                        float scale) {
  const int64_t cols = out.cols();
  const auto* const ids = static_cast<const int32_t*>(token_ids.data);
  const bool is_dense = table.format == WeightFormat::kDense;
  const int64_t whole[] = {0, cols};
  const PanelLayout layout(is_dense ? WeightFormat::kBF16Panels : table.format, whole);
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
  context_.ForRanges(
      (size + kRun - 1) / kRun, 4 * kRun, [&](int64_t begin, int64_t end, int thread) {
        float* buffer = context_.Scratch(thread, 2 * kRun);
        for (int64_t at = begin * kRun; at < std::min(end * kRun, size); at += kRun) {
          const int64_t n = std::min(kRun, size - at);
          const float* g = Read(kernels_, gate, at, n, buffer);
          const float* u = Read(kernels_, up, at, n, buffer + kRun);
          float* row = Begin(out, at, buffer);
          loop(row, g, u, n);
          Finish(kernels_, out, at, n, row);
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

}  // namespace continuo::kernels::cpu
