// SPDX-License-Identifier: Apache-2.0
// XidWatch over an NVML of the tests.
#include "kernels/cuda/xid_watch.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/shim/fake_nvml.h"
#include "tests/testing/manual_clock.h"

namespace continuo::cuda {
namespace {

using ::testing::ElementsAre;
using testing::FakeNvml;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kFirst[] = "00000000:17:00.0";
constexpr char kSecond[] = "00000001:CA:00.0";
// What a test that ends in time never waits for, and what it need not wait for.
constexpr absl::Duration kForEver = absl::Hours(1);
constexpr absl::Duration kShort = absl::Milliseconds(1);

const absl::Status& Lost() {
  static const absl::Status status = absl::InternalError("cuda:0: lost");
  return status;
}

class XidWatchTest : public ::testing::Test {
 protected:
  // NVML numbers the devices otherwise than CUDA.
  XidWatchTest() { FakeNvml::Reset({"00000000:01:00.0", kFirst, kSecond}); }
  ~XidWatchTest() override {
    watch_.reset();
    EXPECT_EQ(FakeNvml::NumAlive(), 0);
  }

  XidWatchOptions Options() {
    return {.library = FakeNvml::Path(),
            .explain_limit = kForEver,
            .pause = absl::ZeroDuration(),
            .end_limit = kForEver,
            .clock = &clock_,
            .on_note = [this](const DeviceNote& note) {
              const std::lock_guard lock(mutex_);
              (note.is_fault ? faults_ : infos_).push_back(note.text);
              changed_.notify_all();
            }};
  }
  XidWatch& Watch(XidWatchOptions options) {
    watch_ = std::make_unique<XidWatch>(std::vector<Device>{{.index = 0, .pci_bus_id = kSecond},
                                                            {.index = 1, .pci_bus_id = kFirst}},
                                        std::move(options));
    return *watch_;
  }
  XidWatch& Watch() { return Watch(Options()); }

  std::vector<std::string> AwaitFaults(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return faults_.size() >= count; });
    return faults_;
  }
  // NVML is given up, and why has been noted.
  void ExpectNothingIsHeard(const std::string& why) {
    EXPECT_THAT(watch_->Watched(), IsEmpty());
    EXPECT_EQ(watch_->Explain(Lost()), Lost());
    const std::lock_guard lock(mutex_);
    EXPECT_THAT(infos_, ElementsAre(HasSubstr(why)));
    EXPECT_THAT(faults_, IsEmpty());
  }

  ManualClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> faults_, infos_;  // guarded by mutex_
  std::unique_ptr<XidWatch> watch_;
};

TEST_F(XidWatchTest, DevicesAreFoundByTheirPciBusIds) {
  EXPECT_THAT(Watch().Watched(), ElementsAre(0, 1));
  FakeNvml::Send(kFirst, 48);
  FakeNvml::Send(kSecond, 79);
  EXPECT_THAT(AwaitFaults(2), ElementsAre("Xid 48 on cuda:1: double-bit ECC error",
                                          "Xid 79 on cuda:0: GPU has fallen off the bus"));
}

TEST_F(XidWatchTest, AnXidBeforeTheErrorIsAReason) {
  Watch();
  FakeNvml::Send(kSecond, 79);
  AwaitFaults(1);
  EXPECT_EQ(watch_->Explain(Lost()),
            absl::InternalError("cuda:0: lost; Xid 79 on cuda:0: GPU has fallen off the bus"));
}

TEST_F(XidWatchTest, AnXidBehindTheErrorIsAwaited) {
  Watch();
  std::thread waiting([&] {
    EXPECT_EQ(watch_->Explain(Lost()).message(),
              "cuda:0: lost; Xid 119 on cuda:1: GSP RPC timeout");
  });
  FakeNvml::Send(kFirst, 119);
  waiting.join();
}

TEST_F(XidWatchTest, WithoutAnXidTheErrorIsAllThereIs) {
  XidWatchOptions options = Options();
  options.explain_limit = kShort;
  EXPECT_EQ(Watch(options).Explain(Lost()), Lost());
}

