// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/adapters/adapter_updates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "services/protocol/error.h"

namespace continuo::gateway {
namespace {

using ::testing::HasSubstr;
using Kind = AdapterUpdate::Kind;

std::shared_ptr<const WorkerLoad> Load(const std::string& worker, const std::string& model,
                                       WorkerState state = WorkerState::kServing,
                                       const std::string& parent = "") {
  return std::make_shared<WorkerLoad>(WorkerLoad{.address = worker + ":1",
                                                 .worker = worker,
                                                 .model = model,
                                                 .parent = parent,
                                                 .state = state});
}

LoadSnapshot TwoModels() {
  return {.workers = {Load("w1", "a"), Load("w1", "poet", WorkerState::kServing, "a"),
                      Load("w0", "a", WorkerState::kLoading),
                      Load("w2", "a", WorkerState::kDraining), Load("w3", "b")},
          .known_models = {"a", "b", "idle", "poet"},
          .adapters = {{"poet", "a"}}};
}

std::string Shown(const std::vector<WorkerOutcome>& workers) {
  std::string text;
  for (const WorkerOutcome& worker : workers) {
    text += worker.worker + (worker.status.ok() ? " " : "! ");
  }
  return text;
}

TEST(FindTargetsTest, AllWorkersOfTheModelButThoseThatDrain) {
  AdapterUpdate update = {.base = "a", .name = "x"};
  const auto targets = FindTargets(TwoModels(), &update);
  ASSERT_TRUE(targets.ok()) << targets.status();
  EXPECT_EQ(Shown(*targets), "w0! w1 ");
  EXPECT_EQ((*targets)[0].status.message(), "the worker is loading");
}

TEST(FindTargetsTest, TheModelIsNamedKnownOrTheOnlyOne) {
  AdapterUpdate known = {.kind = Kind::kUnload, .name = "poet"};
  ASSERT_TRUE(FindTargets(TwoModels(), &known).ok());
  EXPECT_EQ(known.base, "a");
  AdapterUpdate unnamed = {.name = "x"};
  EXPECT_EQ(protocol::FieldOf(FindTargets(TwoModels(), &unnamed).status()), "model");
  LoadSnapshot one = {.workers = {Load("w", "a")}, .known_models = {"a"}};
  ASSERT_TRUE(FindTargets(one, &unnamed).ok());
  EXPECT_EQ(unnamed.base, "a");
  const auto code = [](const std::string& base) {
    AdapterUpdate update = {.base = base, .name = "x"};
    return FindTargets(TwoModels(), &update).status().code();
  };
  EXPECT_EQ(code("poet"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("none"), absl::StatusCode::kNotFound);
  EXPECT_EQ(code("idle"), absl::StatusCode::kUnavailable);
  AdapterUpdate nobody = {.name = "x"};
  EXPECT_EQ(FindTargets({}, &nobody).status().code(), absl::StatusCode::kUnavailable);
}

TEST(JoinOutcomesTest, AFailureAtOneIsAFailure) {
  const AdapterUpdate load = {.base = "a", .name = "x"};
  EXPECT_TRUE(JoinOutcomes(load, {{"w0", "", {}}, {"w1", "", {}}}).status.ok());
  AdapterOutcome outcome = JoinOutcomes(
      load, {{"w0", "", {}}, {"w1", "", absl::NotFoundError("no folder")}, {"w2", "", {}}});
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(outcome.status.message(), "1 of 3 workers failed: worker \"w1\": no folder");
  EXPECT_EQ(Shown(outcome.workers), "w0 w1! w2 ");
  outcome = JoinOutcomes(load, {{"w0", "", absl::ResourceExhaustedError("full")},
                                {"w1", "", absl::NotFoundError("no folder")}});
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(outcome.status.message()), HasSubstr("2 of 2"));
}

TEST(JoinOutcomesTest, AnUnloadCanBeRepeated) {
  const AdapterUpdate unload = {.kind = Kind::kUnload, .base = "a", .name = "x"};
  const absl::Status absent = absl::NotFoundError("none");
  EXPECT_TRUE(JoinOutcomes(unload, {{"w0", "", absent}, {"w1", "", {}}}).status.ok());
  EXPECT_EQ(JoinOutcomes(unload, {{"w0", "", absent}, {"w1", "", absent}}).status.code(),
            absl::StatusCode::kNotFound);
  const AdapterOutcome outcome =
      JoinOutcomes(unload, {{"w0", "", absent}, {"w1", "", absl::UnavailableError("gone")}});
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Shown(outcome.workers), "w0 w1! ");
}

}  // namespace
}  // namespace continuo::gateway
