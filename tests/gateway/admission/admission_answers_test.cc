// SPDX-License-Identifier: Apache-2.0
// Tests of admission in front of a worker that generates in a full batch, on a virtual clock.
// Deadlines are those of whole answers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "services/gateway/admission/admission.h"
#include "tests/testing/manual_clock.h"

namespace continuo::gateway {
namespace {

constexpr absl::Duration kTick =
    absl::Milliseconds(20);  // a step: one token of each running answer
constexpr size_t kBatch = 16;

class BatchingWorker {
 public:
  bool Send(int64_t answer_tokens, absl::Duration deadline) {
    absl::StatusOr<Admission::Ticket> ticket = admission.Admit({.bytes = 1,
                                                                .tokens = 50,
                                                                .tenant = "a",
                                                                .model = "m",
                                                                .max_tokens = answer_tokens,
                                                                .time_left = deadline});
    if (!ticket.ok()) return false;
    ticket->SetSent(true);
    auto request = std::make_unique<Request>();
    request->ticket = *std::move(ticket);
    request->tokens = answer_tokens;
    request->end = clock.Elapsed() + deadline;
    waiting_.push_back(std::move(request));
    return true;
  }
  void Step() {
    clock.Advance(kTick);
    const auto is_late = [&](const auto& request) { return request->end <= clock.Elapsed(); };
    std::erase_if(waiting_, is_late);
    wasted += std::erase_if(running_, is_late);
    while (running_.size() < kBatch && !waiting_.empty()) {
      waiting_.front()->ticket.MarkRead();
      running_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    for (auto& request : running_) {
      if (request->done++ == 0) request->ticket.MarkStarted();
      if (request->done < request->tokens) continue;
      request->ticket.MarkAnswered(kTick, kTick * (request->tokens - 1), request->tokens);
      good_tokens += request->tokens;
    }
    std::erase_if(running_, [](const auto& request) { return request->done >= request->tokens; });
  }

  ManualClock clock;
  Admission admission{AdmissionLimits{}, &clock};
  int64_t good_tokens = 0;
  size_t wasted = 0;

 private:
  struct Request {
    Admission::Ticket ticket;
    int64_t tokens = 0, done = 0;
    absl::Duration end;
  };
  std::deque<std::unique_ptr<Request>> waiting_;
  std::vector<std::unique_ptr<Request>> running_;
};

// Offers ten times as many answers, of 64 tokens on average, as a batch of 16 can generate, for a
// minute after a second of it; each has four seconds. Returns the useful part of the tokens that
// could be generated.
template <typename Length>
double Goodput(Length length) {
  BatchingWorker worker;
  std::mt19937_64 random(1);
  const auto run = [&](absl::Duration time) {
    double to_send = 0;
    for (absl::Duration t; t < time; t += kTick) {
      for (to_send += 10.0 * kBatch / 64; to_send > 1; to_send -= 1) {
        worker.Send(length(random), absl::Seconds(4));
      }
      worker.Step();
    }
  };
  // An ordinary load teaches admission the answer times.
  for (int i = 0; i < 500; ++i) {
    if (i % 3 == 0) worker.Send(length(random), absl::Seconds(4));
    worker.Step();
  }
  run(absl::Seconds(1));
  worker.good_tokens = 0;
  run(absl::Seconds(60));
  return static_cast<double>(worker.good_tokens) / (absl::Seconds(60) / kTick * kBatch);
}

TEST(AdmissionAnswersTest, TenTimesTheLoadWastesNothingOnAnswersThatWouldEndTooLate) {
  EXPECT_GE(Goodput([](auto&) { return 64; }), 0.95);
}

TEST(AdmissionAnswersTest, LittleWhereTheirLengthsDiffer) {
  EXPECT_GE(
      Goodput([](auto& random) { return std::uniform_int_distribution<int64_t>(16, 112)(random); }),
      0.9);
}

TEST(AdmissionAnswersTest, WhatNeedNotWaitIsTakenHoweverLongOthersTook) {
  BatchingWorker worker;
  EXPECT_TRUE(worker.Send(500, absl::Seconds(60)));
  for (int i = 0; i < 600; ++i) worker.Step();
  EXPECT_EQ(worker.good_tokens, 500);
  for (size_t i = 0; i < kBatch; ++i) EXPECT_TRUE(worker.Send(10, absl::Seconds(1))) << i;
  for (int i = 0; i < 40; ++i) worker.Step();
  EXPECT_EQ(worker.wasted, 0);
}

// A hundred prompts a second are begun, of a tenant with long answers and no deadlines.
class AdmissionTenantsTest : public ::testing::Test {
 protected:
  absl::StatusOr<Admission::Ticket> Send(const std::string& tenant, absl::Duration deadline) {
    absl::StatusOr<Admission::Ticket> ticket = admission_.Admit(
        {.bytes = 1, .tokens = 50, .tenant = tenant, .model = "m", .time_left = deadline});
    if (ticket.ok()) ticket->SetSent(true);
    return ticket;
  }
  // This many wait at any time.
  void Flood(size_t num_waiting) {
    for (int i = 0; i < 200; ++i) {
      while (waiting_.size() < num_waiting) {
        waiting_.push_back(*Send("flood", absl::InfiniteDuration()));
      }
      clock_.Advance(absl::Milliseconds(10));
      waiting_.front().MarkRead();
      waiting_.front().MarkStarted();
      waiting_.front().MarkAnswered(absl::Milliseconds(10), absl::Seconds(100), 1000);
      waiting_.pop_front();
    }
  }

  ManualClock clock_;
  Admission admission_{AdmissionLimits{}, &clock_};
  std::deque<Admission::Ticket> waiting_;
};

TEST_F(AdmissionTenantsTest, ATenantIsNotTurnedAwayForHowLongAnotherTook) {
  Flood(/*num_waiting=*/300);
  // Tenants take turns, so it is next but one.
  EXPECT_EQ(Send("light", absl::Milliseconds(50)).status(), absl::OkStatus());
  EXPECT_FALSE(Send("flood", absl::Seconds(20)).ok());
  EXPECT_EQ(Send("flood", absl::Minutes(3)).status(), absl::OkStatus());
}

TEST_F(AdmissionTenantsTest, WhatHardlyWaitsIsTakenHoweverLongItsTenantsAnswersTake) {
  Flood(/*num_waiting=*/5);
  EXPECT_EQ(Send("flood", absl::Seconds(20)).status(), absl::OkStatus());
}

}  // namespace
}  // namespace continuo::gateway
