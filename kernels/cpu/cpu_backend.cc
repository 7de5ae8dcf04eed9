// SPDX-License-Identifier: Apache-2.0
// Memory, and the ops that treat each row or element by itself.
#include "kernels/cpu/cpu_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/rows.h"
#include "kernels/exact_math.h"
#include "services/base/check.h"

namespace continuo::kernels::cpu {
namespace {

// Elements of work below which waking another thread costs more than it saves.
constexpr int64_t kElementsPerPart = 8192;

}  // namespace

CpuBackend::CpuBackend(const KernelTable& kernels, int num_threads, host::Place place)
    : kernels_(kernels),
      place_(std::move(place)),
      pool_(num_threads, [this] { host::BindThread(place_); }),
      scratch_(num_threads),
      read_ahead_(num_threads) {
  static_assert(kSpan == kAttentionSpan);
}

CpuBackend::~CpuBackend() {
  for (const auto& [data, bytes] : allocations_) munmap(data, bytes);
}

std::string CpuBackend::name() const { return absl::StrCat("cpu/", kernels_.name); }

absl::StatusOr<void*> CpuBackend::Allocate(size_t bytes) {
  constexpr size_t kHuge = size_t{2} << 20;
  const size_t size = std::max<size_t>(bytes, 1);
  // Fresh pages are zeroed, and taken from the machine only when touched.
  void* const data =
      size > std::numeric_limits<size_t>::max() / 2
          ? MAP_FAILED
          : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", bytes, " bytes on cpu"));
  }
  if (size >= kHuge) madvise(data, size, MADV_HUGEPAGE);
  host::BindMemory(place_, data, size);
  allocations_.emplace(data, size);
  return data;
}

void CpuBackend::Free(void* data) {
  if (data == nullptr) return;
  const auto it = allocations_.find(data);
  CONTINUO_CHECK(it != allocations_.end());
  munmap(data, it->second);
  allocations_.erase(it);
}

void CpuBackend::CopyIn(Tensor dst, const void* host) {
  if (dst.bytes() > 0) std::memcpy(dst.data, host, dst.bytes());
}

void CpuBackend::CopyOut(void* host, Tensor src) {
  if (src.bytes() > 0) std::memcpy(host, src.data, src.bytes());
}

absl::Status CpuBackend::Synchronize() { return absl::OkStatus(); }

void CpuBackend::ParallelFor(int n, absl::FunctionRef<void(int)> body) {
  pool_.Run(n, [&](int i, int) { body(i); });
}

void CpuBackend::ForParts(int64_t n, int64_t cost,
                          absl::FunctionRef<void(int64_t, int64_t, int)> body) {
  if (n <= 0) return;
  const int64_t per_part = std::max<int64_t>(1, kElementsPerPart / std::max<int64_t>(1, cost));
  const int64_t parts = (n + per_part - 1) / per_part;
  pool_.Run(static_cast<int>(parts), [&](int part, int thread) {
    const int64_t begin = part * per_part;
    body(begin, std::min(n, begin + per_part), thread);
  });
}

