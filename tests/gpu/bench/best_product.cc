// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/best_product.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/runtime/cuda_status.h"
#include "kernels/cuda/runtime/stream.h"
#include "services/base/status_macros.h"

namespace continuo::kernels::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // the same as CublasLtMatMul's
constexpr int kCandidates = 16;
constexpr int kTimes = 3;

absl::Status Error(cublasStatus_t status, absl::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": ", cublasLtGetStatusName(status)));
}

cudaDataType_t TypeOf(DType dtype) {
  return dtype == DType::kF32 ? CUDA_R_32F : dtype == DType::kF16 ? CUDA_R_16F : CUDA_R_16BF;
}

}  // namespace

BestProduct::~BestProduct() {
  if (handle_ != nullptr) (void)cublasLtDestroy(handle_);
}

// cuBLAS is column-major: out is columns × rows, w transposed.
absl::Status BestProduct::Describe(const Arguments& call) {
  const auto rows = static_cast<uint64_t>(call.x.rows()), k = static_cast<uint64_t>(call.x.cols());
  const auto columns = static_cast<uint64_t>(call.w.rows());
  RETURN_IF_ERROR(Error(cublasLtMatmulDescInit(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                        "cublasLtMatmulDescInit"));
  const cublasOperation_t transposed = CUBLAS_OP_T;
  RETURN_IF_ERROR(Error(cublasLtMatmulDescSetAttribute(&product_, CUBLASLT_MATMUL_DESC_TRANSA,
                                                       &transposed, sizeof(transposed)),
                        "cublasLtMatmulDescSetAttribute"));
  const auto stride = [](uint64_t n) { return static_cast<int64_t>(n); };
  RETURN_IF_ERROR(Error(cublasLtMatrixLayoutInit(&w_, TypeOf(call.w.dtype), k, columns, stride(k)),
                        "cublasLtMatrixLayoutInit"));
  RETURN_IF_ERROR(Error(cublasLtMatrixLayoutInit(&x_, TypeOf(call.x.dtype), k, rows, stride(k)),
                        "cublasLtMatrixLayoutInit"));
  return Error(
      cublasLtMatrixLayoutInit(&out_, TypeOf(call.out.dtype), columns, rows, stride(columns)),
      "cublasLtMatrixLayoutInit");
}

absl::Status BestProduct::Run(const cublasLtMatmulAlgo_t& algorithm, const Arguments& call,
                              cudaStream_t stream) {
  const float one = 1, zero = 0;
  return Error(cublasLtMatmul(handle_, &product_, &one, call.w.data, &w_, call.x.data, &x_, &zero,
                              call.out.data, &out_, call.out.data, &out_, &algorithm,
                              workspace_.data(), workspace_.bytes(), stream),
               "cublasLtMatmul");
}

absl::StatusOr<double> BestProduct::Try(const cublasLtMatmulAlgo_t& algorithm,
                                        std::span<const Arguments> calls, cudaStream_t stream) {
  // It runs outside of a graph first: that loads code, and the algorithm may not compute this.
  if (!Run(algorithm, calls[0], stream).ok()) return -1.0;
  const auto check = [](cudaError_t error, const char* what) { return CudaStatus(error, 0, what); };
  RETURN_IF_ERROR(check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"));
  RETURN_IF_ERROR(check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                        "cudaStreamBeginCapture"));
  bool computes = true;
  for (const Arguments& call : calls) computes = computes && Run(algorithm, call, stream).ok();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  const absl::Status ended = check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  const absl::Cleanup destroy = [&] {
    if (exec != nullptr) (void)cudaGraphExecDestroy(exec);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
  };
  if (!computes) return -1.0;
  RETURN_IF_ERROR(ended);
  RETURN_IF_ERROR(check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate"));
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i <= kTimes; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(check(cudaGraphLaunch(exec, stream), "cudaGraphLaunch"));
    RETURN_IF_ERROR(check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"));
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (i > 0) least = std::min(least, taken.count());  // the first launch uploads it
  }
  return least;
}

absl::StatusOr<std::shared_ptr<BestProduct>> BestProduct::Make(int device,
                                                               std::span<const Arguments> calls) {
  RETURN_IF_ERROR(SetDevice(device));
  std::shared_ptr<BestProduct> best(new BestProduct());
  RETURN_IF_ERROR(Error(cublasLtCreate(&best->handle_), "cublasLtCreate"));
  ASSIGN_OR_RETURN(best->workspace_, DeviceBuffer::Make(device, kWorkspaceBytes));
  RETURN_IF_ERROR(best->Describe(calls[0]));
  cublasLtMatmulPreferenceOpaque_t preference;
  RETURN_IF_ERROR(Error(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit"));
  const uint64_t workspace = kWorkspaceBytes;
  RETURN_IF_ERROR(Error(
      cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &workspace, sizeof(workspace)),
      "cublasLtMatmulPreferenceSetAttribute"));
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> found = {};
  int num_found = 0;
  RETURN_IF_ERROR(Error(cublasLtMatmulAlgoGetHeuristic(
                            best->handle_, &best->product_, &best->w_, &best->x_, &best->out_,
                            &best->out_, &preference, kCandidates, found.data(), &num_found),
                        "cublasLtMatmulAlgoGetHeuristic"));
  ASSIGN_OR_RETURN(Stream stream, Stream::Make(device));
  double least = std::numeric_limits<double>::max();
  for (const auto& candidate : std::span(found).first(static_cast<size_t>(num_found))) {
    if (candidate.state != CUBLAS_STATUS_SUCCESS) continue;
    ASSIGN_OR_RETURN(const double seconds, best->Try(candidate.algo, calls, stream.get()));
    if (seconds < 0 || seconds >= least) continue;
    least = seconds;
    best->algorithm_ = candidate.algo;
  }
  if (least == std::numeric_limits<double>::max()) {
    return absl::InternalError("cuBLASLt has no candidate that computes the product");
  }
  return best;
}

}  // namespace continuo::kernels::cuda
