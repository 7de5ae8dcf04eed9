// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/graph_cache.h"

#include <mutex>

#include "kernels/cuda/runtime/cuda_status.h"
#include "services/base/status_macros.h"

namespace continuo::kernels::cuda {

GraphCache::~GraphCache() { Clear(); }

void GraphCache::Clear() {
  // An error of destruction belongs to earlier work, and whoever waits for that work gets it.
  for (const auto& [key, graph] : graphs_) {
    if (graph != nullptr) (void)cudaGraphExecDestroy(graph);
  }
  graphs_.clear();
  num_graphs_ = 0;
}

absl::Status GraphCache::Capture(absl::FunctionRef<absl::Status()> work, const Stream& stream,
                                 cudaGraphExec_t* graph) const {
  cudaGraph_t captured = nullptr;
  absl::Status worked;
  {
    const std::lock_guard lock(stream.capture_mutex());
    RETURN_IF_ERROR(
        CudaStatus(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), device_,
                   "cudaStreamBeginCapture"));
    worked = work();
    const absl::Status ended =
        CudaStatus(cudaStreamEndCapture(stream.get(), &captured), device_, "cudaStreamEndCapture");
    worked.Update(ended);  // an earlier error is the cause
  }
  if (worked.ok()) {
    worked = CudaStatus(cudaGraphInstantiate(graph, captured, 0), device_, "cudaGraphInstantiate");
  }
  if (captured == nullptr) return worked;
  const absl::Status ended = CudaStatus(cudaGraphDestroy(captured), device_, "cudaGraphDestroy");
  if (worked.ok() && !ended.ok()) (void)cudaGraphExecDestroy(*graph);
  worked.Update(ended);
  return worked;
}

absl::Status GraphCache::Run(std::span<const int64_t> key, absl::FunctionRef<absl::Status()> work,
                             Stream& stream) {
  RETURN_IF_ERROR(SetDevice(device_));
  const std::vector<int64_t> name(key.begin(), key.end());
  auto found = graphs_.find(name);
  if (found == graphs_.end()) {
    if (graphs_.size() >= kMaxKeys || num_graphs_ >= kMaxGraphs) {
      // None of the dropped graphs may be running.
      RETURN_IF_ERROR(stream.Synchronize());
      Clear();
    }
    RETURN_IF_ERROR(work());
    graphs_.emplace(name, nullptr);
    return absl::OkStatus();
  }
  if (found->second == nullptr) {
    cudaGraphExec_t graph = nullptr;
    RETURN_IF_ERROR(Capture(work, stream, &graph));
    found->second = graph;
    ++num_graphs_;
    RETURN_IF_ERROR(CudaStatus(cudaGraphUpload(graph, stream.get()), device_, "cudaGraphUpload"));
    return work();
  }
  RETURN_IF_ERROR(
      CudaStatus(cudaGraphLaunch(found->second, stream.get()), device_, "cudaGraphLaunch"));
  stream.CountGraph();  // a reader of the count finds the graph on the stream
  return absl::OkStatus();
}

}  // namespace continuo::kernels::cuda
