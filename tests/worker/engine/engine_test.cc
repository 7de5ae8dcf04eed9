// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/engine.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "tests/testing/fake_executor.h"
#include "tests/testing/forwarding_executor.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/scripted_constraint.h"

namespace continuo::engine {
namespace {

using ::testing::HasSubstr;

constexpr int kVocab = 50;

EngineOptions SmallOptions() {
  EngineOptions options;
  options.num_blocks = 64;
  options.block_size = 4;
  options.vocab_size = kVocab;
  options.max_batch_tokens = 32;
  options.max_running = 8;
  return options;
}

Request SmallRequest(RequestId id) {
  Request request;
  request.id = id;
  request.prompt = {1, 2, 3, static_cast<int32_t>(id % kVocab)};
  request.max_tokens = 6;
  request.sampling.seed = id;
  return request;
}

Request StateRequest(RequestId id) {
  Request request = SmallRequest(id);
  request.max_tokens = 0;
  request.reads_state = true;
  return request;
}

// Collects the events of one request.
struct Collector {
  std::vector<float> state;
  std::vector<std::vector<int32_t>> answers;
  absl::Status ended;
  absl::Notification done;

  explicit Collector(int num_sequences = 1) : answers(num_sequences) {}
  RequestSink Sink() {
    return [this](RequestEvent event) {
      for (SequenceDelta& delta : event.deltas) {
        auto& answer = answers[delta.index];
        answer.insert(answer.end(), delta.tokens.begin(), delta.tokens.end());
      }
      if (!event.state.empty()) state = std::move(event.state);
      if (!event.ended) return;
      ended = *event.ended;
      done.Notify();
    };
  }
};

// An engine on its own thread.
class EngineTest : public ::testing::Test {
 protected:
  void Start(const EngineOptions& options) {
    FakeExecutorOptions fake;
    fake.num_blocks = options.num_blocks;
    fake.block_size = options.block_size;
    fake.vocab_size = options.vocab_size;
    executor_ = std::make_unique<FakeExecutor>(fake);
    engine_ = std::make_unique<Engine>(options, executor_.get(), &clock_, &metrics_);
    thread_ = std::thread([this] { run_status_ = engine_->Run(); });
  }
  void TearDown() override {
    if (engine_ != nullptr) engine_->Stop();
    if (thread_.joinable()) thread_.join();
  }

