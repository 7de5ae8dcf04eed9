// SPDX-License-Identifier: Apache-2.0
// Every call that can fail fails once, and every collective hangs once. Each time all ranks return
// with one clear status, and nothing is left.
#include <algorithm>
#include <atomic>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/runtime/cuda_status.h"
#include "kernels/cuda/runtime/graph_cache.h"
#include "tests/kernels/cuda/collectives/nccl_harness.h"

namespace continuo::kernels::cuda {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using testing::CudaShim;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ShimCall;
using testing::ToString;

// Runs a sum and a gather in several rounds: eagerly, eagerly while a graph is captured, then by
// the graph.
absl::Status Collectives(NcclCommunicator& c, Stream& stream) {
  const std::vector<int64_t> begin =
      c.size() == 2 ? std::vector<int64_t>{0, 2, 5} : std::vector<int64_t>{0, 2, 5, 5, 6};
  Array<float> x(1, 1500), out(300, begin.back());
  Array<float> part(300, begin[c.rank() + 1] - begin[c.rank()]);
  GraphCache graphs(stream.device());
  absl::Status status;
  for (int time = 0; time < 3 && status.ok(); ++time) {
    const std::vector<int64_t> key = {1};
    status = graphs.Run(
        key,
        [&] {
          c.AllReduceSum(x);
          c.AllGather(out, part, begin);
          return c.status();
        },
        stream);
  }
  status.Update(stream.Synchronize());  // the tensors are on this stack
  return status;
}

// Runs a sum, by a graph from the third time on.
absl::Status SumByGraph(GraphCache& graphs, NcclCommunicator& c, Tensor x, Stream& stream) {
  const std::vector<int64_t> key = {2};
  return graphs.Run(
      key,
      [&] {
        c.AllReduceSum(x);
        return c.status();
      },
      stream);
}

void ExpectNothingLeft() {
  EXPECT_THAT(CudaShim::Alive(), IsEmpty());
  EXPECT_THAT(CudaShim::Violations(), IsEmpty());
}

// Nobody needs the errors of these calls: what they end is not used again.
bool IsEnd(const ShimCall& call) {
  return call.function == "cudaFree" ||
         (call.function.ends_with("Destroy") && call.function != "cudaGraphDestroy");
}

struct Way {
  bool tree_order;
  int in_progress_polls;
};

class NcclFailuresTest : public ::testing::TestWithParam<Way> {
 protected:
  static constexpr int kSize = 2;
  static NcclOptions Options() { return {.tree_order = GetParam().tree_order}; }
  static testing::ShimOptions Devices() {
    return NcclHarness::Devices(kSize, GetParam().in_progress_polls);
  }
};

TEST_P(NcclFailuresTest, EveryCallFailsOnce) {
  CudaShim::Reset(Devices());
  for (const absl::Status& status : NcclHarness(kSize, Options()).Run(Collectives)) {
    ASSERT_TRUE(status.ok()) << status;
  }
  const std::vector<ShimCall> calls = CudaShim::Calls();
  EXPECT_GE(calls.size(), 40u);
  for (const ShimCall& call : calls) {
    SCOPED_TRACE(ToString(call));
    CudaShim::Reset(Devices());
    CudaShim::Fail(call);
    NcclHarness harness(kSize, Options());
    const std::vector<absl::Status> statuses = harness.Run(Collectives);
    // Threads that poll or end make some calls more or less often from run to run.
    EXPECT_TRUE(CudaShim::Failed() || call.count > 1);
    if (CudaShim::Failed() && !IsEnd(call)) {
      EXPECT_FALSE(harness.failure().ok());
      EXPECT_THAT(std::string(harness.failure().message()), HasSubstr(call.function));
      // A rank that had returned before hears of it at its next step.
      for (const absl::Status& status : statuses) {
        EXPECT_TRUE(status.ok() || status == harness.failure()) << status;
      }
    } else {
      EXPECT_TRUE(harness.failure().ok()) << harness.failure();
    }
    EXPECT_THAT(harness.stuck(), IsEmpty());
    ExpectNothingLeft();
  }
}

TEST_P(NcclFailuresTest, EveryCollectiveHangsOnce) {
  CudaShim::Reset(Devices());
  NcclHarness(kSize, Options()).Run(Collectives);
  const int num_collectives = CudaShim::NumCollectives(0);
  EXPECT_GE(num_collectives, 3);
  for (int device = 0; device < kSize; ++device) {
    for (int count = 1; count <= num_collectives; ++count) {
      SCOPED_TRACE(testing::ToString({device, "collective", count}));
      CudaShim::Reset(Devices());
      CudaShim::HangCollective(device, count);
      NcclHarness harness(kSize, Options());
      harness.Start(Collectives);
      // Time would run out for joining before that.
      for (int d = 0; d < kSize; ++d) CudaShim::AwaitCollectives(d, 1);
      const std::vector<absl::Status> statuses = harness.FinishWhileTimePasses();
      for (const absl::Status& status : statuses) {
        EXPECT_EQ(status, harness.failure());
        EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
        // Time also runs out for a call that is still in progress.
        EXPECT_THAT(std::string(status.message()),
                    GetParam().in_progress_polls > 0
                        ? HasSubstr(" for 1m")
                        : HasSubstr("hung: a collective has not ended for 1m"));
      }
      EXPECT_THAT(harness.stuck(), IsEmpty());
      ExpectNothingLeft();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, NcclFailuresTest,
                         ::testing::Values(Way{false, 0}, Way{true, 0}, Way{false, 3}),
                         [](const auto& info) {
                           return std::string(info.param.tree_order ? "tree_order" : "nccl_order") +
                                  (info.param.in_progress_polls > 0 ? "_by_a_thread" : "");
                         });

TEST(NcclHangTest, TheLimitOfTheOptionsCounts) {
  CudaShim::Reset(NcclHarness::Devices(2));
  CudaShim::HangCollective(1, 2);  // the first connects
  NcclHarness harness(2, {.hang_limit = absl::Seconds(2)});
  harness.Start(Collectives);
  for (int d = 0; d < 2; ++d) CudaShim::AwaitCollectives(d, 2);
  for (const absl::Status& status : harness.FinishWhileTimePasses()) {
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("hung: a collective has not ended for 2s"));
  }
  ExpectNothingLeft();
}

TEST(NcclHangTest, AGraphThatHangsWhenItIsDoneAgainIsNoticed) {
  CudaShim::Reset(NcclHarness::Devices(2));
  CudaShim::HangCollective(1, 5);  // one connects, two are eager, one is the new graph's
  NcclHarness harness(2);
  harness.Start([](NcclCommunicator& c, Stream& stream) {
    Array<float> x(1, 100);
    GraphCache graphs(stream.device());
    for (int time = 0; time < 4; ++time) {
      RETURN_IF_ERROR(SumByGraph(graphs, c, x, stream));
      RETURN_IF_ERROR(stream.Synchronize());
      AwaitPolls(c, stream);
    }
    return c.status();
  });
  for (int d = 0; d < 2; ++d) CudaShim::AwaitCollectives(d, 5);
  for (const absl::Status& status : harness.FinishWhileTimePasses()) {
    EXPECT_EQ(status, harness.failure());
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("hung: a collective has not ended for 1m"));
  }
  ExpectNothingLeft();
}

TEST(NcclHangTest, NothingIsHungWhileTimeStandsStill) {
  CudaShim::Reset(NcclHarness::Devices(2));
  CudaShim::HangCollective(0, 2);
  NcclHarness harness(2);
  harness.Start(Collectives);
  for (int d = 0; d < 2; ++d) CudaShim::AwaitCollectives(d, 2);
  harness.clock.Advance(absl::Seconds(59));  // of a limit of 60 s
  CudaShim::ReleaseHangs();
  EXPECT_THAT(harness.Finish(), Each(absl::OkStatus()));
  ExpectNothingLeft();
}

TEST(NcclHangTest, ARankThatDoesNotJoinIsNotAwaitedForEver) {
  for (int device = 0; device < 2; ++device) {
    CudaShim::Reset(NcclHarness::Devices(2));
    CudaShim::HangInit(device);
    NcclHarness harness(2, {.hang_limit = absl::Seconds(5)});
    harness.Start(Collectives);
    for (const absl::Status& status : harness.FinishWhileTimePasses()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("the 2 ranks have not joined within 5s"));
    }
    ExpectNothingLeft();
  }
}

