// SPDX-License-Identifier: Apache-2.0
// XidWatch over the tests' NVML.
#include "kernels/cuda/faults/xid_watch.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/faults/nvml_library.h"
#include "tests/kernels/cuda/shim/fake_nvml.h"
#include "tests/testing/manual_clock.h"

namespace continuo::kernels::cuda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FakeNvml;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr char kFirst[] = "00000000:17:00.0";
constexpr char kSecond[] = "00000001:CA:00.0";
// A test that ends in time never waits this long, and need not wait for the other.
constexpr absl::Duration kForEver = absl::Hours(1);
constexpr absl::Duration kShort = absl::Milliseconds(1);

const absl::Status& Lost() {
  static const absl::Status status = absl::InternalError("cuda:0: lost");
  return status;
}

class XidWatchTest : public ::testing::Test {
 protected:
  // NVML numbers the devices differently from CUDA.
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
              switch (note.kind) {
                case DeviceNote::Kind::kFault:
                  faults_.push_back(note.text);
                  break;
                case DeviceNote::Kind::kEventsUnavailable:
                  infos_.push_back(note.text);
                  break;
                case DeviceNote::Kind::kEventsIncomplete:
                  parts_.push_back(note.text);
                  break;
              }
              changed_.notify_all();
            }};
  }
  XidWatch& Watch(XidWatchOptions options) {
    watch_ = std::make_unique<XidWatch>(std::vector<DeviceInfo>{{.index = 0, .pci_bus_id = kSecond},
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
  // Expects that NVML is given up, and that a note says why.
  void ExpectNothingIsHeard(const std::string& why) {
    EXPECT_THAT(watch_->Watched(), IsEmpty());
    EXPECT_EQ(watch_->Explain(Lost()), Lost());
    const std::lock_guard lock(mutex_);
    EXPECT_THAT(infos_, ElementsAre(HasSubstr(why)));
    EXPECT_THAT(parts_, IsEmpty());
    EXPECT_THAT(faults_, IsEmpty());
  }
  std::vector<std::string> AwaitParts(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return parts_.size() >= count; });
    return parts_;
  }

  ManualClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> faults_, infos_, parts_;  // by kind; guarded by mutex_
  std::unique_ptr<XidWatch> watch_;
};

TEST_F(XidWatchTest, DevicesAreFoundByTheirPciBusIds) {
  EXPECT_THAT(Watch().Watched(), ElementsAre(0, 1));
  FakeNvml::Send(kFirst, 48);
  FakeNvml::Send(kSecond, 79);
  EXPECT_THAT(AwaitFaults(2), UnorderedElementsAre("Xid 48 on cuda:1: double-bit ECC error",
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
              "cuda:0: lost; Xid 119 on cuda:0: GSP RPC timeout");
  });
  FakeNvml::Send(kSecond, 119);
  waiting.join();
}

TEST_F(XidWatchTest, AnEarlierXidOfAnotherDeviceEndsNoWait) {
  Watch();
  FakeNvml::Send(kFirst, 63);
  AwaitFaults(1);
  const std::string earlier = "cuda:0: lost; Xid 63 on cuda:1: memory page retired or row remapped";
  const std::string behind = "; Xid 79 on cuda:0: GPU has fallen off the bus";
  const std::pair<absl::Duration, std::string> cases[] = {{absl::Seconds(1), ""},
                                                          {absl::Seconds(29), ", 30s before"}};
  for (const auto& [later, age] : cases) {
    clock_.Advance(later);
    std::thread waiting(
        [&] { EXPECT_EQ(watch_->Explain(Lost()).message(), earlier + age + behind); });
    FakeNvml::Send(kSecond, 79);
    waiting.join();
  }
}

TEST_F(XidWatchTest, AnXidThatIsNotRecentEndsNoWaitOfItsDevice) {
  Watch();
  FakeNvml::Send(kSecond, 63);
  AwaitFaults(1);
  clock_.Advance(absl::Seconds(3));
  std::thread waiting([&] {
    EXPECT_EQ(watch_->Explain(Lost()).message(),
              "cuda:0: lost; Xid 63 on cuda:0: memory page retired or row remapped, 3s before; "
              "Xid 79 on cuda:0: GPU has fallen off the bus");
  });
  FakeNvml::Send(kSecond, 79);
  waiting.join();
}