  ManualClock clock_;
  EngineMetrics metrics_;
  std::unique_ptr<FakeExecutor> executor_;
  std::unique_ptr<Engine> engine_;
  std::thread thread_;
  absl::Status run_status_;
};

TEST_F(EngineTest, SubmittedPromptsAreAnswered) {
  Start(SmallOptions());
  Collector a, b;
  ASSERT_TRUE(engine_->Submit(SmallRequest(1), a.Sink()).ok());
  ASSERT_TRUE(engine_->Submit(SmallRequest(2), b.Sink()).ok());
  a.done.WaitForNotification();
  b.done.WaitForNotification();
  EXPECT_TRUE(a.ended.ok()) << a.ended;
  EXPECT_EQ(a.answers[0], FakeAnswer(SmallRequest(1), 0, kVocab));
  EXPECT_EQ(b.answers[0], FakeAnswer(SmallRequest(2), 0, kVocab));
}

TEST_F(EngineTest, StatesBehindPromptsAreRead) {
  EngineOptions options = SmallOptions();
  options.max_prefill_chunk = 3;
  Start(options);
  std::vector<std::unique_ptr<Collector>> collectors;
  std::vector<std::pair<Request, RequestSink>> requests;
  for (RequestId id = 1; id <= 20; ++id) {
    Request request = StateRequest(id);
    for (RequestId i = 0; i < id; ++i) request.prompt.push_back(static_cast<int32_t>(i));
    collectors.push_back(std::make_unique<Collector>());
    requests.emplace_back(std::move(request), collectors.back()->Sink());
  }
  std::vector<Request> sent;
  for (const auto& [request, sink] : requests) sent.push_back(request);
  ASSERT_TRUE(engine_->SubmitAll(std::move(requests)).ok());
  for (size_t i = 0; i < sent.size(); ++i) {
    collectors[i]->done.WaitForNotification();
    EXPECT_TRUE(collectors[i]->ended.ok()) << collectors[i]->ended;
    EXPECT_EQ(collectors[i]->state, FakeState(sent[i])) << i;
    EXPECT_TRUE(collectors[i]->answers[0].empty());
  }
}

TEST(EngineSubmitTest, AllOfSeveralRequestsWaitOrNone) {
  EngineOptions options = SmallOptions();
  options.max_queued_tokens = 10;
  FakeExecutor executor({});
  ManualClock clock;
  EngineMetrics metrics;
  Engine engine(options, &executor, &clock, &metrics);
  const auto several = [](RequestId first, int n) {
    std::vector<std::pair<Request, RequestSink>> requests;
    for (int i = 0; i < n; ++i) {
      requests.emplace_back(StateRequest(first + static_cast<RequestId>(i)),
                            [](const RequestEvent&) {});
    }
    return requests;
  };
  EXPECT_TRUE(engine.SubmitAll(several(1, 2)).ok()) << "8 tokens";
  EXPECT_TRUE(absl::IsResourceExhausted(engine.SubmitAll(several(10, 2))));
  EXPECT_EQ(engine.Load().waiting, 2);
  EXPECT_EQ(engine.Load().pending_prompt_tokens, 8);
  EXPECT_TRUE(absl::IsInvalidArgument(engine.SubmitAll(several(10, 3)))) << "12 never wait";
  // One that can never run refuses all.
  auto bad = several(20, 2);
  bad[1].first.prompt.assign(1000, 1);
  EXPECT_TRUE(absl::IsInvalidArgument(engine.SubmitAll(std::move(bad))));
  EXPECT_EQ(engine.Load().waiting, 2);
}

TEST(EngineSubmitTest, ARequestThatReadsAStateGeneratesNothing) {
  FakeExecutor executor({});
  ManualClock clock;
  EngineMetrics metrics;
  Engine engine(SmallOptions(), &executor, &clock, &metrics);
  for (const auto change : std::initializer_list<void (*)(Request&)>{
           [](Request& r) { r.max_tokens = 1; }, [](Request& r) { r.num_sequences = 2; },
           [](Request& r) { r.num_prompt_logprobs = 0; }}) {
    Request request = StateRequest(1);
    change(request);
    EXPECT_TRUE(absl::IsInvalidArgument(engine.Submit(request, [](const RequestEvent&) {})));
  }
}

TEST(EngineLoadTest, TellsStatesBesideBlocks) {
  EngineOptions options = SmallOptions();
  options.num_state_slots = 12;
  FakeExecutorOptions fake;
  fake.num_blocks = options.num_blocks;
  fake.block_size = options.block_size;
  fake.num_state_slots = options.num_state_slots;
  fake.vocab_size = kVocab;
  FakeExecutor executor(fake);
  ManualClock clock;
  EngineMetrics metrics;
  Engine engine(options, &executor, &clock, &metrics);
  EXPECT_EQ(engine.Load().total_states, 12);
  std::vector<int> used;
  engine.SetLoadListener([&](const EngineLoad& load) { used.push_back(load.used_states); });
  ASSERT_TRUE(engine
                  .Submit(SmallRequest(1),
                          [&](RequestEvent event) {
                            if (event.ended) engine.Stop();
                          })
                  .ok());
  EXPECT_TRUE(engine.Run().ok());
  ASSERT_FALSE(used.empty());
  EXPECT_EQ(std::ranges::max(used), 1) << "between steps";
  EXPECT_EQ(used.back(), 0);
  EXPECT_GT(engine.Load().cached_states, 0) << "the state behind a whole block is kept";
}

TEST_F(EngineTest, ManyThreadsSubmitCancelAndFinishAtOnce) {
  Start(SmallOptions());
  constexpr int kThreads = 6, kEach = 60;
  std::vector<std::unique_ptr<Collector>> collectors(kThreads * kEach);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const int n = t * kEach + i;
        collectors[n] = std::make_unique<Collector>(2);
        Request request = SmallRequest(n + 1);
        request.num_sequences = 2;
        request.cache_bypass = i % 5 == 0;
        ASSERT_TRUE(engine_->Submit(request, collectors[n]->Sink()).ok());
        if (i % 3 == 0) engine_->Cancel(n + 1, absl::CancelledError("gone"));
        if (i % 3 == 1) engine_->FinishSequence(n + 1, 1);
        if (i % 7 == 0) {
          engine_->Load();
          engine_->Hung();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int n = 0; n < kThreads * kEach; ++n) {
    collectors[n]->done.WaitForNotification();
    Request request = SmallRequest(n + 1);
    request.num_sequences = 2;
    const int kind = n % kEach % 3;
    if (kind != 0 || collectors[n]->ended.ok()) {
      EXPECT_TRUE(collectors[n]->ended.ok()) << collectors[n]->ended;
      EXPECT_EQ(collectors[n]->answers[0], FakeAnswer(request, 0, kVocab));
    }
    if (kind == 2) {
      EXPECT_EQ(collectors[n]->answers[1], FakeAnswer(request, 1, kVocab));
    }
  }
  engine_->Stop();
  thread_.join();
  EXPECT_EQ(metrics_.kv_blocks_used, 0);
  EXPECT_EQ(metrics_.kv_blocks_unaccounted, 0);
  EXPECT_EQ(engine_->Load().running + engine_->Load().waiting, 0);
}

TEST_F(EngineTest, ASinkMayCallTheEngine) {
  Start(SmallOptions());
  Collector a, b;
  RequestSink forward = a.Sink();
  Request request = SmallRequest(1);
  request.max_tokens = 200;
  ASSERT_TRUE(engine_
                  ->Submit(request,
                           [&, forward = std::move(forward)](RequestEvent event) mutable {
                             const bool has_token = !event.deltas.empty();
                             forward(std::move(event));
                             if (!has_token) return;
                             engine_->FinishSequence(1, 0);
                             engine_->Load();
                             engine_->Submit(SmallRequest(2), b.Sink()).IgnoreError();
                           })
                  .ok());
  a.done.WaitForNotification();
  b.done.WaitForNotification();
  EXPECT_TRUE(a.ended.ok());
  EXPECT_LT(a.answers[0].size(), 5u);
}

// Requests that are submitted before Run wait in the inbox, so these tests need no timing.
class UnstartedEngineTest : public ::testing::Test {
 protected:
  static constexpr int kBlocks = 64;

