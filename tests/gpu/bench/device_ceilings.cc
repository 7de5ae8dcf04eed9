// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/device_ceilings.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/runtime/device_info.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "tests/gpu/bench/read_memory.h"

namespace continuo {
namespace {

constexpr size_t kReadBytes = size_t{4} << 30;
constexpr int64_t kSide = 8192;
constexpr int kReadTimes = 10, kProductTimes = 8;

class CudaCeilings : public DeviceCeilings {
 public:
  CudaCeilings(const kernels::cuda::DeviceInfo& device,
               std::unique_ptr<kernels::cuda::CudaDevice> backend)
      : device_(device), b_(std::move(backend)) {}

  absl::Status Reserve() {
    ASSIGN_OR_RETURN(read_, b_->Allocate(kReadBytes));
    ASSIGN_OR_RETURN(sink_, b_->Allocate(sizeof(uint32_t)));
    return b_->Synchronize();
  }

  std::string name() const override { return device_.name; }
  double ReadBandwidth() override {
    return kReadBytes / Seconds(kReadTimes, [&] {
             CONTINUO_CHECK(kernels::cuda::ReadMemory(static_cast<uint32_t*>(sink_), read_,
                                                      kReadBytes, device_.num_multiprocessors,
                                                      b_->context().kernels()) == cudaSuccess);
           });
  }
  double Peak(kernels::WeightType type) override {
    const Factors& f = FactorsOf(type);
    return 2.0 * kSide * kSide * kSide / Seconds(kProductTimes, [&] {
             b_->ops().matmul.MatMul(f.out, f.x, f.w, kernels::Tensor());
           });
  }

 private:
  struct Factors {
    kernels::Tensor out, x;
    kernels::Weight w;
  };

  // Returns the seconds of one call.
  double Seconds(int times, const std::function<void()>& call) {
    call();  // wakes the device up
    CONTINUO_CHECK(b_->Synchronize().ok());
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) call();
    CONTINUO_CHECK(b_->Synchronize().ok());
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    return taken.count() / times;
  }

  // Returns factors of random numbers, since products of zeros are faster.
  const Factors& FactorsOf(kernels::WeightType type) {
    Factors& f = factors_[type];
    if (f.x.data != nullptr) return f;
    const kernels::DType number =
        type == kernels::WeightType::kF16 ? kernels::DType::kF16 : kernels::DType::kBF16;
    std::vector<uint16_t> values(kSide * kSide);
    uint32_t seed = 1;
    for (uint16_t& value : values) {
      seed = seed * 1664525u + 1013904223u;
      // Signs and fractions are random, exponents are of ±1 to ±2 (bf16), ±0.5 to ±1 (f16).
      const auto bits = static_cast<uint16_t>(seed >> 16);
      value = number == kernels::DType::kF16 ? (bits & 0x83ff) | 0x3800 : (bits & 0x807f) | 0x3f80;
    }
    const auto make = [&](kernels::DType dtype) {
      kernels::Tensor t = {nullptr, dtype, {kSide, kSide, 1}};
      auto data = b_->Allocate(values.size() * sizeof(uint16_t));
      CONTINUO_CHECK(data.ok());
      t.data = *data;
      return t;
    };
    f.out = make(number);
    f.x = make(number);
    b_->CopyIn(f.x, values.data());
    // e4m3 takes the same bytes, since any numbers will do.
    f.w = {make(number), b_->ops().matmul.FormatOf(type)};
    b_->CopyIn(f.w.data, values.data());
    CONTINUO_CHECK(b_->Synchronize().ok());
    return f;
  }

  const kernels::cuda::DeviceInfo device_;
  const std::unique_ptr<kernels::cuda::CudaDevice> b_;
  void* read_ = nullptr;
  void* sink_ = nullptr;
  std::map<kernels::WeightType, Factors> factors_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceCeilings>> DeviceCeilings::Make(const std::string& devices) {
  ASSIGN_OR_RETURN(const std::vector<int> indices, kernels::cuda::ParseDevices(devices));
  ASSIGN_OR_RETURN(const std::vector<kernels::cuda::DeviceInfo> found,
                   kernels::cuda::FindDevices(indices));
  ASSIGN_OR_RETURN(auto backend, kernels::cuda::CudaDevice::Make({.device = found.front()}));
  auto ceilings = std::make_unique<CudaCeilings>(found.front(), std::move(backend));
  RETURN_IF_ERROR(ceilings->Reserve());
  return ceilings;
}

}  // namespace continuo
