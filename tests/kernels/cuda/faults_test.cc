// SPDX-License-Identifier: Apache-2.0
// A device that is lost ends its work with what the driver says of it: Xids, of the tests' NVML, in
// the errors of backends, communicators and whole models over the shim.
#include "kernels/device_faults.h"

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/xid_watch.h"
#include "tests/kernels/cuda/model_cases.h"
#include "tests/kernels/cuda/nccl_harness.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"
#include "tests/kernels/cuda/shim/fake_nvml.h"

namespace continuo::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kPci0[] = "00000000:CA:00.0", kPci1[] = "00000002:17:03.0";
const ShimOptions kTwo = {
    .devices = {{.pci_bus = 0xca}, {.pci_domain = 2, .pci_bus = 0x17, .pci_device = 3}}};

class FaultsTest : public ::testing::Test {
 protected:
  FaultsTest() {
    CudaShim::Reset(kTwo);
    FakeNvml::Reset({kPci1, kPci0});
    const auto devices = cuda::FindDevices(std::array{0, 1});
    CONTINUO_CHECK(devices.ok());
    device_ = devices->front();
    // A wait that no Xid ends would be noticed.
    watch_ = std::make_shared<cuda::XidWatch>(*devices,
                                              cuda::XidWatchOptions{.library = FakeNvml::Path(),
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
  std::unique_ptr<cuda::CudaBackend> MakeBackend() {
    auto backend = cuda::CudaBackend::Make({.device = device_, .faults = watch_});
    CONTINUO_CHECK(backend.ok());
    return *std::move(backend);
  }

  ManualClock clock_;
  cuda::Device device_;
  std::shared_ptr<cuda::XidWatch> watch_;
};

TEST_F(FaultsTest, ALostDeviceIsToldWithItsXid) {
  const auto backend = MakeBackend();
  CudaShim::Break(0);
  FakeNvml::Send(kPci0, 79);
  const absl::Status status = backend->Synchronize();
  EXPECT_EQ(status,
            absl::InternalError("cuda:0: cudaStreamSynchronize: error of the shim (cudaErrorShim); "
                                "Xid 79 on cuda:0: GPU has fallen off the bus"));
  // What comes later is no reason.
  FakeNvml::Send(kPci0, 154);
  FakeNvml::AwaitTaken();
  EXPECT_EQ(backend->Synchronize(), status);
}

TEST_F(FaultsTest, TheFirstErrorIsTheOneThatIsExplained) {
  const auto backend = MakeBackend();
  const auto data = backend->Allocate(64);
  ASSERT_TRUE(data.ok());
  CudaShim::Break(0);
  std::array<float, 16> host{};
  backend->CopyOut(host.data(), {.data = *data, .dtype = DType::kF32, .shape = {1, 16, 1}});
  FakeNvml::Send(kPci0, 74);
  EXPECT_THAT(
      std::string(backend->Synchronize().message()),
      AllOf(HasSubstr("cuda:0: cudaSetDevice: "), HasSubstr("; Xid 74 on cuda:0: NVLink error")));
  backend->Free(*data);
}

// Nothing is awaited: the stream goes on, so the device does.
TEST_F(FaultsTest, ACallThatFailsByItselfIsNotExplained) {
  const auto backend = MakeBackend();
  const auto data = backend->Allocate(64);
  ASSERT_TRUE(data.ok());
  CudaShim::Fail({0, "cudaMemcpyAsync", 1});
  std::array<float, 16> host{};
  backend->CopyOut(host.data(), {.data = *data, .dtype = DType::kF32, .shape = {1, 16, 1}});
  EXPECT_THAT(std::string(backend->Synchronize().message()),
              AllOf(HasSubstr("cuda:0: cudaMemcpyAsync"), ::testing::Not(HasSubstr("Xid"))));
  backend->Free(*data);
}

TEST_F(FaultsTest, AModelOnALostDeviceEndsWithTheXid) {
  const TinyModel files({.num_layers = 1});
  for (const auto& [device, lost] : std::vector<std::pair<std::string, int>>{
           {"cuda:0", 0}, {"cuda:0,1", 0}, {"cuda:0,1", 1}, {"cuda:1", 1}}) {
    SCOPED_TRACE(device + " " + std::to_string(lost));
    {
      LoadOptions options;
      options.dir = files.dir();
      options.device = device;
      options.num_blocks = 8;
      options.max_batch_tokens = options.max_context_tokens = 64;
      options.faults = watch_;
      auto loaded = LoadExecutor(options);
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      const std::vector<int32_t> tokens = {1, 2, 3};
      PlanBuilder builder(loaded->block_size, 4);
      builder.Add(0, 0, tokens, LastOf(tokens));
      const auto run = [&] {
        return loaded->executor->Run(builder.plan(), [](std::span<uint32_t>) {}).status();
      };
      EXPECT_EQ(run(), absl::OkStatus());
      CudaShim::Break(lost);
      FakeNvml::Send(lost == 0 ? kPci0 : kPci1, 119);
      const std::string xid = absl::StrCat("; Xid 119 on cuda:", lost, ": GSP RPC timeout");
      EXPECT_THAT(std::string(run().message()), HasSubstr(xid));
    }
    clock_.Advance(absl::Hours(1));  // the last Xid is an old one
    CudaShim::Reset(kTwo);
  }
}

// Notes what it was asked, and answers at once.
class CountedFaults : public DeviceFaults {
 public:
  absl::Status Explain(const absl::Status& failure) override {
    ++num_asked;
    return absl::Status(failure.code(), absl::StrCat(failure.message(), "; because"));
  }
  std::atomic<int> num_asked{0};
};

absl::Status OneSum(cuda::NcclCommunicator& c, cuda::Stream& stream) {
  cuda::Array<float> x(1, 100);
  c.AllReduceSum(x);
  return stream.Synchronize();
}

TEST(NcclFaultsTest, EveryRankIsToldTheSameReason) {
  CudaShim::Reset(cuda::NcclHarness::Devices(4));
  const auto faults = std::make_shared<CountedFaults>();
  cuda::NcclHarness harness(4, {.faults = faults});
  CudaShim::HangCollective(2, 2);  // the first connects
  harness.Start([](cuda::NcclCommunicator& c, cuda::Stream& stream) -> absl::Status {
    EXPECT_TRUE(c.status().ok());
    RETURN_IF_ERROR(OneSum(c, stream));
    return c.status();
  });
  for (int d = 0; d < 4; ++d) CudaShim::AwaitCollectives(d, 2);
  EXPECT_EQ(faults->num_asked, 0);
  for (const absl::Status& status : harness.FinishWhileTimePasses()) {
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr("hung: a collective has not ended for 1m"), HasSubstr("; because")));
    EXPECT_EQ(status.message(), absl::StrCat(harness.failure().message(), "; because"));
  }
  EXPECT_GE(faults->num_asked, 1);
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
}

TEST(NcclFaultsTest, TheReasonOfAProcessThatIsStuckHasIt) {
  CudaShim::Reset(cuda::NcclHarness::Devices(2));
  cuda::NcclHarness harness(2, {.faults = std::make_shared<CountedFaults>()});
  harness.Start([](cuda::NcclCommunicator& c, cuda::Stream& stream) {
    if (c.rank() == 1) CudaShim::HangStreams(1);
    return OneSum(c, stream);
  });
  for (int d = 0; d < 2; ++d) CudaShim::AwaitCollectives(d, 2);
  const auto stuck = HasSubstr("for 1m; because; rank 1 on cuda:1 does not come to rest after it");
  while (!::testing::Value(harness.stuck(), Contains(stuck))) {
    harness.clock.Advance(absl::Milliseconds(50));
    std::this_thread::yield();
  }
  CudaShim::ReleaseHangs();
  harness.Finish();
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
}

TEST(WatchDeviceFaultsTest, AnUnheardDeviceIsNotedAndNothingElse) {
  CudaShim::Reset({});  // at a PCI bus id that no machine's NVML knows
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> notes;
  const ManualClock clock;
  const auto faults = WatchDeviceFaults(
      {.device = "cuda:0", .clock = &clock, .on_note = [&](const DeviceNote& note) {
         const std::lock_guard lock(mutex);
         EXPECT_EQ(note.kind, DeviceNote::Kind::kUnheard);
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
  const auto faults = WatchDeviceFaults({.device = "cpu"});
  ASSERT_TRUE(faults.ok());
  EXPECT_EQ(*faults, nullptr);
  EXPECT_EQ(WatchDeviceFaults({.device = "cuda:7"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace continuo::testing
