// SPDX-License-Identifier: Apache-2.0
// Counts the allocations of the engine thread in steps that only decode.
#include <gmock/gmock.h>

#include <cstdlib>
#include <deque>
#include <new>
#include <utility>
#include <vector>

#include "services/worker/engine/engine.h"
#include "services/worker/engine/schedule/plan_builder.h"
#include "tests/testing/manual_clock.h"

namespace {

thread_local int64_t num_allocations = 0;

}  // namespace

void* operator new(size_t size) {
  ++num_allocations;
  void* memory = std::malloc(size > 0 ? size : 1);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace continuo::engine {
namespace {

constexpr int kSequences = 64, kAnswer = 200;

struct Counted {
  int64_t steps = 0, overlapped = 0, allocations = 0;
};

// Samples the same token every time. Counts the allocations of the thread outside of this class
// from the start of one step to that of the next; these are the engine's, sinks included.
class CountingExecutor : public model::Executor {
 public:
  explicit CountingExecutor(bool is_asynchronous) : is_asynchronous_(is_asynchronous) {}

  absl::Status Start(const model::StepPlan& plan, model::MaskFiller) override {
    between_ += num_allocations;
    // A step counts if it only decodes the sequences of the step before. The first batch is left
    // out: it makes the arrays of the plan as large as the largest step.
    if (plan.num_rows() == kSequences && plan.sequence_ids == last_ &&
        plan.sequence_ids.front() > kSequences) {
      ++counted_.steps;
      counted_.overlapped += num_samples_.empty() ? 0 : 1;
      counted_.allocations += between_;
    }
    last_ = plan.sequence_ids;
    num_samples_.push_back(static_cast<size_t>(plan.num_samples()));
    between_ = num_allocations = 0;
    return absl::OkStatus();
  }
  absl::StatusOr<model::StepResult> Finish() override {
    between_ += num_allocations;
    model::StepResult result;
    result.token_ids.assign(num_samples_.front(), 3);
    result.scores.resize(num_samples_.front());
    num_samples_.pop_front();
    num_allocations = 0;
    return result;
  }
  bool IsAsynchronous() const override { return is_asynchronous_; }
  const Counted& counted() const { return counted_; }

 private:
  const bool is_asynchronous_;
  Counted counted_;
  std::vector<model::SequenceId> last_;
  std::deque<size_t> num_samples_;  // of the steps in flight
  int64_t between_ = 0;             // allocations since the last step began
};

// Runs two equal batches, one after the other.
Counted CountSteadySteps(const model::SamplingParams& sampling, bool is_asynchronous = false) {
  CountingExecutor executor(is_asynchronous);
  ManualClock clock;
  EngineMetrics metrics;
  EngineOptions options;
  options.num_blocks = 4 * kSequences * kAnswer / options.block_size;
  options.vocab_size = 100;
  options.max_running = kSequences;
  options.calibrate = false;
  Engine engine(options, &executor, &clock, &metrics);
  int num_live = 2 * kSequences;
  for (int i = 1; i <= 2 * kSequences; ++i) {
    Request request;
    request.id = i;
    request.prompt = {i % 50, 2, 3};
    request.max_tokens = kAnswer;
    request.sampling = sampling;
    request.stop_ids = {7};
    const absl::Status status = engine.Submit(std::move(request), [&](RequestEvent event) {
      if (event.ended && --num_live == 0) engine.Stop();
    });
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_TRUE(engine.Run().ok());
  return executor.counted();
}

TEST(PlanBuilderTest, HasRoomForTheLargestStepFromTheStart) {
  constexpr size_t kRows = 300;
  PlanBuilder builder(16, kRows);
  for (int i = 0; i < 2; ++i) {
    const model::StepPlan& plan = builder.plan();
    for (const auto* array : {&plan.token_ids, &plan.positions, &plan.kv_slots, &plan.sample_rows,
                              &plan.sample_targets, &plan.bias_begin, &plan.seen_begin}) {
      EXPECT_GE(array->capacity(), kRows);
    }
    EXPECT_GE(plan.sampling.capacity(), kRows);
    builder.Clear();
  }
}

TEST(SteadyStepTest, AStepThatOnlyDecodesAllocatesNothing) {
  const Counted counted = CountSteadySteps({});
  EXPECT_GT(counted.steps, kAnswer / 2);
  EXPECT_EQ(counted.allocations, 0);
}

TEST(SteadyStepTest, NorDoesOneWithPenalties) {
  const Counted counted = CountSteadySteps({.repetition_penalty = 1.2f, .frequency_penalty = 0.5f});
  EXPECT_GT(counted.steps, kAnswer / 2);
  EXPECT_EQ(counted.allocations, 0);
}

TEST(SteadyStepTest, NorDoOverlappedSteps) {
  for (const float penalty : {1.0f, 1.2f}) {
    const Counted counted =
        CountSteadySteps({.repetition_penalty = penalty}, /*is_asynchronous=*/true);
    EXPECT_GT(counted.steps, kAnswer / 2);
    EXPECT_EQ(counted.overlapped, counted.steps);
    EXPECT_EQ(counted.allocations, 0);
  }
}

}  // namespace
}  // namespace continuo::engine