TEST_F(XidWatchTest, AnOldXidEndsNoWait) {
  XidWatchOptions options = Options();
  options.explain_limit = kShort;
  Watch(options);
  FakeNvml::Send(kSecond, 63);
  AwaitFaults(1);
  clock_.Advance(absl::Hours(5));
  EXPECT_THAT(std::string(watch_->Explain(Lost()).message()), HasSubstr("row remapped, 5h before"));
  watch_.reset();

  Watch();
  FakeNvml::Send(kSecond, 63);
  AwaitFaults(2);
  clock_.Advance(absl::Hours(5));
  std::thread waiting([&] {
    EXPECT_THAT(std::string(watch_->Explain(Lost()).message()),
                HasSubstr("5h before; Xid 79 on cuda:1"));
  });
  FakeNvml::Send(kFirst, 79);
  waiting.join();
}

TEST_F(XidWatchTest, WhatIsNoFaultOfADeviceIsNotExplained) {
  Watch();
  const absl::Status full = absl::ResourceExhaustedError("out of memory");
  EXPECT_EQ(watch_->Explain(full), full);
  EXPECT_EQ(watch_->Explain(absl::OkStatus()), absl::OkStatus());
}

TEST_F(XidWatchTest, EventsOfOthersAndOfOtherKindsAreNone) {
  Watch();
  FakeNvml::Send("00000000:01:00.0", 79);
  FakeNvml::Send("no device at all", 79);
  FakeNvml::Send(kFirst, 79, nvmlEventTypePState);
  FakeNvml::Send(kFirst, 0, 0);
  FakeNvml::Send(kSecond, ~0ull, ~0ull, /*gpu_instance=*/7);
  EXPECT_EQ(watch_->Explain(Lost()).message(),
            "cuda:0: lost; Xid 18446744073709551615 on cuda:0 (GPU instance 7)");
}

TEST_F(XidWatchTest, AFloodIsKeptSmall) {
  Watch();
  for (unsigned i = 0; i < 5000; ++i) FakeNvml::Send(i % 3 == 0 ? kFirst : kSecond, i % 500);
  FakeNvml::AwaitTaken();
  const std::string text(watch_->Explain(Lost()).message());
  EXPECT_EQ(std::count(text.begin(), text.end(), ';'), 8);
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(faults_.size(), 16u);
}

TEST_F(XidWatchTest, AMissingLibraryIsSaid) {
  XidWatchOptions options = Options();
  options.library = "libno-such-nvidia-ml.so.1";
  Watch(options);
  ExpectNothingIsHeard("libno-such-nvidia-ml.so.1: cannot open");
}

TEST_F(XidWatchTest, AMissingFunctionIsSaid) {
  XidWatchOptions options = Options();
  options.library = CONTINUO_INCOMPLETE_NVML;
  Watch(options);
  ExpectNothingIsHeard("nvmlEventSetWait_v2");
}

TEST_F(XidWatchTest, NobodyNeedsToHearTheNotes) {
  XidWatchOptions options = Options();
  options.on_note = nullptr;
  Watch(options);
  FakeNvml::Send(kSecond, 43);
  EXPECT_THAT(std::string(watch_->Explain(Lost()).message()), HasSubstr("Xid 43"));
  options.library = "libno-such-nvidia-ml.so.1";
  EXPECT_EQ(Watch(options).Explain(Lost()), Lost());
}

TEST_F(XidWatchTest, WhatFailsAtStartIsSaid) {
  for (const char* function : {"nvmlInit_v2", "nvmlEventSetCreate",
                               "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceRegisterEvents"}) {
    for (const nvmlReturn_t result :
         {NVML_ERROR_UNKNOWN, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NOT_FOUND,
          NVML_ERROR_GPU_IS_LOST, static_cast<nvmlReturn_t>(12345)}) {
      SCOPED_TRACE(function);
      FakeNvml::Reset({kFirst, kSecond});
      FakeNvml::Fail(function, result);
      Watch();
      ExpectNothingIsHeard(function);
      watch_.reset();
      EXPECT_EQ(FakeNvml::NumAlive(), 0);
      infos_.clear();
    }
  }
}

