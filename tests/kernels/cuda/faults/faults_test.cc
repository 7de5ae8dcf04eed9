// SPDX-License-Identifier: Apache-2.0
// The driver's Xids of a lost device, from the tests' NVML, behind the errors of devices and whole
// models over the shim.
#include "kernels/device_faults.h"

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/faults/xid_watch.h"
#include "tests/kernels/cuda/cases/model_cases.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"
#include "tests/kernels/cuda/shim/fake_nvml.h"
#include "tests/testing/manual_clock.h"

namespace continuo::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kPci0[] = "00000000:CA:00.0", kPci1[] = "00000002:17:03.0";
const ShimOptions kTwo = {
    .devices = {{.pci_bus = 0xca}, {.pci_domain = 2, .pci_bus = 0x17, .pci_device = 3}}};

class FaultsTest : public ::testing::Test {
 protected:
  FaultsTest() {
    CudaShim::Reset(kTwo);
    FakeNvml::Reset({kPci1, kPci0});
    const auto devices = kernels::cuda::FindDevices(std::array{0, 1});
    CONTINUO_CHECK(devices.ok());
    device_ = devices->front();
    // A wait that no Xid ends would show.
    watch_ = std::make_shared<kernels::cuda::XidWatch>(
        *devices, kernels::cuda::XidWatchOptions{.library = FakeNvml::Path(),
                                                 .explain_limit = absl::Hours(1),
                                                 .pause = absl::ZeroDuration(),
                                                 .clock = &clock_});
    EXPECT_THAT(watch_->Watched(), ::testing::ElementsAre(0, 1));
  }
  ~FaultsTest() override {
    EXPECT_THAT(CudaShim::Alive(), IsEmpty());
    watch_.reset();
    EXPECT_EQ(FakeNvml::NumAlive(), 0);
  }

  ManualClock clock_;
  kernels::cuda::DeviceInfo device_;
  std::shared_ptr<kernels::cuda::XidWatch> watch_;
};

TEST_F(FaultsTest, ALostDeviceIsToldWithItsXid) {
  auto backend = kernels::cuda::CudaDevice::Make({.device = device_});
  ASSERT_TRUE(backend.ok()) << backend.status();
  CudaShim::Break(0);
  FakeNvml::Send(kPci0, 79);
  EXPECT_EQ(watch_->Explain((*backend)->Synchronize()),
            absl::InternalError("cuda:0: cudaStreamSynchronize: error of the shim (cudaErrorShim); "
                                "Xid 79 on cuda:0: GPU has fallen off the bus"));
}

// Streams wait for a step that fails, so it returns before there is an Xid.
TEST_F(FaultsTest, AModelOnALostDeviceEndsAtOnceAndIsExplainedLater) {
  const TinyModel files({.num_layers = 1});
  for (const auto& [device, lost] : std::vector<std::pair<std::string, int>>{
           {"cuda:0", 0}, {"cuda:0,1", 0}, {"cuda:0,1", 1}, {"cuda:1", 1}}) {
    SCOPED_TRACE(device + " " + std::to_string(lost));
    {
      model::LoadOptions options;
      options.source.dir = files.dir();
      options.device.device = device;
      options.kv.num_blocks = 8;
      options.max_batch_tokens = options.source.max_context_tokens = 64;
      auto loaded = model::LoadModel(options);
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      const std::vector<int32_t> tokens = {1, 2, 3};
      PlanBuilder builder(loaded->block_size, 4);
      builder.Add(0, 0, tokens, LastOf(tokens));
      const auto run = [&] {
        return loaded->executor->Run(builder.plan(), [](std::span<uint32_t>) {}).status();
      };
      EXPECT_EQ(run(), absl::OkStatus());
      CudaShim::Break(lost);
      const absl::Status failure = run();
      EXPECT_THAT(std::string(failure.message()),
                  AllOf(HasSubstr(absl::StrCat("cuda:", lost)), Not(HasSubstr("Xid"))));
      FakeNvml::Send(lost == 0 ? kPci0 : kPci1, 119);
      const std::string explained(watch_->Explain(failure).message());
      EXPECT_THAT(explained, StartsWith(failure.message()));
      EXPECT_THAT(explained,
                  EndsWith(absl::StrCat("; Xid 119 on cuda:", lost, ": GSP RPC timeout")));
    }
    clock_.Advance(absl::Hours(1));  // the last Xid is an old one
    CudaShim::Reset(kTwo);
  }
}

TEST(WatchDeviceFaultsTest, AnUnheardDeviceIsNotedAndNothingElse) {
  CudaShim::Reset({});  // no machine's NVML knows this PCI bus id
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> notes;
  const ManualClock clock;
  const auto faults = kernels::WatchDeviceFaults(
      {.device = "cuda:0", .clock = &clock, .on_note = [&](const kernels::DeviceNote& note) {
         const std::lock_guard lock(mutex);
         EXPECT_EQ(note.kind, kernels::DeviceNote::Kind::kEventsUnavailable);
         notes.push_back(note.text);
         changed.notify_all();
       }});
  ASSERT_TRUE(faults.ok()) << faults.status();
  const absl::Status lost = absl::InternalError("lost");
  EXPECT_EQ((*faults)->Explain(lost), lost);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return !notes.empty(); });
  EXPECT_THAT(notes, Each(::testing::AnyOf(HasSubstr("libnvidia-ml.so.1"), HasSubstr("nvml"))));
}

TEST(WatchDeviceFaultsTest, TheCpuHasNoneAndOtherDevicesAreRefused) {
  CudaShim::Reset({});
  const auto faults = kernels::WatchDeviceFaults({.device = "cpu"});
  ASSERT_TRUE(faults.ok());
  EXPECT_EQ(*faults, nullptr);
  EXPECT_EQ(kernels::WatchDeviceFaults({.device = "cuda:7"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace continuo::testing
