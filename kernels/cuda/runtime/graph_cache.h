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

// Captures repeated work as CUDA graphs and replays it: one launch instead of hundreds. NCCL's
// collectives may be part of it, and their communicators then end after Clear. Not thread-safe.
class GraphCache {
 public:
  explicit GraphCache(int device) : device_(device) {}
  ~GraphCache();
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  // Enqueues on `stream` what work() enqueues. The first call with a key runs work(). The second
  // runs it and also captures it as a graph. Later calls launch the graph. Work that comes once
  // therefore costs nothing extra, everything that work() prepares at its first call exists when it
  // is captured, and with collectives no rank's graph runs while another rank still captures.
  // Returns the error of work() or of CUDA.
  absl::Status Run(std::span<const int64_t> key, absl::FunctionRef<absl::Status()> work,
                   Stream& stream);
  // Drops all graphs. None of them may be running. Call it when memory that they use goes.
  void Clear();
  // While this is false, graphs may still use the memory that they were captured with.
  bool empty() const { return num_graphs_ == 0; }

 private:
  // The largest number of graphs that are kept; each takes about a kilobyte for each of its
  // kernels.
  static constexpr size_t kMaxGraphs = 128;
  static constexpr size_t kMaxKeys = 4096;

  absl::Status Capture(absl::FunctionRef<absl::Status()> work, const Stream& stream,
                       cudaGraphExec_t* graph) const;

  const int device_;
  std::map<std::vector<int64_t>, cudaGraphExec_t> graphs_;  // null: the key was seen once
  size_t num_graphs_ = 0;
};

}  // namespace continuo::kernels::cuda
