// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/run/rank_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/isa/pick_kernels.h"
#include "kernels/host/thread_communicator.h"
#include "tests/testing/tiny_model.h"
#include "tests/worker/model/run/plan_builder.h"

namespace continuo::testing {
namespace {

using ::testing::Each;

// The collectives of a rank that fails from the n-th sum on, as a lost device would. An abort ends
// when every rank has failed.
class FailingCommunicator : public kernels::Communicator {
 public:
  FailingCommunicator(std::unique_ptr<kernels::Communicator> inner, int calls,
                      std::shared_ptr<std::atomic<int>> num_aborts)
      : inner_(std::move(inner)), calls_left_(calls), num_aborts_(std::move(num_aborts)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void AllReduceSum(kernels::Tensor x) override {
    if (calls_left_-- <= 0) {
      failed_ = true;
      return;  // the others wait for this rank
    }
    inner_->AllReduceSum(x);
  }
  void AllGather(kernels::Tensor out, kernels::Tensor part,
                 std::span<const int64_t> column_begin) override {
    if (!failed_) inner_->AllGather(out, part, column_begin);
  }
  void Abort() override {
    inner_->Abort();
    ++*num_aborts_;
    while (failed_ && *num_aborts_ < size()) std::this_thread::yield();
  }
  absl::Status status() const override {
    return failed_ ? absl::DataLossError("device lost") : inner_->status();
  }

 private:
  std::unique_ptr<kernels::Communicator> inner_;
  int calls_left_;
  const std::shared_ptr<std::atomic<int>> num_aborts_;  // of all ranks
  bool failed_ = false;
};

std::unique_ptr<model::RankGroup> Group(const TinyModel& model, int size, int failing_rank,
                                        int calls) {
  const model::ModelConfig config = *model::ReadModelConfig(model.dir());
  const model::Checkpoint checkpoint = *model::Checkpoint::Open(model.dir());
  auto communicators = kernels::host::MakeThreadCommunicators(size);
  const auto num_aborts = std::make_shared<std::atomic<int>>(0);
  std::vector<std::unique_ptr<model::ModelRunner>> runners;
  for (int rank = 0; rank < size; ++rank) {
    auto communicator = std::make_unique<FailingCommunicator>(
        std::move(communicators[static_cast<size_t>(rank)]),
        rank == failing_rank ? calls : std::numeric_limits<int>::max(), num_aborts);
    runners.push_back(*model::ModelRunner::Make(config, checkpoint,
                                                {.num_blocks = 32, .max_rows = 64},
                                                *kernels::MakeDevice({}), std::move(communicator)));
  }
  return std::make_unique<model::RankGroup>(std::move(runners));
}

// Notes at each sum the processors that its rank's thread may run on.
class NotingCommunicator : public kernels::Communicator {
 public:
  NotingCommunicator(std::unique_ptr<kernels::Communicator> inner, std::vector<int>* cpus)
      : inner_(std::move(inner)), cpus_(cpus) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void AllReduceSum(kernels::Tensor x) override {
    cpu_set_t set;
    EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus_->push_back(static_cast<int>(cpu));
    }
    inner_->AllReduceSum(x);
  }
  void AllGather(kernels::Tensor out, kernels::Tensor part,
                 std::span<const int64_t> column_begin) override {
    inner_->AllGather(out, part, column_begin);
  }
  void Abort() override { inner_->Abort(); }
  absl::Status status() const override { return inner_->status(); }

 private:
  std::unique_ptr<kernels::Communicator> inner_;
  std::vector<int>* cpus_;
};

model::StepPlan Plan(bool masked) {
  const std::vector<int32_t> tokens = {1, 2, 3};
  PlanBuilder builder(16, 16);
  builder.Add(0, 0, tokens, LastOf(tokens), {.temperature = 0, .masked = masked});
  return builder.plan();
}

TEST(RankGroupTest, ARankThatFailsFailsTheStepOfAllAndEveryLaterOne) {
  const TinyModel model;
  for (const int failing : {0, 1, 3}) {
    // A step has one sum for the embedding and two per layer, 5 in all, so this is the third step's
    // second.
    const auto group = Group(model, 4, failing, 11);
    for (const bool masked : {false, true}) {
      EXPECT_TRUE(group->Run(Plan(masked), [](std::span<uint32_t>) {}).ok());
    }
    const auto failed = group->Run(Plan(true), [](std::span<uint32_t>) {});
    // The failure is not that of a rank that waited for it.
    EXPECT_EQ(failed.status(),
              absl::DataLossError("rank " + std::to_string(failing) + ": device lost"));
    EXPECT_EQ(group->Run(Plan(false), [](std::span<uint32_t>) {}).status(), failed.status());
  }
}

TEST(RankGroupTest, ManyStepsAndAnEndWithoutAny) {
  const TinyModel model;
  { const auto unused = Group(model, 2, -1, 0); }
  const auto group = Group(model, 2, -1, 0);
  std::vector<int32_t> first;
  for (int step = 0; step < 200; ++step) {
    const auto result = group->Run(Plan(step % 2 == 0), [](std::span<uint32_t>) {});
    ASSERT_TRUE(result.ok());
    if (step == 0) first = result->token_ids;
    ASSERT_EQ(result->token_ids, first);
  }
}

TEST(RankGroupTest, SizesAreOneTwoFourEight) {
  for (const int size : {1, 2, 4, 8}) EXPECT_TRUE(model::CheckTensorParallel(size).ok());
  for (const int size : {-8, 0, 3, 5, 6, 7, 16}) {
    EXPECT_EQ(model::CheckTensorParallel(size).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(RankGroupTest, RanksComputeWhereTheirMemoryIs) {
  const TinyModel model;
  const model::ModelConfig config = *model::ReadModelConfig(model.dir());
  const model::Checkpoint checkpoint = *model::Checkpoint::Open(model.dir());
  const int cpu = sched_getcpu();
  auto communicators = kernels::host::MakeThreadCommunicators(2);
  std::vector<int> cpus[2];
  std::vector<std::unique_ptr<model::ModelRunner>> runners;
  for (size_t rank = 0; rank < 2; ++rank) {
    auto device = std::make_unique<kernels::cpu::CpuDevice>(
        **kernels::cpu::PickKernels("auto"), 1, kernels::host::Place{.nodes = {}, .cpus = {cpu}});
    runners.push_back(*model::ModelRunner::Make(
        config, checkpoint, {.num_blocks = 32, .max_rows = 64}, std::move(device),
        std::make_unique<NotingCommunicator>(std::move(communicators[rank]), &cpus[rank])));
  }
  model::RankGroup group(std::move(runners));
  EXPECT_TRUE(group.Run(Plan(false), [](std::span<uint32_t>) {}).ok());
  for (const std::vector<int>& seen : cpus) {
    EXPECT_FALSE(seen.empty());
    EXPECT_THAT(seen, Each(cpu));
  }
}

}  // namespace
}  // namespace continuo::testing
