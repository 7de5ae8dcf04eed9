// SPDX-License-Identifier: Apache-2.0
// The driver's own NVML, and the machine's devices.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cuda_runtime_api.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/faults/xid_watch.h"
#include "kernels/cuda/ops/elementwise.h"
#include "kernels/cuda/runtime/device_info.h"

namespace continuo::kernels::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::ExitedWithCode;
using ::testing::IsEmpty;

// Collects the notes of a watch of the first device from its start to its end.
class Notes {
 public:
  XidWatchOptions Options() {
    return {.explain_limit = absl::Seconds(10),
            .clock = &clock_,
            .on_note = [this](const DeviceNote& note) {
              const std::lock_guard lock(mutex_);
              (note.kind == DeviceNote::Kind::kFault ? faults_ : missing_).push_back(note.text);
            }};
  }
  std::vector<std::string> faults() const {
    const std::lock_guard lock(mutex_);
    return faults_;
  }
  std::vector<std::string> missing() const {
    const std::lock_guard lock(mutex_);
    return missing_;
  }

 private:
  const SystemClock clock_;
  mutable std::mutex mutex_;
  std::vector<std::string> faults_, missing_;  // guarded by mutex_
};

// Returns why events of these devices are missing, all or some; empty where none are.
std::string WhyEventsAreMissing(const std::vector<DeviceInfo>& devices) {
  Notes notes;
  const XidWatch watch(devices, notes.Options());
  const bool registered = !watch.Watched().empty();
  return notes.missing().empty() ? (registered ? "" : "no note says why") : notes.missing().front();
}

TEST(XidTest, NvmlHearsOfTheDevice) {
  const auto devices = FindDevices(std::vector<int>{0});
  if (!devices.ok()) GTEST_SKIP() << "skipped: no device: " << devices.status();
  Notes notes;
  {
    XidWatchOptions options = notes.Options();
    options.explain_limit = absl::Milliseconds(500);
    XidWatch watch(*devices, options);
    if (watch.Watched().empty()) {
      const auto missing = notes.missing();
      GTEST_SKIP() << "skipped: " << (missing.empty() ? "no note says why" : missing.front());
    }
    EXPECT_THAT(watch.Watched(), ElementsAre(0));
    // There is nothing to report of a healthy device.
    const absl::Status lost = absl::InternalError("lost");
    EXPECT_EQ(watch.Explain(lost), lost);
  }
  EXPECT_THAT(notes.faults(), IsEmpty());
}

// Runs in a process of its own, whose context it ends: prints the error with its reason.
[[noreturn]] void UseMemoryThatThereIsNot(const std::vector<DeviceInfo>& devices) {
  Notes notes;
  XidWatch watch(devices, notes.Options());
  if (watch.Watched().empty()) std::_Exit(2);
  (void)cudaSetDevice(devices[0].index);
  (void)SoftCap(reinterpret_cast<float*>(uintptr_t{1} << 46), 1, 1024, KernelStream{});
  const absl::Status failure = absl::InternalError(
      absl::StrCat("cuda:", devices[0].index, ": ", cudaGetErrorString(cudaDeviceSynchronize())));
  std::fprintf(stderr, "%s\n", watch.Explain(failure).ToString().c_str());
  std::_Exit(0);
}

TEST(XidDeathTest, AnIllegalAddressIsAnXid) {
  GTEST_FLAG_SET(death_test_style,
                 "threadsafe");  // a process from its start, since CUDA does not survive a fork
  const auto devices = FindDevices(std::vector<int>{0});
  if (!devices.ok()) GTEST_SKIP() << "skipped: no device: " << devices.status();
  if (const std::string why = WhyEventsAreMissing(*devices); !why.empty())
    GTEST_SKIP() << "skipped: " << why;
  EXPECT_EXIT(UseMemoryThatThereIsNot(*devices), ExitedWithCode(0), "Xid (31|13) on cuda:0");
}

}  // namespace
}  // namespace continuo::kernels::cuda
