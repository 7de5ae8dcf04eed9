// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/lifetime/request_registry.h"

#include <gtest/gtest.h>

#include "services/protocol/error.h"

namespace continuo::server {
namespace {

// A live request that remembers how it was ended.
struct Live {
  Live()
      : control(std::make_shared<RequestControl>(RequestControl::Hooks{
            .cancel = [this](absl::Status why) { ended = why; }, .cut = nullptr})) {
    control->Submitted();
  }
  std::optional<absl::Status> ended;
  std::shared_ptr<RequestControl> control;
};

TEST(RequestRegistryTest, ALiveDuplicateIsRefused) {
  RequestRegistry registry;
  Live first, second;
  ASSERT_TRUE(registry.Add("t", "id", ArrivalKind::kNew, first.control).ok());
  EXPECT_EQ(registry.Add("t", "id", ArrivalKind::kNew, second.control).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(first.ended.has_value());
  registry.Remove("t", "id", first.control.get());
  EXPECT_TRUE(registry.Add("t", "id", ArrivalKind::kNew, second.control).ok());
}

TEST(RequestRegistryTest, IdsAreOfTheirTenant) {
  RequestRegistry registry;
  Live first, second;
  ASSERT_TRUE(registry.Add("t", "id", ArrivalKind::kNew, first.control).ok());
  EXPECT_TRUE(registry.Add("u", "id", ArrivalKind::kNew, second.control).ok());
  EXPECT_FALSE(registry.Abort("v", "id"));
  EXPECT_TRUE(registry.Abort("t", "id"));
  EXPECT_EQ(first.ended->code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(second.ended.has_value());
}

TEST(RequestRegistryTest, AContinuationReplacesTheLiveOneWhichEndsAborted) {
  RequestRegistry registry;
  Live first, second;
  ASSERT_TRUE(registry.Add("t", "id", ArrivalKind::kNew, first.control).ok());
  ASSERT_TRUE(registry.Add("t", "id", ArrivalKind::kMigration, second.control).ok());
  EXPECT_EQ(first.ended->code(), absl::StatusCode::kAborted);
  EXPECT_EQ(protocol::ReasonOf(*first.ended), protocol::kReasonAborted);
  registry.Remove("t", "id", first.control.get());  // as it ends
  EXPECT_EQ(registry.size(), 1u) << "its place is the other one's";
}

TEST(RequestRegistryTest, AnIdWithAnotherBodyIsRefusedWhateverItsKind) {
  RequestRegistry registry;
  Live first, other, same;
  ASSERT_TRUE(registry
                  .Add("t", "id", ArrivalKind::kClientContinuation, first.control,
                       {.call_id = "a", .body = "one"})
                  .ok());
  for (const ArrivalKind kind :
       {ArrivalKind::kNew, ArrivalKind::kClientContinuation, ArrivalKind::kMigration}) {
    const absl::Status refused =
        registry.Add("t", "id", kind, other.control, {.call_id = "b", .body = "two"});
    EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(protocol::ReasonOf(refused), protocol::kReasonKeyReused);
  }
  EXPECT_FALSE(first.ended.has_value());
  EXPECT_TRUE(registry
                  .Add("t", "id", ArrivalKind::kClientContinuation, same.control,
                       {.call_id = "c", .body = "one"})
                  .ok());
  EXPECT_EQ(first.ended->code(), absl::StatusCode::kAborted);
}

TEST(RequestRegistryTest, AMigrationGivesWayToAClientsContinuation) {
  RequestRegistry registry;
  Live client, migration, again;
  ASSERT_TRUE(registry.Add("t", "id", ArrivalKind::kClientContinuation, client.control).ok());
  EXPECT_EQ(registry.Add("t", "id", ArrivalKind::kMigration, migration.control).code(),
            absl::StatusCode::kAborted);
  EXPECT_FALSE(client.ended.has_value());
  EXPECT_TRUE(registry.Add("t", "id", ArrivalKind::kClientContinuation, again.control).ok());
  EXPECT_TRUE(client.ended.has_value());
}

TEST(RequestRegistryTest, AClientsContinuationMayMigrateItself) {
  RequestRegistry registry;
  Live client, older, back, older_again;
  ASSERT_TRUE(
      registry
          .Add("t", "id", ArrivalKind::kClientContinuation, client.control, {.call_id = "call 2"})
          .ok());
  EXPECT_FALSE(
      registry.Add("t", "id", ArrivalKind::kMigration, older.control, {.call_id = "call 1"}).ok());
  EXPECT_FALSE(client.ended.has_value());
  EXPECT_TRUE(
      registry.Add("t", "id", ArrivalKind::kMigration, back.control, {.call_id = "call 2"}).ok());
  EXPECT_EQ(client.ended->code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(
      registry.Add("t", "id", ArrivalKind::kMigration, older_again.control, {.call_id = "call 1"})
          .ok());
  EXPECT_FALSE(back.ended.has_value()) << "still the client's own";
}

}  // namespace
}  // namespace continuo::server
