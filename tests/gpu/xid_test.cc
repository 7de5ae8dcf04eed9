// SPDX-License-Identifier: Apache-2.0
// The driver's own NVML, and the machine's devices.
#include <mutex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/nvml_library.h"
#include "kernels/cuda/xid_watch.h"

namespace continuo::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(XidTest, NvmlHearsOfTheDevice) {
  const auto devices = FindDevices(std::vector<int>{0});
  if (!devices.ok()) GTEST_SKIP() << "skipped: no device: " << devices.status();
  if (const auto nvml = NvmlLibrary::Open(XidWatchOptions().library); !nvml.ok()) {
    GTEST_SKIP() << "skipped: no NVML: " << nvml.status();
  }
  const SystemClock clock;
  std::mutex mutex;
  std::vector<std::string> notes;  // guarded by mutex
  {
    XidWatch watch(*devices, {.clock = &clock, .on_note = [&](const DeviceNote& note) {
                                const std::lock_guard lock(mutex);
                                notes.push_back(note.text);
                              }});
    EXPECT_THAT(watch.Watched(), ElementsAre(0));
    // Of a device that is well there is nothing to say.
    const absl::Status lost = absl::InternalError("lost");
    EXPECT_EQ(watch.Explain(lost), lost);
  }
  EXPECT_THAT(notes, IsEmpty());
}

}  // namespace
}  // namespace continuo::cuda
