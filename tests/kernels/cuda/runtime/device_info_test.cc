// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/device_info.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"

namespace continuo::kernels::cuda {
namespace {

using ::testing::AllOf;
using testing::CudaShim;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ShimCall;
using testing::ShimDevice;
using testing::ShimOptions;

TEST(ParseDevicesTest, RanksAreInTheOrderGiven) {
  EXPECT_THAT(*ParseDevices("cuda:0"), ElementsAre(0));
  EXPECT_THAT(*ParseDevices("cuda:3,1"), ElementsAre(3, 1));
  EXPECT_THAT(*ParseDevices("cuda:0,1,2,3,4,5,6,7"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(*ParseDevices("cuda:0012"), ElementsAre(12));
}

TEST(ParseDevicesTest, WhatIsWrongIsSaidWithTheText) {
  const auto refused = [](const std::string& text, const std::string& why) {
    const absl::Status status = ParseDevices(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("\"" + text + "\""), HasSubstr(why)));
  };
  for (const char* text : {"", "cuda", "gpu:0", "CUDA:0", " cuda:0"})
    refused(text, "begin with cuda:");
  for (const char* text : {"cuda:", "cuda:,", "cuda:0,", "cuda:-1", "cuda:+1", "cuda: 1", "cuda:a",
                           "cuda:99999", "cuda:0;1"}) {
    refused(text, "is no number of a device");
  }
  refused("cuda:0,1,1,2", "1 is there twice");
  refused("cuda:0,00", "0 is there twice");
  refused("cuda:0,1,2", "names 3 devices");
}

TEST(CheckDriverTest, ADriverThatIsTooOldIsToldTheImageThatItRuns) {
  for (const auto& [driver, runtime] :
       {std::pair{13000, 13000}, {13020, 13000}, {13000, 13020}, {12040, 12090}, {13000, 12090}}) {
    EXPECT_TRUE(CheckDriver(driver, runtime).ok()) << driver << " " << runtime;
  }
  EXPECT_EQ(
      CheckDriver(12080, 13000),
      absl::FailedPreconditionError(
          "the CUDA driver is of CUDA 12.8, and this build of CUDA 13.0 needs CUDA 13.0 (driver "
          "R580) or newer: use the image continuo-worker-cuda12, which needs CUDA 12.4 (driver "
          "R550), or update the driver"));
  EXPECT_EQ(CheckDriver(12020, 13000),
            absl::FailedPreconditionError("the CUDA driver is of CUDA 12.2, and this build of CUDA "
                                          "13.0 needs CUDA 13.0 (driver R580) or newer: update the "
                                          "driver"));
  EXPECT_EQ(CheckDriver(12030, 12090),
            absl::FailedPreconditionError("the CUDA driver is of CUDA 12.3, and this build of CUDA "
                                          "12.9 needs CUDA 12.4 (driver R550) or newer: update the "
                                          "driver"));
}

TEST(FindDevicesTest, DevicesAreDescribed) {
  CudaShim::Reset({.devices = {ShimDevice{},
                               {.name = "H200",
                                .major = 9,
                                .pci_domain = 0x1a2b3,
                                .pci_bus = 0xca,
                                .pci_device = 0x1f,
                                .total_bytes = 1000,
                                .free_bytes = 900}}});
  const auto devices = FindDevices(std::vector<int>{1});
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 1u);
  const DeviceInfo& d = (*devices)[0];
  EXPECT_EQ(d.index, 1);
  EXPECT_EQ(d.name, "H200");
  EXPECT_EQ(d.pci_bus_id, "0001A2B3:CA:1F.0");
  EXPECT_EQ(d.major, 9);
  EXPECT_EQ(d.total_bytes, 1000);
  EXPECT_EQ(d.free_bytes, 900);
}

TEST(FindDevicesTest, WhatTheMachineLacksIsSaid) {
  const auto refused = [](const ShimOptions& options, int index, absl::StatusCode code,
                          const std::string& why) {
    CudaShim::Reset(options);
    const absl::Status status = FindDevices(std::vector<int>{index}).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  };
  constexpr auto kUnmet = absl::StatusCode::kFailedPrecondition;
  refused({.driver_version = 0}, 0, kUnmet, "no CUDA driver");
  refused({.driver_version = 12000}, 0, kUnmet, "driver is of CUDA 12.0, and this build of CUDA");
  refused({.devices = {}}, 0, kUnmet, "no CUDA device is visible");
  refused({.devices = {{.name = "V100", .major = 7}}}, 0, kUnmet,
          "cuda:0 (V100) has compute capability 7.0; this build needs 8.0");
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  refused({}, 1, kInvalid, "device cuda:1: this machine shows 1 device, cuda:0");
  refused({.devices = {{}, {}}}, 2, kInvalid,
          "cuda:2: this machine shows 2 devices, the last of them cuda:1");
}

TEST(FindDevicesTest, EveryCallThatFailsIsNamed) {
  const std::vector<int> both = {0, 1};
  const ShimOptions options = {.devices = {{}, {}}};
  CudaShim::Reset(options);
  ASSERT_TRUE(FindDevices(both).ok());
  const std::vector<ShimCall> calls = CudaShim::Calls();
  EXPECT_GE(calls.size(), 9u);
  for (const ShimCall& call : calls) {
    CudaShim::Reset(options);
    CudaShim::Fail(call);
    const absl::Status status = FindDevices(both).status();
    EXPECT_TRUE(CudaShim::Failed()) << ToString(call);
    EXPECT_THAT(std::string(status.message()), HasSubstr(call.function));
  }
}

}  // namespace
}  // namespace continuo::kernels::cuda
