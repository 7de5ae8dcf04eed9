// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/cublaslt_matmul.h"

#include <bit>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/runtime/cuda_status.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo::kernels::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // cuBLAS's manual recommends it for Hopper
constexpr size_t kMaxPlans = 16384;
constexpr int64_t kFixedRows = 128;  // a deterministic algorithm is picked for these
// A deterministic algorithm has to compute these numbers of rows, too, so that products rarely have
// to be cut into two. With one row there is always a part that it computes.
constexpr int64_t kCheckedRows[] = {1, 2, 16, 129, 4096};
constexpr int kMaxCandidates = 16;

enum Part {
  kRows,
  kColumns,
  kK,
  kXType,
  kOutType,
  kHasScales,
  kWAlign,
  kXAlign,
  kOutAlign,
  kOutStride
};

// Returns the number of rows for which an algorithm is looked up that serves `rows`. Prompts have
// any number, and a look-up takes about as long as a product.
int64_t SharedRows(int64_t rows) {
  if (rows <= 16) return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
  const int64_t step = rows <= 256 ? 16 : 64;
  return (rows + step - 1) / step * step;
}

// Returns the largest power of two, up to 16, that the addresses of all rows are multiples of,
// including rows before the first one. It is therefore the same for some rows of a matrix as for
// all. No algorithm asks for more than 16.
int64_t AlignmentOf(const void* data, int64_t row_elements, DType dtype) {
  const auto row_bytes = row_elements * static_cast<int64_t>(SizeOf(dtype));
  const auto bits = reinterpret_cast<uintptr_t>(data) | static_cast<uintptr_t>(row_bytes) | 16;
  return static_cast<int64_t>(bits & (~bits + 1));
}

cudaDataType_t TypeOf(int64_t dtype) {
  switch (static_cast<DType>(dtype)) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kF8:
      return CUDA_R_8F_E4M3;
    default:
      return CUDA_R_16BF;
  }
}
bool IsFp8(int64_t dtype) { return static_cast<DType>(dtype) == DType::kF8; }

std::string NameOf(std::span<const int64_t> key) {
  return absl::StrCat("[", key[kRows], ", ", key[kK], "] · [", key[kColumns], ", ", key[kK], "]ᵀ");
}

