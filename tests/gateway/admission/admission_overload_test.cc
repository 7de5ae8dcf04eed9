// SPDX-License-Identifier: Apache-2.0
// Tests of admission in front of overloaded workers, on a virtual clock.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "services/gateway/admission/admission.h"
#include "tests/testing/manual_clock.h"

namespace continuo::gateway {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(1);
constexpr double kTokensPerTick = 10;  // prompt tokens that one worker computes

// Workers that compute one prompt after the other, tenants in turn, and drop requests past their
// deadline.
class Fleet {
 public:
  explicit Fleet(int num_workers) : workers_(num_workers) {}

  // Offers a request with `deadline` to go. True if it is admitted.
  bool Send(const std::string& tenant, int64_t tokens, absl::Duration deadline) {
    absl::StatusOr<Admission::Ticket> ticket = admission.Admit(
        {.bytes = 1, .tokens = tokens, .tenant = tenant, .model = "m", .time_left = deadline});
    if (!ticket.ok()) return false;
    auto request = std::make_unique<Request>();
    request->ticket = *std::move(ticket);
    request->tokens = static_cast<double>(tokens);
    request->end = clock.Elapsed() + deadline;
    request->tenant = tenant;
    if (are_there) {
      Place(std::move(request));
    } else {
      held_.push_back(std::move(request));
    }
    return true;
  }
  void Appear() {
    are_there = true;
    for (auto& request : held_) Place(std::move(request));
    held_.clear();
  }
  void Step() {
    clock.Advance(kTick);
    Drop(held_);
    if (stalled) return;
    for (Worker& worker : workers_) {
      Drop(worker.queue);
      if (worker.reading != nullptr && worker.reading->end <= clock.Elapsed()) {
        worker.reading = nullptr;
        ++expired;
      }
      double left = kTokensPerTick;
      while (left > 0) {
        if (worker.reading == nullptr && !Next(worker)) break;
        const double now = std::min(left, worker.reading->tokens - worker.reading->read);
        worker.reading->read += now;
        left -= now;
        if (worker.reading->read < worker.reading->tokens) break;
        worker.reading->ticket.MarkStarted();
        begun_tokens += worker.reading->tokens;
        ++begun;
        worker.reading = nullptr;
      }
    }
  }
  double capacity(absl::Duration time) const {
    return static_cast<double>(workers_.size()) * kTokensPerTick * (time / kTick);
  }

  ManualClock clock;
  Admission admission{AdmissionLimits{}, &clock};
  bool are_there = true;
  bool stalled = false;
  int begun = 0, expired = 0;
  double begun_tokens = 0;

 private:
  struct Request {
    Admission::Ticket ticket;
    double tokens = 0, read = 0;
    absl::Duration end;
    std::string tenant;
  };
  using Queue = std::deque<std::unique_ptr<Request>>;
  struct Worker {
    Queue queue;
    std::unique_ptr<Request> reading;
    std::string last_tenant;
  };

  void Place(std::unique_ptr<Request> request) {
    request->ticket.SetSent(true);
    std::ranges::min_element(workers_, {}, [](const Worker& worker) {
      double tokens = worker.reading == nullptr ? 0 : worker.reading->tokens;
      for (const auto& waiting : worker.queue) tokens += waiting->tokens;
      return tokens;
    })->queue.push_back(std::move(request));
  }
  void Drop(Queue& queue) {
    expired += static_cast<int>(
        std::erase_if(queue, [&](const auto& request) { return request->end <= clock.Elapsed(); }));
  }
  bool Next(Worker& worker) {
    if (worker.queue.empty()) return false;
    auto next = std::ranges::find_if(
        worker.queue, [&](const auto& request) { return request->tenant != worker.last_tenant; });
    if (next == worker.queue.end()) next = worker.queue.begin();
    worker.reading = std::move(*next);
    worker.queue.erase(next);
    worker.last_tenant = worker.reading->tenant;
    worker.reading->ticket.MarkRead();
    return true;
  }

  Queue held_;
  std::vector<Worker> workers_;
};

class AdmissionOverloadTest : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Workers, AdmissionOverloadTest, ::testing::Values(1, 8));

TEST_P(AdmissionOverloadTest, TenTimesTheLoadWithOneDeadlineIsRejectedAtOnceAndNothingIsWasted) {
  Fleet fleet(GetParam());
  std::mt19937_64 random(1);
  std::uniform_int_distribution<int64_t> tokens(10, 400);
  const absl::Duration time = absl::Seconds(60);
  double to_send = 0;
  int rejected = 0;
  for (absl::Duration t; t < time; t += kTick) {
    for (to_send += 10 * kTokensPerTick * GetParam(); to_send > 0;) {
      const int64_t prompt = tokens(random);
      to_send -= static_cast<double>(prompt);
      rejected += !fleet.Send("a", prompt, absl::Seconds(2));
    }
    fleet.Step();
    // Half a second of measurements is enough: from then on nobody waits in vain.
    if (t == absl::Milliseconds(500)) rejected = fleet.expired = 0;
  }
  EXPECT_GE(fleet.begun_tokens, 0.95 * fleet.capacity(time));
  EXPECT_LT(fleet.expired, fleet.begun / 10);
  EXPECT_GT(rejected, 7 * fleet.begun);
}

