// SPDX-License-Identifier: Apache-2.0
// Counts what the engine thread allocates in steps that only decode.
#include <gmock/gmock.h>

#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

#include "services/worker/engine/engine.h"
#include "services/worker/engine/plan_builder.h"
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

namespace continuo {
namespace {

constexpr int kSequences = 64, kAnswer = 200;

struct Counted {
  int64_t steps = 0, allocations = 0;
};

// Draws the same token for every sample, and counts what the thread allocates from the end of one
// step to the start of the next, which is the engine's share, sinks included.
class CountingExecutor : public Executor {
 public:
  absl::Status Start(const StepPlan& plan, MaskFiller) override {
    const int64_t allocations = num_allocations;
    // Only where nothing but decoding has changed since the step before. The first sequences make
    // the arrays of the plan as large as the largest step.
    if (plan.num_rows() == kSequences && plan.sequence_ids == last_ &&
        plan.sequence_ids.front() > kSequences) {
      ++counted_.steps;
      counted_.allocations += allocations;
    }
    last_ = plan.sequence_ids;
    num_samples_ = static_cast<size_t>(plan.num_samples());
    return absl::OkStatus();
  }
  absl::StatusOr<StepResult> Finish() override {
    StepResult result;
    result.token_ids.assign(num_samples_, 3);
    result.scores.resize(num_samples_);
    num_allocations = 0;
    return result;
  }
  const Counted& counted() const { return counted_; }

 private:
  Counted counted_;
  std::vector<SequenceId> last_;
  size_t num_samples_ = 0;
};

// Two equal batches, one after the other.
Counted CountSteadySteps(const SamplingParams& sampling) {
  CountingExecutor executor;
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
    const StepPlan& plan = builder.plan();
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

}  // namespace
}  // namespace continuo
