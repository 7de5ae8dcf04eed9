// SPDX-License-Identifier: Apache-2.0
// The functions of cuBLASLt that kernels/cuda calls. A product is a loop in double. An algorithm
// remembers the product that it was looked up for, and another use is a violation. ShimOptions
// decides which algorithms there are.
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cublasLt.h"
#include "kernels/cuda/formats/fp8.h"
#include "kernels/math/bfloat16.h"
#include "tests/kernels/cuda/shim/shim_state.h"

using continuo::kernels::FromBF16;
using continuo::kernels::FromF16;
using continuo::kernels::ToBF16;
using continuo::kernels::ToF16;
using continuo::testing::CountCall;
using continuo::testing::CudaShim;
using continuo::testing::CurrentDevice;
using continuo::testing::ShimProduct;
using continuo::testing::State;
using continuo::testing::TheState;

struct cublasLtContext {
  int device;
};

namespace {

// The contents of the opaque types.
struct Product {
  bool transposed_a, transposed_b;
  int32_t scale_modes[2];  // of A, B
  const float* scales[2];
  int8_t fast;
};
struct Layout {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t ld;
};
struct Preference {
  uint64_t workspace;
  uint32_t alignment[4];  // of A, B, C, D
  uint32_t reductions;
};
struct Algorithm {
  uint32_t index;
  uint64_t m, k;
  uint64_t workspace;
  uint32_t alignment[4];
  uint32_t is_for_any_n;
  uint64_t n;
};

template <typename T, typename Opaque>
T& As(Opaque* opaque) {
  static_assert(sizeof(T) <= sizeof(Opaque) && std::is_trivial_v<T>);
  return *reinterpret_cast<T*>(opaque);
}

// Counts the call and returns its error if it is the one that fails.
cublasStatus_t Count(const char* function) {
  auto& state = TheState();
  const std::lock_guard lock(state.mutex);
  return CountCall(state, function, CurrentDevice()) ? CUBLAS_STATUS_INTERNAL_ERROR
                                                     : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Refuse(const char* what) {
  (void)CudaShim::Refuse(what);
  return CUBLAS_STATUS_INVALID_VALUE;
}

bool Is16(cudaDataType_t type) { return type == CUDA_R_16BF || type == CUDA_R_16F; }

// Returns whether an e4m3 product keeps its additional rules: A is transposed, sizes and rows are
// multiples of 16 bytes, and there are scales of rows or, for sums in f32, none.
bool FitsFp8(const Product& product, const Layout& a, const Layout& b, const Layout& d) {
  const int64_t width = d.type == CUDA_R_32F ? 4 : 2;
  const bool has_scales = product.scale_modes[0] != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  for (int i = 0; i < 2; ++i) {
    if (product.scale_modes[i] != (has_scales ? CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
                                              : CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F) ||
        (product.scales[i] != nullptr) != has_scales) {
      return false;
    }
  }
  return product.transposed_a && a.rows % 16 == 0 && a.ld % 16 == 0 && b.ld % 16 == 0 &&
         static_cast<int64_t>(d.rows) * width % 16 == 0 && d.ld * width % 16 == 0 &&
         (d.type == CUDA_R_32F || (d.type == CUDA_R_16BF && has_scales));
}

// Returns whether D = op(A) · B has these shapes, which cuBLAS would otherwise refuse.
bool Fits(const Product& product, const Layout& a, const Layout& b, const Layout& d) {
  const uint64_t m = product.transposed_a ? a.columns : a.rows;
  const uint64_t k = product.transposed_a ? a.rows : a.columns;
  if (product.transposed_b || b.rows != k || b.columns != d.columns || d.rows != m ||
      a.ld < static_cast<int64_t>(a.rows) || b.ld < static_cast<int64_t>(b.rows) ||
      d.ld < static_cast<int64_t>(d.rows) || a.type != b.type || m * k * b.columns == 0) {
    return false;
  }
  if (a.type == CUDA_R_8F_E4M3) return FitsFp8(product, a, b, d);
  return (a.type == CUDA_R_32F || Is16(a.type)) && product.scale_modes[0] == 0 &&
         (d.type == CUDA_R_32F || d.type == a.type);
}

// Returns the workspace that an algorithm wants for a product, less than 0 if it does not compute
// that. Called with the mutex held.
int64_t WorkspaceOf(const State& state, const Algorithm& algorithm, const Product& product,
                    const Layout& a, const Layout& b, const Layout& d) {
  if (state.options.workspace_of == nullptr) return static_cast<int64_t>(algorithm.workspace);
  return state.options.workspace_of({.rows = static_cast<int64_t>(b.columns),
                                     .columns = static_cast<int64_t>(a.columns),
                                     .k = static_cast<int64_t>(a.rows),
                                     .is_fp8 = a.type == CUDA_R_8F_E4M3,
                                     .has_scales = product.scale_modes[0] != 0,
                                     .is_f32 = d.type == CUDA_R_32F,
                                     .is_fast = product.fast != 0,
                                     .algorithm = static_cast<int>(algorithm.index)});
}

double ElementOf(const void* data, const Layout& layout, uint64_t row, uint64_t column) {
  const uint64_t at = column * static_cast<uint64_t>(layout.ld) + row;
  if (layout.type == CUDA_R_32F) return static_cast<const float*>(data)[at];
  if (layout.type == CUDA_R_8F_E4M3) {
    return continuo::kernels::cuda::FromE4M3(static_cast<const uint8_t*>(data)[at]);
  }
  const uint16_t bits = static_cast<const uint16_t*>(data)[at];
  return layout.type == CUDA_R_16F ? FromF16(bits) : FromBF16(bits);
}

void Multiply(const Product& product, const void* a, const Layout& la, const void* b,
              const Layout& lb, void* d, const Layout& ld) {
  for (uint64_t column = 0; column < ld.columns; ++column) {
    for (uint64_t row = 0; row < ld.rows; ++row) {
      double sum = 0;
      for (uint64_t i = 0; i < lb.rows; ++i) {
        sum += (product.transposed_a ? ElementOf(a, la, i, row) : ElementOf(a, la, row, i)) *
               ElementOf(b, lb, i, column);
      }
      if (product.scale_modes[0] != 0) {
        sum *= static_cast<double>(product.scales[0][row]) *
               static_cast<double>(product.scales[1][column]);
      }
      const uint64_t at = column * static_cast<uint64_t>(ld.ld) + row;
      if (ld.type == CUDA_R_32F) {
        static_cast<float*>(d)[at] = static_cast<float>(sum);
      } else {
        const auto value = static_cast<float>(sum);
        static_cast<uint16_t*>(d)[at] = ld.type == CUDA_R_16F ? ToF16(value) : ToBF16(value);
      }
    }
  }
}

}  // namespace

extern "C" {

const char* cublasLtGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS_SHIM"; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "error of the shim"; }

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  const cublasStatus_t status = Count("cublasLtCreate");
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  *handle = new cublasLtContext{CurrentDevice()};
  auto& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.blas_handles.insert(*handle);
  return status;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  const cublasStatus_t status = Count("cublasLtDestroy");
  auto& state = TheState();
  {
    const std::lock_guard lock(state.mutex);
    if (state.blas_handles.erase(handle) == 0) {
      state.violations.emplace_back("a handle of cuBLASLt destroyed twice");
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  delete handle;
  return status;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t product, size_t,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  const cublasStatus_t status = Count("cublasLtMatmulDescInit");
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return Refuse("sums that are not f32");
  As<Product>(product) = {};
  return status;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  const cublasStatus_t status = Count("cublasLtMatmulDescSetAttribute");
  Product& p = As<Product>(product);
  const auto set = [&](auto& field) {
    if (bytes != sizeof(field)) return Refuse("an attribute of another size");
    std::memcpy(&field, value, bytes);
    return status;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: {
      cublasOperation_t operation = CUBLAS_OP_N;
      const cublasStatus_t result = set(operation);
      p.transposed_a = operation == CUBLAS_OP_T;
      return result;
    }
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
      return set(p.scale_modes[0]);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
      return set(p.scale_modes[1]);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return set(p.scales[0]);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return set(p.scales[1]);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return set(p.fast);
    default:
      return Refuse("an attribute of products that the shim does not know");
  }
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t,
                                                 cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t ld) {
  const cublasStatus_t status = Count("cublasLtMatrixLayoutInit");
  As<Layout>(layout) = {type, rows, columns, ld};
  return status;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     size_t) {
  const cublasStatus_t status = Count("cublasLtMatmulPreferenceInit");
  As<Preference>(preference) = {0, {256, 256, 256, 256}, CUBLASLT_REDUCTION_SCHEME_MASK};
  return status;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  const cublasStatus_t status = Count("cublasLtMatmulPreferenceSetAttribute");
  Preference& p = As<Preference>(preference);
  void* to = nullptr;
  size_t size = sizeof(uint32_t);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      to = &p.workspace;
      size = sizeof(p.workspace);
      break;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      to = &p.reductions;
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      to = &p.alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES];
      break;
    default:
      break;
  }
  if (to == nullptr || bytes != size) return Refuse("a preference that the shim does not know");
  std::memcpy(to, value, bytes);
  return status;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  const cublasStatus_t status = Count("cublasLtMatmulAlgoGetHeuristic");
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const Preference& p = As<Preference>(preference);
  const Layout& la = As<Layout>(a);
  if (!Fits(As<Product>(product), la, As<Layout>(b), As<Layout>(d))) {
    return Refuse("a product whose shapes do not fit");
  }
  constexpr uint32_t kRoundsTwice =
      CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  if (As<Layout>(d).type != CUDA_R_32F && (p.reductions & kRoundsTwice) != 0) {
    return Refuse("a product whose sums are of 16 bits");
  }
  if (p.reductions != CUBLASLT_REDUCTION_SCHEME_NONE &&
      la.rows % (la.type == CUDA_R_8F_E4M3 ? 128 : 64) != 0) {
    return Refuse("a product that may be split over K and lose the end of it");
  }
  auto& state = TheState();
  const std::lock_guard lock(state.mutex);
  *found = 0;
  for (int i = 0; i < state.options.num_algorithms && *found < wanted; ++i) {
    cublasLtMatmulHeuristicResult_t& result = results[*found];
    Algorithm& algorithm = As<Algorithm>(&result.algo);
    algorithm = {.index = static_cast<uint32_t>(i),
                 .m = la.columns,
                 .k = la.rows,
                 .workspace = p.workspace,
                 .alignment = {p.alignment[0], p.alignment[1], p.alignment[2], p.alignment[3]},
                 .is_for_any_n = p.reductions == CUBLASLT_REDUCTION_SCHEME_NONE,
                 .n = As<Layout>(b).columns};
    const int64_t workspace =
        WorkspaceOf(state, algorithm, As<Product>(product), la, As<Layout>(b), As<Layout>(d));
    if (workspace < 0) continue;
    result.state = CUBLAS_STATUS_SUCCESS;
    result.workspaceSize = static_cast<size_t>(workspace);
    ++*found;
  }
  return *found > 0 || state.options.finds_none ? status : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  const cublasStatus_t status = Count("cublasLtMatmulAlgoCheck");
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const Algorithm& known = As<const Algorithm>(algorithm);
  const Layout& la = As<Layout>(a);
  if (known.m != la.columns || known.k != la.rows) return Refuse("an algorithm of another matrix");
  auto& state = TheState();
  const std::lock_guard lock(state.mutex);
  const int64_t workspace =
      WorkspaceOf(state, known, As<Product>(product), la, As<Layout>(b), As<Layout>(d));
  if (workspace < 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  state.checked_algorithms.insert({known.index, known.m, known.k, known.n, As<Layout>(b).columns});
  result->state = CUBLAS_STATUS_SUCCESS;
  result->workspaceSize = static_cast<size_t>(workspace);
  return status;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void*,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void*, size_t workspace,
                              cudaStream_t stream) {
  auto& state = TheState();
  const std::lock_guard lock(state.mutex);
  if (CountCall(state, "cublasLtMatmul", stream->device)) return CUBLAS_STATUS_EXECUTION_FAILED;
  const Product how = As<Product>(product);
  const Layout la = As<Layout>(a_layout), lb = As<Layout>(b_layout), ld = As<Layout>(d_layout);
  const Algorithm& known = As<const Algorithm>(algorithm);
  const auto refuse = [&](const char* what) {
    state.violations.emplace_back(what);
    return CUBLAS_STATUS_INVALID_VALUE;
  };
  if (!Fits(how, la, lb, ld)) return refuse("a product whose shapes do not fit");
  if (*static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0) {
    return refuse("a product that is scaled");
  }
  // One that may split sums over K is for the number of rows that it was found or checked for.
  const bool is_for_n =
      known.is_for_any_n != 0 || known.n == lb.columns ||
      state.checked_algorithms.contains({known.index, known.m, known.k, known.n, lb.columns});
  if (known.m != la.columns || known.k != la.rows || !is_for_n) {
    return refuse("an algorithm of another product");
  }
  const int64_t wanted = WorkspaceOf(state, known, how, la, lb, ld);
  if (wanted < 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (workspace < static_cast<size_t>(wanted)) return refuse("a workspace smaller than is wanted");
  const void* const data[] = {a, b, d, d};
  for (int i = 0; i < 4; ++i) {
    if (reinterpret_cast<uintptr_t>(data[i]) % known.alignment[i] != 0) {
      return refuse("a matrix that is not aligned as was said");
    }
  }
  continuo::testing::Enqueue(state, stream, [=] { Multiply(how, a, la, b, lb, d, ld); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