TEST_F(XidWatchTest, ADeviceThatNvmlDoesNotKnowIsSaidAndTheOtherOneHeard) {
  FakeNvml::Reset({kFirst});
  EXPECT_THAT(Watch().Watched(), ElementsAre(1));
  EXPECT_THAT(infos_, ElementsAre(HasSubstr("cuda:0 at 00000001:CA:00.0: error (6)")));
  FakeNvml::Send(kFirst, 94);
  EXPECT_THAT(std::string(watch_->Explain(Lost()).message()), HasSubstr("Xid 94 on cuda:1"));
}

TEST_F(XidWatchTest, ADeviceWithoutEventsIsSaidAndTheOtherOneHeard) {
  FakeNvml::Fail(std::string("nvmlDeviceRegisterEvents ") + kFirst, NVML_ERROR_NOT_SUPPORTED);
  EXPECT_THAT(Watch().Watched(), ElementsAre(0));
  EXPECT_THAT(infos_, ElementsAre(HasSubstr("nvmlDeviceRegisterEvents of cuda:1")));
}

// The set is in no state to be waited for.
TEST_F(XidWatchTest, AnUnknownErrorOfOneDeviceEndsIt) {
  FakeNvml::Fail(std::string("nvmlDeviceRegisterEvents ") + kFirst, NVML_ERROR_UNKNOWN);
  Watch();
  ExpectNothingIsHeard("nvmlDeviceRegisterEvents of cuda:1");
  EXPECT_EQ(FakeNvml::NumCalls("nvmlEventSetWait_v2"), 0);
}

TEST_F(XidWatchTest, AWaitThatAlwaysFailsIsGivenUp) {
  for (const nvmlReturn_t result : {NVML_ERROR_UNKNOWN, NVML_ERROR_GPU_IS_LOST}) {
    FakeNvml::Reset({kFirst, kSecond});
    FakeNvml::Fail("nvmlEventSetWait_v2", result);
    Watch();
    EXPECT_EQ(watch_->Explain(Lost()), Lost());
    EXPECT_THAT(infos_, ElementsAre(HasSubstr("nvmlEventSetWait_v2: error of the fake")));
    EXPECT_EQ(FakeNvml::NumCalls("nvmlEventSetWait_v2"), 100);
    watch_.reset();
    infos_.clear();
  }
}

TEST_F(XidWatchTest, AnErrorOfTheWaitNowAndThenIsNone) {
  Watch();
  for (unsigned i = 0; i < 3; ++i) {
    FakeNvml::Fail("nvmlEventSetWait_v2", NVML_ERROR_UNKNOWN, /*times=*/60);
    FakeNvml::Send(kSecond, 61 + i);
    AwaitFaults(i + 1);
  }
}

TEST_F(XidWatchTest, ErrorsOfTheEndAreNobodysConcern) {
  FakeNvml::Fail("nvmlEventSetFree", NVML_ERROR_UNKNOWN);
  FakeNvml::Fail("nvmlShutdown", NVML_ERROR_UNKNOWN);
  EXPECT_THAT(Watch().Watched(), ElementsAre(0, 1));
  watch_.reset();
  EXPECT_THAT(infos_, IsEmpty());
}

TEST_F(XidWatchTest, ItEndsWhileNvmlWaits) {
  Watch();
  FakeNvml::AwaitCalls("nvmlEventSetWait_v2", 1);
  watch_.reset();
  EXPECT_EQ(FakeNvml::NumCalls("nvmlEventSetFree"), 1);
  EXPECT_EQ(FakeNvml::NumCalls("nvmlShutdown"), 1);
}

TEST_F(XidWatchTest, AnNvmlThatHangsIsLeftBehind) {
  FakeNvml::Hang();
  XidWatchOptions options = Options();
  options.explain_limit = options.end_limit = kShort;
  Watch(options);
  FakeNvml::AwaitCalls("nvmlEventSetWait_v2", 1);
  EXPECT_EQ(watch_->Explain(Lost()), Lost());
  FakeNvml::Send(kSecond, 79);
  watch_.reset();
  FakeNvml::Release();
  FakeNvml::AwaitEnd();
  EXPECT_THAT(faults_, IsEmpty());
}

}  // namespace
}  // namespace continuo::cuda
