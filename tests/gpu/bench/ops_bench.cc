// SPDX-License-Identifier: Apache-2.0
// Measures ops of a device beside what its memory and its cores deliver in the same minute:
//   ops_bench [--device=cuda:0] [--deterministic] [--fp8_fast_accumulation]
//     [--cuda_experiments=no_pdl,no_wgmma_prefill] [--only=GROUP] [--json=FILE] [--list]
// Groups: ceilings, rows, chains, products, experts, decode, prefill, samples. --list prints the
// device and ends.
//
// Each figure is the median of 7 rounds or more, in turn with its ceilings: a kernel that reads
// 4 GiB, and the largest product of the type. `of ceiling` is the time that the op's bytes and its
// operations take at those rates, whichever is longer, over its own time. A round in which a
// ceiling moved by more than 5 % does not count, unless all did. Dense products take turns with the
// best of cuBLASLt's candidates, and decode attention with itself over a cache without pages.
//
// A round is one CUDA graph of many calls, so the host's time counts only for sampling, which is
// enqueued call by call, and for experts for which the host waits. Calls take copies of weights,
// caches and rows in turn, 200 MB together, which the L2 cache does not hold. Activations of
// products, queries and logits stay in it, as in a model, and so do the keys and values of prompts.
// GB/s counts what the op has to read and write at least, TFLOP/s two for each product and sum.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/runtime/device_info.h"
#include "kernels/device.h"
#include "kernels/device_options.h"
#include "services/base/status_macros.h"
#include "tests/gpu/bench/case_runner.h"
#include "tests/gpu/bench/ops_source.h"

namespace continuo {
namespace {

absl::StatusOr<std::unique_ptr<OpsSource>> Open(const kernels::DeviceOptions& options) {
  if (!options.device.starts_with("cuda")) {
    ASSIGN_OR_RETURN(auto device, kernels::MakeDevice(options));
    return std::make_unique<OpsSource>(std::move(device), nullptr, options.device);
  }
  ASSIGN_OR_RETURN(const std::vector<int> indices, kernels::cuda::ParseDevices(options.device));
  ASSIGN_OR_RETURN(const std::vector<kernels::cuda::DeviceInfo> devices,
                   kernels::cuda::FindDevices(indices));
  ASSIGN_OR_RETURN(
      std::unique_ptr<kernels::cuda::CudaDevice> device,
      kernels::cuda::CudaDevice::Make({.device = devices.front(), .options = options}));
  kernels::cuda::CudaDevice* const cuda = device.get();
  return std::make_unique<OpsSource>(std::move(device), cuda, devices.front().name);
}

int Main(int argc, char** argv) {
  kernels::DeviceOptions options;
  options.device = "cuda:0";
  RunOptions run;
  bool list = false;
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
    } else if (arg.rfind("--cuda_experiments=", 0) == 0) {
      const absl::Status status = kernels::ApplyExperiments(arg.substr(19), options);
      if (!status.ok()) {
        std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
        return 2;
      }
    } else if (arg == "--list") {
      list = true;
    } else {
      std::fprintf(stderr, "ops_bench does not know %s\n", argv[i]);
      return 2;
    }
  }
  const auto open = [&]() -> std::unique_ptr<OpsSource> {
    auto source = Open(options);
    if (source.ok()) return *std::move(source);
    std::fprintf(stderr, "%s\n", source.status().ToString().c_str());
    return nullptr;
  };
  if (list) {
    const auto source = open();
    if (source == nullptr) return 1;
    std::printf("%s, %s\n", source->device_name().c_str(), source->b.name().c_str());
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
        AddSamples(*source);
        return source;
      },
      run);
}

}  // namespace
}  // namespace continuo

int main(int argc, char** argv) { return continuo::Main(argc, argv); }