  explicit UnstartedEngineTest(EngineOptions options = SmallOptions())
      : executor_({.num_blocks = kBlocks, .block_size = 4, .vocab_size = kVocab, .clock = &clock_}),
        engine_(options, &executor_, &clock_, &metrics_) {}

  ManualClock clock_;
  EngineMetrics metrics_;
  FakeExecutor executor_;
  Engine engine_;
};

EngineOptions ShortQueue() {
  EngineOptions options = SmallOptions();
  options.max_queued_tokens = 10;
  return options;
}

class ShortQueueTest : public UnstartedEngineTest {
 protected:
  ShortQueueTest() : UnstartedEngineTest(ShortQueue()) {}
};

TEST_F(ShortQueueTest, MoreWaitingTokensThanAllowedAreRejectedExceptForMigrations) {
  const auto ignore = [](RequestEvent) {};
  EXPECT_TRUE(engine_.Submit(SmallRequest(1), ignore).ok());  // 4 tokens each
  EXPECT_TRUE(engine_.Submit(SmallRequest(2), ignore).ok());
  const absl::Status rejected = engine_.Submit(SmallRequest(3), ignore);
  EXPECT_EQ(rejected.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(rejected.message()), HasSubstr("10"));
  Request migration = SmallRequest(4);
  migration.is_migration = true;
  migration.received = {{{1, 2, 3}}};
  EXPECT_TRUE(engine_.Submit(migration, ignore).ok());
  EXPECT_EQ(engine_.Load().waiting, 3);
  EXPECT_EQ(engine_.Load().pending_prompt_tokens, 4 + 4 + 7);
}

TEST_F(ShortQueueTest, EverySequenceTakesRoomHoweverShortThePrompt) {
  Request many = SmallRequest(1);
  many.num_sequences = 8;
  EXPECT_TRUE(engine_.Submit(many, [](RequestEvent) {}).ok());
  EXPECT_EQ(engine_.Load().pending_prompt_tokens, 4);
  EXPECT_EQ(engine_.Submit(SmallRequest(2), [](RequestEvent) {}).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(ShortQueueTest, ATenantThatFillsTheQueueDoesNotLockOthersOut) {
  Request first = SmallRequest(1), more = SmallRequest(2), other = SmallRequest(3);
  first.tenant = more.tenant = "flood";
  first.prompt.assign(10, 1);
  other.tenant = "light";
  EXPECT_TRUE(engine_.Submit(first, [](RequestEvent) {}).ok());
  EXPECT_EQ(engine_.Submit(more, [](RequestEvent) {}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(engine_.Submit(other, [](RequestEvent) {}).ok());
}

TEST_F(ShortQueueTest, OneRequestMayAlwaysWaitHoweverLong) {
  Request request = SmallRequest(1);
  request.prompt.assign(100, 1);
  EXPECT_TRUE(engine_.Submit(request, [](RequestEvent) {}).ok());
}

TEST_F(UnstartedEngineTest, WhatCanNeverFitIsRejectedWithBothNumbers) {
  Request request = SmallRequest(1);
  request.prompt.assign(200, 1);
  request.max_tokens = 58;  // the last one is never computed: 257 of 256
  const absl::Status status = engine_.Submit(request, [](RequestEvent) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("257"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("256"));
  request.max_tokens = 57;
  EXPECT_TRUE(engine_.Submit(request, [](RequestEvent) {}).ok());
}

TEST_F(UnstartedEngineTest, RequestsThatMakeNoSenseAreRejected) {
  const auto ignore = [](RequestEvent) {};
  Request empty = SmallRequest(1), none = SmallRequest(2), two = SmallRequest(3);
  empty.prompt.clear();
  none.num_sequences = 0;
  two.num_sequences = 2;
  two.received.resize(1);
  Request short_of_one = SmallRequest(4), null = SmallRequest(5);
  short_of_one.num_sequences = 2;
  short_of_one.constraints = {std::make_shared<ScriptedConstraint>(Alternating())};
  null.constraints = {nullptr};
  for (const Request& request : {empty, none, two, short_of_one, null}) {
    EXPECT_EQ(engine_.Submit(request, ignore).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(UnstartedEngineTest, APassedDeadlineIsRejected) {
  Request request = SmallRequest(1);
  request.deadline = clock_.Now();
  EXPECT_EQ(engine_.Submit(request, [](RequestEvent) {}).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(UnstartedEngineTest, ADrainingEngineRejectsNewWork) {
  engine_.BeginDrain();
  EXPECT_EQ(engine_.Submit(SmallRequest(1), [](RequestEvent) {}).code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(UnstartedEngineTest, AStoppedEngineEndsWhatItHasAndRejectsMore) {
  Collector a;
  ASSERT_TRUE(engine_.Submit(SmallRequest(1), a.Sink()).ok());
  engine_.Stop();
  EXPECT_TRUE(engine_.Run().ok());
  EXPECT_EQ(a.ended.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(engine_.Submit(SmallRequest(2), [](RequestEvent) {}).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(engine_.Load().waiting, 0);
}

TEST_F(UnstartedEngineTest, AnExecutorErrorEndsEverythingUnavailableAndTheRun) {
  Collector a, b;
  executor_.FailWith(absl::InternalError("the device is lost"));
  ASSERT_TRUE(engine_.Submit(SmallRequest(1), a.Sink()).ok());
  ASSERT_TRUE(engine_.Submit(SmallRequest(2), b.Sink()).ok());
  EXPECT_EQ(engine_.Run().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(a.ended.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(b.ended.code(), absl::StatusCode::kUnavailable);
}

TEST_F(UnstartedEngineTest, EndAllEndsEachAfterTheEventsItHas) {
  std::vector<int> tokens;
  absl::Status ended;
  Request request = SmallRequest(1);
  request.max_tokens = 100;
  ASSERT_TRUE(engine_
                  .Submit(request,
                          [&](RequestEvent event) {
                            tokens.push_back(static_cast<int>(event.deltas.size()));
                            if (tokens.size() == 4) engine_.EndAll(absl::AbortedError("drained"));
                            if (!event.ended) return;
                            ended = *event.ended;
                            engine_.Stop();
                          })
                  .ok());
  EXPECT_TRUE(engine_.Run().ok());
  EXPECT_EQ(ended.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(tokens.back(), 0);
  EXPECT_EQ(metrics_.kv_blocks_used, 0);
}

TEST_F(UnstartedEngineTest, WatchersSeeStepsAndListenersTheLoad) {
  std::vector<EngineLoad> loads;
  const StepLog::Watch watch(&engine_.step_log());
  engine_.SetLoadListener([&](const EngineLoad& load) { loads.push_back(load); });
  Request request = SmallRequest(1);
  request.label = "a";
  ASSERT_TRUE(engine_
                  .Submit(request,
                          [&](RequestEvent event) {
                            if (event.ended) engine_.Stop();
                          })
                  .ok());
  EXPECT_TRUE(engine_.Run().ok());
  const auto steps = watch.Read().records;
  ASSERT_EQ(steps.size(), 6u);
  EXPECT_EQ(steps[0]->sequences[0].new_tokens, 4);
  EXPECT_EQ(steps[1]->sequences[0].cached_tokens, 4);
  EXPECT_EQ(steps[5]->sequences[0].generated_tokens, 6);
  EXPECT_EQ(steps[5]->sequences[0].finish, FinishReason::kLength);
  EXPECT_EQ(steps[0]->sequences[0].label, "a");
  ASSERT_GE(loads.size(), 2u);
  EXPECT_EQ(loads.front().running, 1);
  EXPECT_EQ(loads.back().running, 0);
  EXPECT_GT(loads.front().decode_tokens_per_second, 0);
  EXPECT_EQ(engine_.Load().total_blocks, kBlocks);
  EXPECT_EQ(engine_.Load().steps, 6u);
}

// An executor that a test holds in the middle of a step.
class HeldExecutor : public ForwardingExecutor {
 public:
  using ForwardingExecutor::ForwardingExecutor;

  absl::Status Start(const model::StepPlan& plan, model::MaskFiller fill_mask) override {
    {
      absl::MutexLock lock(&mutex_);
      ++entered_;
      mutex_.Await(absl::Condition(
          +[](HeldExecutor* self) { return self->entered_ <= self->allowed_; }, this));
    }
    return ForwardingExecutor::Start(plan, fill_mask);
  }
  void Allow(int steps) {
    absl::MutexLock lock(&mutex_);
    allowed_ = steps;
  }
  void WaitUntilEntered(int step) {
    absl::MutexLock lock(&mutex_);
    waited_for_ = step;
    mutex_.Await(absl::Condition(
        +[](HeldExecutor* self) { return self->entered_ >= self->waited_for_; }, this));
  }

 private:
  absl::Mutex mutex_;
  int entered_ = 0, allowed_ = 0, waited_for_ = 0;
};

TEST(EngineHealthTest, AStepThatDoesNotEndIsHungExceptTheFirst) {
  ManualClock clock;
  EngineMetrics metrics;
  EngineOptions options = SmallOptions();
  options.calibrate = false;
  FakeExecutor fake({.num_blocks = 64, .block_size = 4, .vocab_size = kVocab, .clock = &clock});
  HeldExecutor executor(&fake);
  Engine engine(options, &executor, &clock, &metrics);
  std::thread thread([&] { EXPECT_TRUE(engine.Run().ok()); });
  Collector a;
  ASSERT_TRUE(engine.Submit(SmallRequest(1), a.Sink()).ok());
  executor.WaitUntilEntered(1);
  clock.Advance(absl::Hours(1));
  EXPECT_FALSE(engine.Hung());  // the first step after loading
  executor.Allow(1);
  executor.WaitUntilEntered(2);
  EXPECT_FALSE(engine.Hung());
  // The first step took an hour, so the engine is hung after ten hours.
  clock.Advance(absl::Hours(9));
  EXPECT_FALSE(engine.Hung());
  clock.Advance(absl::Hours(2));
  EXPECT_TRUE(engine.Hung());
  executor.Allow(100);
  a.done.WaitForNotification();
  engine.Stop();
  thread.join();
  EXPECT_FALSE(engine.Hung());
}

TEST(EngineHealthTest, AnIdleEngineIsNeverHung) {
  ManualClock clock;
  EngineMetrics metrics;
  FakeExecutor fake({.num_blocks = 64, .block_size = 4, .vocab_size = kVocab, .clock = &clock});
  Engine engine(SmallOptions(), &fake, &clock, &metrics);
  absl::Notification idle;
  engine.SetLoadListener([&idle](const EngineLoad& load) {
    if (load.running + load.waiting == 0) idle.Notify();
  });
  std::thread thread([&] { EXPECT_TRUE(engine.Run().ok()); });
  Collector a;
  ASSERT_TRUE(engine.Submit(SmallRequest(1), a.Sink()).ok());
  a.done.WaitForNotification();
  idle.WaitForNotification();
  clock.Advance(absl::Hours(1));
  EXPECT_FALSE(engine.Hung());
  engine.Stop();
  thread.join();
}

}  // namespace
}  // namespace continuo::engine