// These would otherwise wait for ever.
TEST_F(XidWatchTest, AnyOfTheDevicesThatAFailureNamesWillDo) {
  Watch();
  FakeNvml::Send(kFirst, 31);
  AwaitFaults(1);
  for (const char* what : {"a step hangs on cuda:0,1", "the engine hangs", "rank 0 on cuda:1: lost",
                           "cuda:10, cuda:x, cuda: and cuda:1, hang", "cuda:99999999999 hangs"}) {
    EXPECT_EQ(watch_->Explain(absl::DeadlineExceededError(what)),
              absl::DeadlineExceededError(
                  absl::StrCat(what, "; Xid 31 on cuda:1: GPU memory page fault")));
  }
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
                HasSubstr("5h before; Xid 79 on cuda:0"));
  });
  FakeNvml::Send(kSecond, 79);
  waiting.join();
}

TEST_F(XidWatchTest, WhatIsNoFaultOfADeviceIsNotExplained) {
  Watch();
  for (const absl::Status& status :
       {absl::OkStatus(), absl::ResourceExhaustedError("out of memory"),
        absl::InvalidArgumentError("no such format"), absl::NotFoundError("no such file"),
        absl::FailedPreconditionError("no such driver")}) {
    EXPECT_EQ(watch_->Explain(status), status);
  }
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
  EXPECT_EQ(std::count(text.begin(), text.end(), ';'), 10);  // each with the number of dropped ones
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
  EXPECT_THAT(parts_, ElementsAre(HasSubstr("cuda:0 at 00000001:CA:00.0: error (6)")));
  FakeNvml::Send(kFirst, 94);
  EXPECT_THAT(std::string(watch_->Explain(absl::InternalError("cuda:1: lost")).message()),
              HasSubstr("Xid 94 on cuda:1"));
  EXPECT_THAT(infos_, IsEmpty());
}

TEST_F(XidWatchTest, ADeviceWithoutEventsIsSaidAndTheOtherOneHeard) {
  for (const nvmlReturn_t result : {NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_UNKNOWN}) {
    FakeNvml::Reset({kFirst, kSecond});
    FakeNvml::Fail(std::string("nvmlDeviceRegisterEvents ") + kFirst, result);
    EXPECT_THAT(Watch().Watched(), ElementsAre(0));
    EXPECT_THAT(parts_, ElementsAre(HasSubstr("nvmlDeviceRegisterEvents of cuda:1")));
    FakeNvml::Send(kSecond, 94);
    EXPECT_THAT(std::string(watch_->Explain(Lost()).message()), HasSubstr("Xid 94 on cuda:0"));
    watch_.reset();
    EXPECT_EQ(FakeNvml::NumAlive(), 0);
    parts_.clear();
  }
}

TEST_F(XidWatchTest, EveryDeviceThatIsRefusedIsNamed) {
  FakeNvml::Fail(std::string("nvmlDeviceRegisterEvents ") + kFirst, NVML_ERROR_NOT_SUPPORTED);
  FakeNvml::Fail(std::string("nvmlDeviceGetHandleByPciBusId_v2 ") + kSecond,
                 NVML_ERROR_NO_PERMISSION);
  Watch();
  ExpectNothingIsHeard(
      "nvmlDeviceGetHandleByPciBusId_v2 of cuda:0 at 00000001:CA:00.0: error of the fake (4); "
      "nvmlDeviceRegisterEvents of cuda:1 at 00000000:17:00.0: error of the fake (3)");
}

TEST_F(XidWatchTest, AWaitThatAlwaysFailsIsGivenUp) {
  FakeNvml::Fail("nvmlEventSetWait_v2", NVML_ERROR_UNKNOWN);
  Watch();
  EXPECT_EQ(watch_->Explain(Lost()), Lost());
  EXPECT_THAT(infos_, ElementsAre(AllOf(
                          HasSubstr("nvmlEventSetWait_v2 of cuda:0 at 00000001:CA:00.0: error of "),
                          HasSubstr("nvmlEventSetWait_v2 of cuda:1"))));
  EXPECT_THAT(faults_, IsEmpty());
  EXPECT_EQ(FakeNvml::NumCalls("nvmlEventSetWait_v2"), 2 * 100);
}

TEST_F(XidWatchTest, AWaitThatAlwaysFailsOfOneDeviceEndsThatOneAlone) {
  FakeNvml::Fail(std::string("nvmlEventSetWait_v2 ") + kFirst, NVML_ERROR_UNKNOWN);
  Watch();
  EXPECT_THAT(AwaitParts(1), ElementsAre(HasSubstr("nvmlEventSetWait_v2 of cuda:1")));
  FakeNvml::Send(kSecond, 79);
  EXPECT_THAT(AwaitFaults(1), ElementsAre(HasSubstr("Xid 79 on cuda:0")));
  EXPECT_THAT(infos_, IsEmpty());
}