// Returns how sums may be split over K. Sums in the type of out would be rounded more than once and
// may overflow in f16. Where K is no multiple of what tensor cores take at once, cuBLASLt may lose
// the end of it.
uint32_t SplitsOf(int64_t k, int64_t x_type, int64_t out_type) {
  if (k % (IsFp8(x_type) ? 128 : 64) != 0) return CUBLASLT_REDUCTION_SCHEME_NONE;
  return static_cast<DType>(out_type) == DType::kF32 ? CUBLASLT_REDUCTION_SCHEME_MASK
                                                     : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CublasLtMatMul>> CublasLtMatMul::Make(
    int device, const CublasLtOptions& options) {
  std::unique_ptr<CublasLtMatMul> made(new CublasLtMatMul(device, options));
  RETURN_IF_ERROR(SetDevice(device));
  RETURN_IF_ERROR(made->Error(cublasLtCreate(&made->handle_), "cublasLtCreate"));
  ASSIGN_OR_RETURN(made->workspace_, DeviceBuffer::Make(device, kWorkspaceBytes));
  return made;
}

CublasLtMatMul::~CublasLtMatMul() {
  if (handle_ != nullptr) (void)cublasLtDestroy(handle_);
}

absl::Status CublasLtMatMul::Error(cublasStatus_t status, absl::string_view what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  if (status == CUBLAS_STATUS_ALLOC_FAILED) {
    return CudaStatus(cudaErrorMemoryAllocation, device_, what);
  }
  return absl::InternalError(absl::StrCat("cuda:", device_, ": ", what, ": ",
                                          cublasLtGetStatusString(status), " (",
                                          cublasLtGetStatusName(status), ")"));
}

// cuBLAS is column-major: a row-major [n, m] is an m × n matrix to it. So out is m × n with m =
// columns and n = rows, w is k × m and transposed, and x is k × n.
absl::StatusOr<CublasLtMatMul::Plan> CublasLtMatMul::Describe(const Key& key) const {
  Plan plan;
  const auto rows = static_cast<uint64_t>(key[kRows]),
             columns = static_cast<uint64_t>(key[kColumns]);
  const auto k = static_cast<uint64_t>(key[kK]);
  const cudaDataType_t in = TypeOf(key[kXType]), out = TypeOf(key[kOutType]);
  RETURN_IF_ERROR(Error(cublasLtMatmulDescInit(&plan.product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                        "cublasLtMatmulDescInit"));
  const cublasOperation_t transposed = CUBLAS_OP_T;
  RETURN_IF_ERROR(Error(cublasLtMatmulDescSetAttribute(&plan.product, CUBLASLT_MATMUL_DESC_TRANSA,
                                                       &transposed, sizeof(transposed)),
                        "cublasLtMatmulDescSetAttribute"));
  if (IsFp8(key[kXType]) && options_.fp8_fast_accumulation) {
    const int8_t fast = 1;
    RETURN_IF_ERROR(Error(cublasLtMatmulDescSetAttribute(
                              &plan.product, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof(fast)),
                          "cublasLtMatmulDescSetAttribute"));
  }
  if (key[kHasScales] != 0) {
    const cublasLtMatmulMatrixScale_t by_row = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    for (const auto mode : {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_MODE}) {
      RETURN_IF_ERROR(
          Error(cublasLtMatmulDescSetAttribute(&plan.product, mode, &by_row, sizeof(by_row)),
                "cublasLtMatmulDescSetAttribute"));
    }
    // The algorithm is looked up with any scales. A product brings its own.
    const auto* const some = static_cast<const float*>(workspace_.data());
    RETURN_IF_ERROR(SetScales(plan, some, some));
  }
  RETURN_IF_ERROR(Error(cublasLtMatrixLayoutInit(&plan.w, in, k, columns, key[kK]),
                        "cublasLtMatrixLayoutInit"));
  RETURN_IF_ERROR(
      Error(cublasLtMatrixLayoutInit(&plan.x, in, k, rows, key[kK]), "cublasLtMatrixLayoutInit"));
  RETURN_IF_ERROR(Error(cublasLtMatrixLayoutInit(&plan.out, out, columns, rows, key[kOutStride]),
                        "cublasLtMatrixLayoutInit"));
  return plan;
}

absl::StatusOr<bool> CublasLtMatMul::Computes(const cublasLtMatmulAlgo_t& algorithm,
                                              Plan plan) const {
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle_, &plan.product, &plan.w, &plan.x,
                                                        &plan.out, &plan.out, &algorithm, &result);
  // The algorithm does not fit the matrices or the device.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
      status == CUBLAS_STATUS_ARCH_MISMATCH) {
    return false;
  }
  RETURN_IF_ERROR(Error(status, "cublasLtMatmulAlgoCheck"));
  return result.workspaceSize <= workspace_.bytes();
}

