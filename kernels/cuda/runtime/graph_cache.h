// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/stream.h"

namespace continuo::kernels::cuda {

// What a device has been given to do again and again, as CUDA graphs: one launch instead of
// hundreds. NCCL's collectives may be among it; their communicators end later. Not thread-safe.
class GraphCache {
 public:
  explicit GraphCache(int device) : device_(device) {}
  ~GraphCache();
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  // Enqueues what work() enqueues on `stream`: the first two times of a key by calling it, later by
  // the graph that the second time has made besides. So what comes once costs nothing more,
  // whatever work() prepares at its first call is there when it is captured, and where collectives
  // are among it no rank's graph runs while another rank still makes its own. An error of work() is
  // the result.
  absl::Status Run(std::span<const int64_t> key, absl::FunctionRef<absl::Status()> work,
                   Stream& stream);
  // Forgets all, none of which runs: what they were captured with has changed.
  void Clear();
  // What graphs were captured with may still be used by them.
  bool empty() const { return num_graphs_ == 0; }

 private:
  // Graphs at most; their memory is about a kilobyte for each kernel in them.
  static constexpr size_t kMaxGraphs = 128;
  static constexpr size_t kMaxKeys = 4096;

  absl::Status Capture(absl::FunctionRef<absl::Status()> work, const Stream& stream,
                       cudaGraphExec_t* graph) const;

  const int device_;
  std::map<std::vector<int64_t>, cudaGraphExec_t> graphs_;  // null: seen once
  size_t num_graphs_ = 0;
};

}  // namespace continuo::kernels::cuda