// Rank 1 joins and does nothing more.
TEST(NcclHangTest, ARankThatDoesNotConnectIsNotAwaitedForEver) {
  CudaShim::Reset(NcclHarness::Devices(2));
  ManualClock clock;
  const auto group = NcclGroup::Make(2, {.on_stuck = [](const absl::Status&) {}, .clock = &clock});
  ASSERT_TRUE(group.ok());
  absl::Status status;
  std::atomic<bool> is_back{false};
  std::thread rank([&] {
    absl::StatusOr<Stream> stream = Stream::Make(0);
    status = stream.ok() ? NcclCommunicator::Make(*group, 0, 0, *stream).status() : stream.status();
    is_back = true;
  });
  ASSERT_TRUE(SetDevice(1).ok());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t other = nullptr;
  ncclResult_t joined = ncclCommInitRankConfig(&other, 2, (*group)->id(), 1, &config);
  ncclResult_t asked = ncclSuccess;
  while (joined == ncclInProgress && asked == ncclSuccess) {
    asked = ncclCommGetAsyncError(other, &joined);
  }
  EXPECT_EQ(joined, ncclSuccess);
  // Time would run out for joining before that.
  while (CudaShim::NumCalls(0, "cudaMemsetAsync") == 0) std::this_thread::yield();
  while (!is_back && (*group)->failure().ok()) {
    clock.Advance(absl::Milliseconds(50));
    std::this_thread::yield();
  }
  rank.join();
  EXPECT_EQ(status,
            absl::DeadlineExceededError("rank 0 on cuda:0: the 2 ranks have not met within 1m"));
  (void)ncclCommAbort(other);  // in progress, or done
  ExpectNothingLeft();
}

