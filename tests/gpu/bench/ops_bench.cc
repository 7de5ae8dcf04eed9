// SPDX-License-Identifier: Apache-2.0
// Ops of a CUDA device beside what its memory and its cores give in the same minute:
//   ops_bench [--device=cuda:0] [--deterministic] [--fp8_fast_accumulation] [--late_grids]
//     [--warpgroup_attention] [--only=GROUP] [--json=FILE] [--list]
// Groups: ceilings, rows, chains, products, experts, decode, prefill, draws. --late_grids: no
// kernel is started before the one in front of it has ended. --list tells the device and ends. Each
// figure is the median of 7 rounds or more, in turn with its ceilings: a kernel that reads 4 GiB,
// and the largest product of the type. `of ceiling` is the time that its bytes and its operations
// take at those rates, whichever is longer, over its own. A round in which a ceiling moved by more
// than 5 % does not count, unless all are such ones. Dense products take turns with the best of
// cuBLASLt's candidates, attention of sequences of one row with itself over a cache without pages.
// A round is one CUDA graph of many calls, so that the host's time counts only in draws, which are
// enqueued call by call, and in experts for which the host waits. Calls take copies of weights,
// caches and rows in turn, 200 MB together, which the second-level cache does not hold; activations
// of products, queries and logits stay there, as they do in a model, and so do prompts' keys and
// values. GB/s counts what the op has to read and write at least, TFLOP/s two for each product and
// sum.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/early_grids.h"
#include "services/base/status_macros.h"
#include "tests/gpu/bench/case_runner.h"
#include "tests/gpu/bench/ops_source.h"

namespace continuo {
namespace {

absl::StatusOr<std::unique_ptr<OpsSource>> Open(const kernels::BackendOptions& options,
                                                bool warpgroup_attention) {
  if (!options.device.starts_with("cuda")) {
    ASSIGN_OR_RETURN(auto backend, kernels::MakeBackend(options));
    return std::make_unique<OpsSource>(std::move(backend), nullptr, options.device);
  }
  ASSIGN_OR_RETURN(const std::vector<int> indices, kernels::cuda::ParseDevices(options.device));
  ASSIGN_OR_RETURN(const std::vector<kernels::cuda::Device> devices,
                   kernels::cuda::FindDevices(indices));
  const kernels::cuda::Device& device = devices.front();
  ASSIGN_OR_RETURN(
      std::unique_ptr<kernels::cuda::CudaBackend> backend,
      kernels::cuda::CudaBackend::Make({.device = device,
                                        .deterministic = options.deterministic,
                                        .fp8_fast_accumulation = options.fp8_fast_accumulation,
                                        .warpgroup_attention = warpgroup_attention}));
  kernels::cuda::CudaBackend* const cuda = backend.get();
  return std::make_unique<OpsSource>(std::move(backend), cuda, device.name);
}

int Main(int argc, char** argv) {
  kernels::BackendOptions options;
  options.device = "cuda:0";
  RunOptions run;
  bool list = false, warpgroup_attention = false;
  for (int i = 0; i < argc; ++i) run.command += std::string(i > 0 ? " " : "") + argv[i];
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--device=", 0) == 0) {
      options.device = arg.substr(9);
    } else if (arg.rfind("--json=", 0) == 0) {
      run.json = arg.substr(7);
    } else if (arg.rfind("--only=", 0) == 0) {
      run.only = arg.substr(7);
    } else if (arg == "--deterministic") {
      options.deterministic = true;
    } else if (arg == "--fp8_fast_accumulation") {
      options.fp8_fast_accumulation = true;
    } else if (arg == "--warpgroup_attention") {
      warpgroup_attention = true;
    } else if (arg == "--late_grids") {
      kernels::cuda::AllowEarlyGrids(false);
    } else if (arg == "--list") {
      list = true;
    } else {
      std::fprintf(stderr, "ops_bench does not know %s\n", argv[i]);
      return 2;
    }
  }
  const auto open = [&]() -> std::unique_ptr<OpsSource> {
    auto source = Open(options, warpgroup_attention);
    if (source.ok()) return *std::move(source);
    std::fprintf(stderr, "%s\n", source.status().ToString().c_str());
    return nullptr;
  };
  if (list) {
    const auto source = open();
    if (source == nullptr) return 1;
    std::printf("%s, %s\n", source->device().c_str(), source->b.name().c_str());
    return 0;
  }
  return RunCases(
      [&]() -> std::unique_ptr<CaseSource> {
        auto source = open();
        if (source == nullptr) return nullptr;
        AddCeilings(*source);
        AddRows(*source);
        AddChains(*source);
        AddProducts(*source);
        AddExperts(*source);
        AddAttention(*source);
        AddDraws(*source);
        return source;
      },
      run);
}

}  // namespace
}  // namespace continuo

int main(int argc, char** argv) { return continuo::Main(argc, argv); }
