// SPDX-License-Identifier: Apache-2.0
// The engine on an executor whose device works by itself: what steps gave is handed out while the
// next one runs.
#include <gmock/gmock.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "services/worker/engine/engine.h"
#include "tests/testing/fake_executor.h"
#include "tests/testing/manual_clock.h"

namespace continuo {
namespace {

using ::testing::ElementsAre;

constexpr int kVocab = 50;

// Calls the filler while it "works", as WorksApart promises, and notes how many tokens the
// requests had been given before and after.
class ApartExecutor : public Executor {
 public:
  ApartExecutor(FakeExecutor* executor, const std::vector<int32_t>* given)
      : executor_(*executor), given_(*given) {}

  bool WorksApart() const override { return true; }
  absl::StatusOr<StepResult> Run(const StepPlan& plan, MaskFiller fill_mask) override {
    const size_t before = given_.size();
    auto result = executor_.Run(plan, fill_mask);
    fill_mask({});
    before_.push_back(before);
    after_.push_back(given_.size());
    return result;
  }
  // By step; after the engine has ended.
  const std::vector<size_t>& before() const { return before_; }
  const std::vector<size_t>& after() const { return after_; }

 private:
  FakeExecutor& executor_;
  const std::vector<int32_t>& given_;
  std::vector<size_t> before_, after_;
};

class ApartEngineTest : public ::testing::Test {
 protected:
  ApartEngineTest() {
    options_.num_blocks = 64;
    options_.block_size = 4;
    options_.vocab_size = kVocab;
    options_.calibrate = false;
  }
  static Request Asking(int max_tokens, int min_tokens) {
    Request request;
    request.id = 1;
    request.prompt = {1, 2, 3};
    request.max_tokens = max_tokens;
    request.min_tokens = min_tokens;
    if (min_tokens > 0) request.stop_ids = {4, 5, 6};
    return request;
  }
  // Runs one request, and returns how it ended.
  absl::Status Answer(const Request& request) {
    Engine engine(options_, &executor_, &clock_, &metrics_);
    absl::Notification done;
    absl::Status ended;
    EXPECT_TRUE(engine
                    .Submit(request,
                            [&](RequestEvent event) {
                              for (const SequenceDelta& delta : event.deltas) {
                                given_.insert(given_.end(), delta.tokens.begin(),
                                              delta.tokens.end());
                              }
                              if (!event.ended) return;
                              ended = *event.ended;
                              done.Notify();
                            })
                    .ok());
    std::thread thread([&] { (void)engine.Run(); });
    done.WaitForNotification();
    engine.Stop();
    thread.join();
    return ended;
  }

  EngineOptions options_;
  ManualClock clock_;
  EngineMetrics metrics_;
  std::vector<int32_t> given_;
  FakeExecutor fake_{{.num_blocks = 64, .block_size = 4, .vocab_size = kVocab}};
  ApartExecutor executor_{&fake_, &given_};
};

TEST_F(ApartEngineTest, TokensAreHandedOutDuringTheNextStepAndTheLastAtOnce) {
  const Request request = Asking(4, 0);
  EXPECT_TRUE(Answer(request).ok());
  EXPECT_EQ(given_, FakeAnswer(request, 0, kVocab));
  EXPECT_THAT(executor_.before(), ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(executor_.after(), ElementsAre(0, 1, 2, 3));
}

TEST_F(ApartEngineTest, MaskedStepsGiveTheSameTokens) {
  const Request request = Asking(6, 3);
  EXPECT_TRUE(Answer(request).ok());
  EXPECT_EQ(given_, FakeAnswer(request, 0, kVocab));
}

TEST_F(ApartEngineTest, AStepThatFailsLosesNothingThatCameBefore) {
  struct Failing : Executor {
    explicit Failing(FakeExecutor* executor) : fake(*executor) {}
    bool WorksApart() const override { return true; }
    absl::StatusOr<StepResult> Run(const StepPlan& plan, MaskFiller fill_mask) override {
      if (++step == 3) return absl::InternalError("before anything was enqueued");
      auto result = fake.Run(plan, fill_mask);
      fill_mask({});
      return result;
    }
    FakeExecutor& fake;
    int step = 0;
  } failing(&fake_);
  Engine engine(options_, &failing, &clock_, &metrics_);
  absl::Notification done;
  const Request request = Asking(6, 0);
  ASSERT_TRUE(engine
                  .Submit(request,
                          [&](RequestEvent event) {
                            for (const SequenceDelta& delta : event.deltas) {
                              given_.insert(given_.end(), delta.tokens.begin(), delta.tokens.end());
                            }
                            if (event.ended) done.Notify();
                          })
                  .ok());
  std::thread thread([&] { EXPECT_FALSE(engine.Run().ok()); });
  done.WaitForNotification();
  thread.join();
  std::vector<int32_t> expected = FakeAnswer(request, 0, kVocab);
  expected.resize(2);
  EXPECT_EQ(given_, expected);
}

}  // namespace
}  // namespace continuo
