// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/graph_cache.h"

#include "kernels/cuda/cuda_status.h"
#include "services/base/status_macros.h"

namespace continuo::cuda {

GraphCache::~GraphCache() { Clear(); }

void GraphCache::Clear() {
  // Errors of destruction are those of earlier work; whoever waits for that work is told.
  for (const auto& [key, graph] : graphs_) {
    if (graph != nullptr) (void)cudaGraphExecDestroy(graph);
  }
  graphs_.clear();
  num_graphs_ = 0;
}

absl::Status GraphCache::Capture(absl::FunctionRef<void()> work, cudaStream_t stream,
                                 cudaGraphExec_t* graph) const {
  RETURN_IF_ERROR(CudaStatus(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                             device_, "cudaStreamBeginCapture"));
  work();
  cudaGraph_t captured = nullptr;
  RETURN_IF_ERROR(
      CudaStatus(cudaStreamEndCapture(stream, &captured), device_, "cudaStreamEndCapture"));
  const absl::Status made =
      CudaStatus(cudaGraphInstantiate(graph, captured, 0), device_, "cudaGraphInstantiate");
  const absl::Status ended = CudaStatus(cudaGraphDestroy(captured), device_, "cudaGraphDestroy");
  if (made.ok() && !ended.ok()) (void)cudaGraphExecDestroy(*graph);
  RETURN_IF_ERROR(made);
  return ended;
}

absl::Status GraphCache::Run(std::span<const int64_t> key, absl::FunctionRef<void()> work,
                             cudaStream_t stream) {
  RETURN_IF_ERROR(SetDevice(device_));
  const std::vector<int64_t> name(key.begin(), key.end());
  auto found = graphs_.find(name);
  if (found == graphs_.end()) {
    if (graphs_.size() >= kMaxKeys || num_graphs_ >= kMaxGraphs) {
      // None of them may be running.
      RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream), device_, "cudaStreamSynchronize"));
      Clear();
    }
    graphs_.emplace(name, nullptr);
    work();
    return absl::OkStatus();
  }
  if (found->second == nullptr) {
    cudaGraphExec_t graph = nullptr;
    RETURN_IF_ERROR(Capture(work, stream, &graph));
    found->second = graph;
    ++num_graphs_;
  }
  return CudaStatus(cudaGraphLaunch(found->second, stream), device_, "cudaGraphLaunch");
}

}  // namespace continuo::cuda
