// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/engine.h"

#include <gmock/gmock.h>

#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "tests/testing/fake_executor.h"
#include "tests/testing/manual_clock.h"

namespace continuo {
namespace {

using ::testing::ElementsAre;
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

// Collects the events of one request.
struct Collector {
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

}  // namespace
}  // namespace continuo