TEST_F(XidWatchTest, ALostDeviceIsAFaultAndTheOtherOneHeard) {
  const std::pair<nvmlReturn_t, std::string> cases[] = {
      {NVML_ERROR_GPU_IS_LOST, "NVML: GPU is lost (cuda:0)"},
      {NVML_ERROR_RESET_REQUIRED, "NVML: GPU requires a reset (cuda:0)"}};
  for (const auto& [result, text] : cases) {
    FakeNvml::Reset({kFirst, kSecond});
    Watch();
    std::thread waiting([&] {
      EXPECT_EQ(watch_->Explain(Lost()).message(), absl::StrCat("cuda:0: lost; ", text));
    });
    FakeNvml::Fail(std::string("nvmlEventSetWait_v2 ") + kSecond, result);
    waiting.join();
    EXPECT_THAT(AwaitParts(1), ElementsAre(HasSubstr("nvmlEventSetWait_v2 of cuda:0")));
    EXPECT_THAT(AwaitFaults(1), ElementsAre(text));  // only once, however often NVML repeats it
    FakeNvml::Send(kFirst, 74);
    EXPECT_THAT(AwaitFaults(2), ElementsAre(text, "Xid 74 on cuda:1: NVLink error"));
    watch_.reset();
    faults_.clear();
    parts_.clear();
  }
  EXPECT_THAT(infos_, IsEmpty());
}

TEST_F(XidWatchTest, TheXidOfALostDeviceIsHeardBehindIt) {
  Watch();
  FakeNvml::Fail(std::string("nvmlEventSetWait_v2 ") + kSecond, NVML_ERROR_GPU_IS_LOST, 50);
  AwaitFaults(1);  // a wait that has begun would hear the Xid first
  FakeNvml::Send(kSecond, 79);
  AwaitFaults(2);
  EXPECT_EQ(watch_->Explain(Lost()).message(),
            "cuda:0: lost; NVML: GPU is lost (cuda:0); Xid 79 on cuda:0: GPU has fallen off the "
            "bus");
}

TEST_F(XidWatchTest, AllDevicesLostAreKnownWhenNvmlIsGivenUp) {
  FakeNvml::Fail("nvmlEventSetWait_v2", NVML_ERROR_GPU_IS_LOST);
  Watch();
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !infos_.empty(); });
  }
  clock_.Advance(absl::Seconds(10));
  EXPECT_EQ(watch_->Explain(Lost()).message(),
            "cuda:0: lost; NVML: GPU is lost (cuda:0), 10s before; NVML: GPU is lost (cuda:1), "
            "10s before");
}

TEST_F(XidWatchTest, MigIsSaidOnceAndEventsAreHeard) {
  FakeNvml::TurnMigOn(kFirst);
  FakeNvml::TurnMigOn(kSecond);
  EXPECT_THAT(Watch().Watched(), ElementsAre(0, 1));
  EXPECT_THAT(parts_, ElementsAre("events of MIG instances need privileges: MIG is on for cuda:0 "
                                  "at 00000001:CA:00.0, cuda:1 at 00000000:17:00.0"));
  FakeNvml::Send(kFirst, 79);
  EXPECT_THAT(AwaitFaults(1), ElementsAre(HasSubstr("Xid 79 on cuda:1")));
}

TEST_F(XidWatchTest, NothingIsSaidOfMigWhereNvmlDoesNotTell) {
  FakeNvml::TurnMigOn(kFirst);
  FakeNvml::Fail("nvmlDeviceGetMigMode", NVML_ERROR_NOT_SUPPORTED);
  EXPECT_THAT(Watch().Watched(), ElementsAre(0, 1));
  EXPECT_THAT(parts_, IsEmpty());
  const auto old = NvmlLibrary::Open(CONTINUO_OLD_NVML);
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_EQ((*old)->DeviceGetMigMode, nullptr);
}

TEST_F(XidWatchTest, AnErrorOfTheWaitNowAndThenIsNone) {
  Watch();
  for (unsigned i = 0; i < 3; ++i) {
    FakeNvml::Fail(std::string("nvmlEventSetWait_v2 ") + kSecond, NVML_ERROR_UNKNOWN,
                   /*times=*/60);
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
  EXPECT_EQ(FakeNvml::NumCalls("nvmlEventSetFree"), 2);
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
}  // namespace continuo::kernels::cuda