TEST(NcclHangTest, ACallThatStaysInProgressIsHung) {
  CudaShim::Reset(NcclHarness::Devices(2, /*in_progress_polls=*/1 << 30));
  NcclHarness harness(2);
  harness.Start(Collectives);
  for (int d = 0; d < 2; ++d) {
    while (CudaShim::NumCalls(d, "ncclAllReduce") == 0) std::this_thread::yield();
  }
  for (const absl::Status& status : harness.FinishWhileTimePasses()) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("ncclAllReduce has been in progress for 1m"));
  }
  ExpectNothingLeft();
}

TEST(NcclFailureTest, AnErrorThatNcclTellsLaterEndsWhatWaits) {
  for (int device = 0; device < 4; ++device) {
    CudaShim::Reset(NcclHarness::Devices(4));
    CudaShim::HangCollective(0, 2);
    NcclHarness harness(4);
    harness.Start(Collectives);
    for (int d = 0; d < 4; ++d) CudaShim::AwaitCollectives(d, 2);
    CudaShim::SetAsyncError(device, ncclSystemError);
    const std::vector<absl::Status> statuses = harness.Finish();
    EXPECT_THAT(statuses, Each(harness.failure()));
    EXPECT_EQ(harness.failure().message(),
              absl::StrCat(
                  "rank ", device, " on cuda:", device,
                  ": what goes on in NCCL: system error of the shim (what the shim says of it)"));
    ExpectNothingLeft();
  }
}

TEST(NcclFailureTest, AbortFreesThoseWhoWaitNowAndLater) {
  CudaShim::Reset(NcclHarness::Devices(4));
  NcclHarness harness(4);
  const std::vector<absl::Status> statuses = harness.Run([](NcclCommunicator& c, Stream& stream) {
    if (c.rank() == 2) {
      c.Abort();
      return absl::InternalError("the rank's own error");
    }
    return Collectives(c, stream);
  });
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(statuses[rank], rank == 2 ? absl::InternalError("the rank's own error")
                                        : absl::AbortedError("a rank of this replica failed"));
  }
  ExpectNothingLeft();
}

