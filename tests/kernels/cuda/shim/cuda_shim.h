// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"
#include "nccl.h"

namespace continuo::testing {

// A CUDA runtime and an NCCL made of host memory and threads, linked in place of the real ones. A
// stream is a thread that does its work in order, and a collective meets the other ranks' and moves
// their bytes. It records every call, fails or hangs those that it is told to, and refuses what the
// real libraries do not allow. Process-wide, like them; thread-safe. Kernels run on the stream's
// thread, thread by thread (grid_runner.cc).
//
// Devices and their memory, streams, events and asynchronous copies are modelled, and NCCL in
// non-blocking mode with one rank per device and thread.

// The count-th call, from 1, of a function by threads whose device was `device`.
struct ShimCall {
  int device = 0;
  std::string function;
  int count = 1;
  bool operator==(const ShimCall&) const = default;
};
std::string ToString(const ShimCall& call);

struct ShimDevice {
  std::string name = "Shim";
  int major = 9, minor = 0;
  int pci_domain = 0, pci_bus = 0, pci_device = 0;
  int num_multiprocessors = 8;
  int64_t total_bytes = int64_t{1} << 30;
  int64_t free_bytes = int64_t{1} << 30;  // before anything is allocated
  int64_t graph_bytes = 0;                // taken by each graph
};

// A product that a cuBLASLt algorithm is asked for: [rows, k] · [columns, k]ᵀ.
struct ShimProduct {
  int64_t rows = 0, columns = 0, k = 0;
  bool is_fp8 = false, has_scales = false;  // scales for each row of its factors
  bool is_f32 = false;                      // type of the output
  bool is_fast = false;                     // CUBLASLT_MATMUL_DESC_FAST_ACCUM
  int algorithm = 0;                        // index below ShimOptions::num_algorithms
};

struct ShimOptions {
  std::vector<ShimDevice> devices = {ShimDevice{}};
  int driver_version = 13000;  // 0: no driver
  // ncclCommGetAsyncError answers ncclInProgress this often after each NCCL call.
  int in_progress_polls = 0;
  // The number of cuBLASLt's algorithms, best ones first, and the workspace that each wants for a
  // product; less than 0 means that it does not compute it. Without the function each computes all.
  int num_algorithms = 1;
  std::function<int64_t(const ShimProduct&)> workspace_of = nullptr;
  // Without an algorithm, cublasLtMatmulAlgoGetHeuristic finds 0 instead of returning an error.
  bool finds_none = false;
};

// A fault of a device at a call that is still to come, named by `from`.
struct ShimFault {
  ShimCall from;
  bool hangs = false;  // as HangStreams; otherwise as Break with `error`
  cudaError_t error = cudaErrorLaunchFailure;
  // The thread of that call runs this before it; it uses nothing of the shim.
  std::function<void()> also = nullptr;
};

class CudaShim {
 public:
  // Forgets everything; nothing may be alive.
  static void Reset(const ShimOptions& options);

  static int NumCalls(int device, const std::string& function);
  // Returns the calls that can fail, in no particular order. Those that poll (cudaEventQuery,
  // ncclCommGetAsyncError) are listed up to their second call.
  static std::vector<ShimCall> Calls();
  // Returns what is allocated, created or joined and not given back, each with its kind.
  static std::vector<std::string> Alive();
  // Returns violations of the real libraries' rules: two NCCL calls at once on a communicator,
  // another call while one is in progress, collectives that do not match, an unbalanced group,
  // freeing twice.
  static std::vector<std::string> Violations();

  // Makes this call fail once: with `error` or, where that is 0, with cudaErrorMemoryAllocation
  // (allocations), cudaErrorUnknown or ncclSystemError.
  static void Fail(const ShimCall& call, int error = 0);
  // Returns whether it has failed.
  static bool Failed();
  // From now on all of CUDA's calls on `device` fail, as after an error that ends the context:
  // those of libcudart that can fail, and launches.
  static void Break(int device, cudaError_t error = cudaErrorLaunchFailure);
  // Breaks or hangs a device at a call; one fault for each device.
  static void Plan(const ShimFault& fault);

  // The count-th collective, from 1, that `device` enqueues does not begin before its communicator
  // is aborted.
  static void HangCollective(int device, int count);
  // The rank on `device` never joins its communicator.
  static void HangInit(int device);
  // ncclCommAbort of the rank on `device` blocks.
  static void HangAbort(int device);
  // Kernels and copies enqueued on `device` wait.
  static void HangStreams(int device);
  static void ReleaseHangs();
  // ncclCommGetAsyncError returns this for the communicator on `device`, whose collectives hang.
  static void SetAsyncError(int device, ncclResult_t error);

  // Lets time pass for events that take it. Each copy takes a millisecond, everything else none.
  static void Advance(int64_t milliseconds);

  // Returns the number of collectives that `device` has enqueued.
  static int NumCollectives(int device);
  // Waits until `device` has enqueued this many.
  static void AwaitCollectives(int device, int count);

  // For kernels: counts and fails like a CUDA call, then runs `work` in its turn on the stream.
  static cudaError_t Launch(const char* name, cudaStream_t stream, std::function<void()> work);
  // Records a violation and returns the error of the call that caused it.
  static cudaError_t Refuse(const std::string& what);
};

}  // namespace continuo::testing