absl::StatusOr<std::optional<cublasLtMatmulAlgo_t>> CublasLtMatMul::PickAlgorithm(
    const Key& key, cudaStream_t stream) const {
  // The first step of a shape is enqueued, so a capture finds all algorithms. Newer versions of
  // cuBLASLt fail here while a stream is captured.
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  if (stream != nullptr) {
    RETURN_IF_ERROR(
        CudaStatus(cudaStreamIsCapturing(stream, &capturing), device_, "cudaStreamIsCapturing"));
  }
  CONTINUO_CHECK(capturing == cudaStreamCaptureStatusNone);
  ASSIGN_OR_RETURN(Plan plan, Describe(key));
  cublasLtMatmulPreferenceOpaque_t preference;
  RETURN_IF_ERROR(Error(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit"));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    return Error(
        cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
  };
  const auto aligned = [&](Part part) { return static_cast<uint32_t>(key[part]); };
  const uint32_t splits = options_.deterministic ? uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE}
                                                 : SplitsOf(key[kK], key[kXType], key[kOutType]);
  RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes}));
  RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned(kWAlign)));
  RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned(kXAlign)));
  RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned(kOutAlign)));
  RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned(kOutAlign)));
  RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, splits));
  cublasLtMatmulHeuristicResult_t results[kMaxCandidates];
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, &plan.product, &plan.w, &plan.x, &plan.out, &plan.out,
                                     &preference, kMaxCandidates, results, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return std::nullopt;
  RETURN_IF_ERROR(Error(status, absl::StrCat("cublasLtMatmulAlgoGetHeuristic of ", NameOf(key))));
  std::vector<Plan> to_compute = {plan};
  if (options_.deterministic) {
    Key other = key;
    for (const int64_t rows : kCheckedRows) {
      other[kRows] = rows;
      ASSIGN_OR_RETURN(to_compute.emplace_back(), Describe(other));
    }
  }
  for (const cublasLtMatmulHeuristicResult_t& result : std::span(results).first(found)) {
    if (result.state != CUBLAS_STATUS_SUCCESS) continue;
    bool computes_all = true;
    for (size_t i = 0; i < to_compute.size() && computes_all; ++i) {
      ASSIGN_OR_RETURN(computes_all, Computes(result.algo, to_compute[i]));
    }
    if (computes_all) return result.algo;
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<cublasLtMatmulAlgo_t>> CublasLtMatMul::AlgorithmFor(
    const Key& key, cudaStream_t stream) {
  if (const auto it = algorithms_.find(key); it != algorithms_.end()) return it->second;
  ASSIGN_OR_RETURN(const auto algorithm, PickAlgorithm(key, stream));
  algorithms_.emplace(key, algorithm);
  return algorithm;
}

absl::StatusOr<const CublasLtMatMul::Plan*> CublasLtMatMul::PlanFor(const Key& key,
                                                                    cudaStream_t stream) {
  if (const auto it = plans_.find(key); it != plans_.end()) return &it->second;
  if (plans_.size() >= kMaxPlans) plans_.clear();
  ASSIGN_OR_RETURN(Plan plan, Describe(key));
  Key shape = key;
  shape[kRows] = options_.deterministic ? kFixedRows : SharedRows(key[kRows]);
  ASSIGN_OR_RETURN(plan.algorithm, AlgorithmFor(shape, stream));
  bool computes = false;
  if (plan.algorithm.has_value()) {
    ASSIGN_OR_RETURN(computes, Computes(*plan.algorithm, plan));
  }
  if (!computes && !options_.deterministic) {
    ASSIGN_OR_RETURN(plan.algorithm, AlgorithmFor(key, stream));
  } else if (!computes && plan.algorithm.has_value()) {
    plan.in_parts = key[kRows] > 1;  // another algorithm would give other bits
    if (!plan.in_parts) plan.algorithm.reset();
  }
  return &(plans_[key] = plan);
}

absl::Status CublasLtMatMul::SetScales(Plan& plan, const float* x_scales,
                                       const float* w_scales) const {
  RETURN_IF_ERROR(
      Error(cublasLtMatmulDescSetAttribute(&plan.product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                                           &w_scales, sizeof(w_scales)),
            "cublasLtMatmulDescSetAttribute"));
  return Error(cublasLtMatmulDescSetAttribute(&plan.product, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                                              &x_scales, sizeof(x_scales)),
               "cublasLtMatmulDescSetAttribute");
}

absl::Status CublasLtMatMul::Run(Tensor out, Tensor x, Tensor w, cudaStream_t stream,
                                 int64_t out_stride) {
  const int64_t rows = out.rows(), columns = out.cols(), k = x.cols();
  CONTINUO_CHECK(rows > 0 && columns > 0 && k > 0 && x.rows() == rows);
  CONTINUO_CHECK(w.rows() == columns && w.cols() == k && x.dtype == w.dtype);
  CONTINUO_CHECK(x.dtype == DType::kF32 || x.dtype == DType::kBF16 || x.dtype == DType::kF16);
  CONTINUO_CHECK(out.dtype == DType::kF32 || out.dtype == x.dtype);
  CONTINUO_CHECK(out_stride == 0 || out_stride >= columns);
  const int64_t stride = out_stride == 0 ? columns : out_stride;
  return Multiply(
      {rows, columns, k, static_cast<int64_t>(x.dtype), static_cast<int64_t>(out.dtype),
       /*has_scales=*/0, AlignmentOf(w.data, k, w.dtype), AlignmentOf(x.data, k, x.dtype),
       AlignmentOf(out.data, stride, out.dtype), stride},
      out.data, x.data, nullptr, w.data, nullptr, stream);
}

absl::Status CublasLtMatMul::Run(Tensor out, const Fp8Matrix& x, const Fp8Matrix& w,
                                 cudaStream_t stream) {
  CONTINUO_CHECK(x.rows > 0 && w.rows > 0 && x.k > 0 && x.k == w.k && x.k % 16 == 0);
  CONTINUO_CHECK(out.rows() == x.rows && out.cols() == w.rows);
  const bool has_scales = x.scales != nullptr;
  CONTINUO_CHECK(has_scales == (w.scales != nullptr));
  CONTINUO_CHECK(out.dtype == DType::kF32 || (has_scales && out.dtype == DType::kBF16));
  return Multiply(
      {x.rows, w.rows, x.k, static_cast<int64_t>(DType::kF8), static_cast<int64_t>(out.dtype),
       has_scales, AlignmentOf(w.data, w.k, DType::kF8), AlignmentOf(x.data, x.k, DType::kF8),
       AlignmentOf(out.data, w.rows, out.dtype), w.rows},
      out.data, x.data, x.scales, w.data, w.scales, stream);
}

absl::StatusOr<bool> CublasLtMatMul::Has(const CublasLtShape& shape, cudaStream_t stream) {
  const auto aligned = [](int64_t elements, DType dtype) {
    return AlignmentOf(nullptr, elements, dtype);
  };
  ASSIGN_OR_RETURN(
      const Plan* const plan,
      PlanFor({shape.rows, shape.columns, shape.k, static_cast<int64_t>(shape.in),
               static_cast<int64_t>(shape.out), shape.has_scales, aligned(shape.k, shape.in),
               aligned(shape.k, shape.in), aligned(shape.columns, shape.out), shape.columns},
              stream));
  return plan->algorithm.has_value();
}

absl::Status CublasLtMatMul::Multiply(const Key& key, void* out, const void* x,
                                      const float* x_scales, const void* w, const float* w_scales,
                                      cudaStream_t stream) {
  ASSIGN_OR_RETURN(const Plan* const plan, PlanFor(key, stream));
  if (!plan->algorithm.has_value()) {
    return Error(CUBLAS_STATUS_NOT_SUPPORTED, absl::StrCat("no algorithm for ", NameOf(key)));
  }
  if (plan->in_parts) {
    Key first = key, rest = key;
    first[kRows] = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(key[kRows] - 1)));
    rest[kRows] = key[kRows] - first[kRows];
    RETURN_IF_ERROR(Multiply(first, out, x, x_scales, w, w_scales, stream));
    const auto behind = [&](const void* data, int64_t row_elements, Part type) {
      const size_t row_bytes = static_cast<size_t>(row_elements) * SizeOf(DType(key[type]));
      return static_cast<const char*>(data) + static_cast<size_t>(first[kRows]) * row_bytes;
    };
    return Multiply(rest, const_cast<char*>(behind(out, key[kOutStride], kOutType)),
                    behind(x, key[kK], kXType),
                    x_scales == nullptr ? nullptr : x_scales + first[kRows], w, w_scales, stream);
  }
  Plan p = *plan;
  if (key[kHasScales] != 0) RETURN_IF_ERROR(SetScales(p, x_scales, w_scales));
  const float one = 1, zero = 0;
  return Error(cublasLtMatmul(handle_, &p.product, &one, w, &p.w, x, &p.x, &zero, out, &p.out, out,
                              &p.out, &*p.algorithm, workspace_.data(), workspace_.bytes(), stream),
               absl::StrCat("cublasLtMatmul ", NameOf(key)));
}

}  // namespace continuo::kernels::cuda