TEST(NcclFailureTest, ACaptureEndsWhenNcclHasEnqueuedToIt) {
  CudaShim::Reset(NcclHarness::Devices(2, /*in_progress_polls=*/1000));
  NcclHarness harness(2);
  const std::vector<absl::Status> statuses = harness.Run([](NcclCommunicator& c, Stream& stream) {
    Array<float> x(1, 100);
    std::thread aborter([&] {
      // The third call is captured, and takes its time.
      while (CudaShim::NumCalls(0, "ncclAllReduce") < 3) std::this_thread::yield();
      if (c.rank() == 1) c.Abort();
    });
    GraphCache graphs(stream.device());
    absl::Status status;
    for (int time = 0; time < 2 && status.ok(); ++time) {
      status = SumByGraph(graphs, c, x, stream);
    }
    status.Update(stream.Synchronize());
    aborter.join();
    while (c.status().ok()) std::this_thread::yield();
    status.Update(c.status());
    return status;
  });
  EXPECT_THAT(statuses, Each(absl::AbortedError("a rank of this replica failed")));
  ExpectNothingLeft();
}

TEST(NcclFailureTest, ARankThatNeverComesIsToldByTheGroup) {
  CudaShim::Reset({.devices = {{}, {.free_bytes = 100}}});  // no room for scratch
  NcclHarness harness(2);
  const std::vector<absl::Status> statuses = harness.Run(Collectives);
  EXPECT_THAT(statuses, Each(harness.failure()));
  EXPECT_EQ(harness.failure().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(harness.failure().message()),
              HasSubstr("cuda:1: cudaMalloc of 4096 bytes"));
  ExpectNothingLeft();
}

// Another rank may be stuck, too, where time passes before it is at rest.
void LetTimePassUntilStuck(NcclHarness& harness, const std::string& rank) {
  const std::string end = absl::StrCat("; ", rank, " does not come to rest after it");
  const auto hung = AllOf(HasSubstr("hung: a collective has not ended for 1m"), HasSubstr(end));
  while (!::testing::Value(harness.stuck(), Contains(hung))) {
    harness.clock.Advance(absl::Milliseconds(50));
    std::this_thread::yield();
  }
}

TEST(NcclStuckTest, AnAbortThatHangsEndsTheProcess) {
  CudaShim::Reset(NcclHarness::Devices(2));
  CudaShim::HangCollective(0, 2);
  CudaShim::HangAbort(0);
  NcclHarness harness(2);
  harness.Start(Collectives);
  for (int d = 0; d < 2; ++d) CudaShim::AwaitCollectives(d, 2);
  LetTimePassUntilStuck(harness, "rank 0 on cuda:0");
  CudaShim::ReleaseHangs();
  for (const absl::Status& status : harness.Finish()) EXPECT_EQ(status, harness.failure());
  while (!CudaShim::Alive().empty()) std::this_thread::yield();
}

TEST(NcclStuckTest, AKernelThatHangsEndsTheProcess) {
  CudaShim::Reset(NcclHarness::Devices(2));
  NcclHarness harness(2);
  harness.Start([](NcclCommunicator& c, Stream& stream) {
    if (c.rank() == 1) CudaShim::HangStreams(1);
    return Collectives(c, stream);
  });
  for (int d = 0; d < 2; ++d) CudaShim::AwaitCollectives(d, 2);
  LetTimePassUntilStuck(harness, "rank 1 on cuda:1");
  CudaShim::ReleaseHangs();
  for (const absl::Status& status : harness.Finish()) EXPECT_EQ(status, harness.failure());
  // Time may have run out for an abort.
  while (!CudaShim::Alive().empty()) std::this_thread::yield();
  ExpectNothingLeft();
}

}  // namespace
}  // namespace continuo::kernels::cuda