TEST_P(AdmissionOverloadTest, AnIdleFleetTakesABurstThatItCanServe) {
  Fleet fleet(GetParam());
  std::mt19937_64 random(2);
  // Less than a third of the capacity for long, and then a second's worth at once.
  for (int t = 0; t < 30000; ++t) {
    if (random() % 30 < static_cast<uint64_t>(GetParam())) {
      ASSERT_TRUE(fleet.Send("a", 100, absl::Seconds(2))) << t;
    }
    fleet.Step();
  }
  for (int i = 0; i < 100 * GetParam(); ++i) {
    EXPECT_TRUE(fleet.Send("a", 100, absl::Seconds(2))) << i;
  }
  for (int t = 0; t < 3000; ++t) fleet.Step();
  EXPECT_EQ(fleet.expired, 0);
}

TEST_P(AdmissionOverloadTest, WaitingForAWorkerToAppearTeachesNothing) {
  Fleet fleet(GetParam());
  fleet.are_there = false;
  for (int t = 0; t < 25000; ++t) {
    if (t % 100 == 0) {
      EXPECT_TRUE(fleet.Send("a", 100, absl::Seconds(60))) << t;
    }
    fleet.Step();
  }
  fleet.Appear();
  for (int t = 0; t < 10000; ++t) {
    if (t % 50 == 10) {
      EXPECT_TRUE(fleet.Send("a", 100, absl::Seconds(5))) << t;
      EXPECT_TRUE(fleet.Send("a", 100, absl::Seconds(5))) << t;
    }
    fleet.Step();
  }
  EXPECT_EQ(fleet.expired, 0);
}

TEST_P(AdmissionOverloadTest, OnesOwnLongPromptTeachesNothing) {
  Fleet fleet(GetParam());
  for (int i = 0; i < GetParam(); ++i) ASSERT_TRUE(fleet.Send("a", 250'000, absl::Minutes(1)));
  for (int t = 0; t < 25000; ++t) fleet.Step();
  EXPECT_EQ(fleet.begun, GetParam());
  for (int t = 0; t < 5000; ++t) {
    if (t % 50 == 0) {
      EXPECT_TRUE(fleet.Send("a", 100, absl::Seconds(5))) << t;
      EXPECT_TRUE(fleet.Send("a", 100, absl::Seconds(5))) << t;
    }
    fleet.Step();
  }
  EXPECT_EQ(fleet.expired, 0);
}

TEST_P(AdmissionOverloadTest, ALightTenantIsTakenBesideOneThatFloods) {
  Fleet fleet(GetParam());
  std::mt19937_64 random(3);
  int rejected = 0;
  for (int t = 0; t < 20000; ++t) {
    for (int i = 0; i < GetParam(); ++i) rejected += !fleet.Send("flood", 100, absl::Seconds(3));
    if (t % 500 == 250) {
      EXPECT_TRUE(fleet.Send("light", 100, absl::Seconds(1))) << t;
    }
    fleet.Step();
  }
  EXPECT_GT(rejected, 0);
}

TEST_P(AdmissionOverloadTest, AfterAStallTheRateIsSoonAsBefore) {
  Fleet fleet(GetParam());
  const int64_t tokens = 100;
  const auto run = [&](absl::Duration time, absl::Duration deadline) {
    int taken = 0;
    for (absl::Duration t; t < time; t += kTick) {
      for (int i = 0; i < GetParam(); ++i) taken += fleet.Send("a", tokens, deadline);
      fleet.Step();
    }
    return taken;
  };
  run(absl::Seconds(10), absl::Seconds(2));
  fleet.stalled = true;
  // Requests that come into the stall are rejected before long.
  run(absl::Seconds(5), absl::Seconds(2));
  EXPECT_EQ(run(absl::Seconds(5), absl::Seconds(2)), 0);
  fleet.stalled = false;
  run(absl::Seconds(10), absl::Seconds(2));
  const double before = fleet.begun_tokens;
  run(absl::Seconds(10), absl::Seconds(2));
  EXPECT_GE(fleet.begun_tokens - before, 0.95 * fleet.capacity(absl::Seconds(10)));
}

}  // namespace
}  // namespace continuo::gateway