void CpuBackend::Embed(Tensor out, const Weight& table, Tensor token_ids, int first_id,
                       float scale) {
  CONTINUO_CHECK(token_ids.dtype == DType::kI32);
  CONTINUO_CHECK(IsActivation(out.dtype) && token_ids.size() == out.rows());
  const int64_t cols = out.cols();
  CONTINUO_CHECK(table.data.rows() == 0 || table.data.cols() == cols);
  const int32_t* ids = static_cast<const int32_t*>(token_ids.data);
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
  ForParts(out.rows(), cols, [&](int64_t begin, int64_t end, int thread) {
    float* buffer = scratch_[thread].Get(cols);
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

void CpuBackend::RmsNorm(Tensor out, Tensor x, Tensor gain, float eps) {
  const int64_t n = gain.size();
  CONTINUO_CHECK(IsActivation(out.dtype) && IsActivation(x.dtype) && out.size() == x.size());
  if (x.size() == 0) return;
  CONTINUO_CHECK(n > 0 && x.size() % n == 0);
  host::Scratch& gains = packed_;
  const float* g = Read(kernels_, gain, 0, n, gains.Get(n));
  ForParts(x.size() / n, n, [&](int64_t begin, int64_t end, int thread) {
    float* buffer = scratch_[thread].Get(n);
    for (int64_t r = begin; r < end; ++r) {
      const float* in = Read(kernels_, x, r * n, n, buffer);
      float* row = Begin(out, r * n, buffer);
      const float mean = kernels_.sum_squares(in, n) / static_cast<float>(n);
      kernels_.scale(row, in, 1.0f / std::sqrt(mean + eps), g, n);
      Finish(kernels_, out, r * n, n, row);
    }
  });
}

void CpuBackend::AddSum(Tensor x, Tensor sum, Tensor bias) {
  const int64_t cols = x.cols();
  CONTINUO_CHECK(IsActivation(x.dtype) && sum.dtype == DType::kF32 && sum.size() == x.size());
  CONTINUO_CHECK(bias.size() == 0 || (bias.dtype == DType::kF32 && bias.size() == cols));
  ForParts(x.rows(), cols, [&](int64_t begin, int64_t end, int thread) {
    float* buffer = scratch_[thread].Get(3 * cols);
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

void CpuBackend::RopeAngles(Tensor angles, Tensor positions, Tensor frequencies, float scale) {
  const int64_t n = frequencies.size();
  CONTINUO_CHECK(angles.dtype == DType::kF32 && positions.dtype == DType::kI32);
  CONTINUO_CHECK(frequencies.dtype == DType::kF32 && angles.cols() == 2 * n);
  CONTINUO_CHECK(positions.size() == angles.rows());
  const int32_t* p = static_cast<const int32_t*>(positions.data);
  const float* f = static_cast<const float*>(frequencies.data);
  ForParts(angles.rows(), 64 * n, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = reinterpret_cast<float*>(At(angles, r * 2 * n));
      for (int64_t i = 0; i < n; ++i) {
        const SinCosResult result = SinCos(static_cast<double>(p[r]) * static_cast<double>(f[i]));
        row[i] = static_cast<float>(result.cos) * scale;
        row[n + i] = static_cast<float>(result.sin) * scale;
      }
    }
  });
}

void CpuBackend::Rope(Tensor x, Tensor angles, int head_dim) {
  CONTINUO_CHECK(IsActivation(x.dtype) && angles.dtype == DType::kF32);
  if (x.size() == 0) return;
  const int64_t n = angles.cols() / 2;
  const int64_t cols = x.cols();
  CONTINUO_CHECK(head_dim > 0 && cols % head_dim == 0 && 2 * n <= head_dim);
  CONTINUO_CHECK(angles.rows() == x.rows());
  ForParts(x.rows(), cols, [&](int64_t begin, int64_t end, int thread) {
    float* buffer = scratch_[thread].Get(2 * n);
    for (int64_t r = begin; r < end; ++r) {
      const float* cos = reinterpret_cast<const float*>(At(angles, r * 2 * n));
      for (int64_t at = r * cols; at < (r + 1) * cols; at += head_dim) {
        Read(kernels_, x, at, 2 * n, buffer);
        float* head = Begin(x, at, buffer);
        kernels_.rotate(head, head + n, cos, cos + n, n);
        Finish(kernels_, x, at, 2 * n, head);
      }
    }
  });
}

void CpuBackend::WriteKv(const PagedKv& kv, Tensor k, Tensor v, Tensor slots) {
  const int64_t num_heads = kv.cache.shape[1];
  const int64_t num_slots = kv.cache.shape[0] * kv.block_size;
  CONTINUO_CHECK(slots.dtype == DType::kI32 && slots.size() == k.rows() && k.rows() == v.rows());
  CONTINUO_CHECK(k.cols() == v.cols());
  if (k.cols() == 0) return;
  CONTINUO_CHECK(kv.block_size > 0 && num_heads > 0);
  const int64_t head_dim = k.cols() / num_heads;
  const DType dtype = kv.cache.dtype;
  CONTINUO_CHECK(head_dim * num_heads == k.cols());
  CONTINUO_CHECK(kv.cache.shape[2] == 2 * kv.block_size * KvRowElements(dtype, head_dim));
  const int32_t* s = static_cast<const int32_t*>(slots.data);
  ForParts(k.rows(), 2 * k.cols(), [&](int64_t begin, int64_t end, int thread) {
    float* buffer = scratch_[thread].Get(head_dim);
    for (int64_t r = begin; r < end; ++r) {
      CONTINUO_CHECK(s[r] >= 0 && s[r] < num_slots);
      const int64_t block = s[r] / kv.block_size, offset = s[r] % kv.block_size;
      for (int64_t head = 0; head < num_heads; ++head) {
        for (const int which : {0, 1}) {
          const Tensor& from = which == 0 ? k : v;
          const int64_t element = r * from.cols() + head * head_dim;
          char* const rows = KvRows(kv, block, head, which);
          char* const to = rows + offset * head_dim * static_cast<int64_t>(SizeOf(dtype));
          if (dtype == from.dtype) {
            std::memcpy(to, At(from, element), head_dim * SizeOf(dtype));
          } else if (dtype == DType::kI8) {
            float scale;
            int32_t sum;
            kernels_.quantise(reinterpret_cast<int8_t*>(to), &scale, &sum,
                              Read(kernels_, from, element, head_dim, buffer), head_dim);
            std::memcpy(rows + kv.block_size * head_dim + offset * sizeof(scale), &scale,
                        sizeof(scale));
          } else {
            kernels_.widen[ElementOf(from.dtype)](buffer, At(from, element), head_dim);
            CONTINUO_CHECK(IsActivation(dtype));
            kernels_.narrow[ElementOf(dtype)](to, buffer, head_dim);
          }
        }
      }
    }
  });
}

void CpuBackend::CopyKvBlocks(const PagedKv& kv, Tensor pairs) {
  CONTINUO_CHECK(pairs.dtype == DType::kI32 && (pairs.rows() == 0 || pairs.cols() == 2));
  const int64_t block = kv.cache.cols();
  if (block == 0) return;
  const int32_t* p = static_cast<const int32_t*>(pairs.data);
  for (int64_t i = 0; i < pairs.rows(); ++i) {
    const int64_t from = p[2 * i], to = p[2 * i + 1];
    CONTINUO_CHECK(from >= 0 && from < kv.cache.rows() && to >= 0 && to < kv.cache.rows());
    if (from == to) continue;
    std::memcpy(At(kv.cache, to * block), At(kv.cache, from * block),
                block * SizeOf(kv.cache.dtype));
  }
}

void CpuBackend::SiluMul(Tensor out, Tensor gate, Tensor up) {
  ActivateMul(kernels_.silu_mul, out, gate, up);
}

void CpuBackend::GeluMul(Tensor out, Tensor gate, Tensor up) {
  ActivateMul(kernels_.gelu_mul, out, gate, up);
}

GateLoop CpuBackend::LoopOf(GateFunction function) const {
  return function == GateFunction::kSilu ? kernels_.silu_mul : kernels_.gelu_mul;
}

void CpuBackend::SoftCap(Tensor x, float cap) {
  CONTINUO_CHECK(x.dtype == DType::kF32 && cap > 0);
  ForParts(x.size(), 8, [&](int64_t begin, int64_t end, int) {
    kernels_.soft_cap(reinterpret_cast<float*>(At(x, begin)), cap, end - begin);
  });
}

void CpuBackend::ActivateMul(GateLoop loop, Tensor out, Tensor gate, Tensor up) {
  CONTINUO_CHECK(IsActivation(out.dtype) && IsActivation(gate.dtype) && IsActivation(up.dtype));
  CONTINUO_CHECK(gate.size() == out.size() && up.size() == out.size());
  constexpr int64_t kRun = 1024;
  ForParts((out.size() + kRun - 1) / kRun, 4 * kRun, [&](int64_t begin, int64_t end, int thread) {
    float* buffer = scratch_[thread].Get(2 * kRun);
    for (int64_t at = begin * kRun; at < std::min(end * kRun, out.size()); at += kRun) {
      const int64_t n = std::min(kRun, out.size() - at);
      const float* g = Read(kernels_, gate, at, n, buffer);
      const float* u = Read(kernels_, up, at, n, buffer + kRun);
      float* row = Begin(out, at, buffer);
      loop(row, g, u, n);
      Finish(kernels_, out, at, n, row);
    }
  });
}

void CpuBackend::GatherRows(Tensor out, Tensor x, Tensor rows) {
  CONTINUO_CHECK(rows.dtype == DType::kI32 && rows.size() == out.rows());
  CONTINUO_CHECK(out.dtype == x.dtype && out.cols() == x.cols());
  const int64_t cols = out.cols();
  if (cols == 0) return;
  const int32_t* r = static_cast<const int32_t*>(rows.data);
  ForParts(out.rows(), cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      CONTINUO_CHECK(r[i] >= 0 && r[i] < x.rows());
      std::memcpy(At(out, i * cols), At(x, r[i] * cols), cols * SizeOf(out.dtype));
    }
  });
}

}  // namespace continuo::kernels::cpu
