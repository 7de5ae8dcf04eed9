// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/stream/tenant_places.h"

#include <gtest/gtest.h>

#include <vector>

#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

TEST(TenantPlacesTest, ATenantHasSoMany) {
  TenantPlaces places_of_all("streams of this tenant are there");
  std::vector<TenantPlaces::Place> places;
  for (int i = 0; i < 2; ++i) places.push_back(*places_of_all.Enter("t", 2));
  const absl::Status full = places_of_all.Enter("t", 2).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(full.message(), "2 streams of this tenant are there already, the limit");
  EXPECT_EQ(protocol::ReasonOf(full), protocol::kReasonRateLimited);
  EXPECT_TRUE(protocol::RetryDelayOf(full).has_value());
  EXPECT_TRUE(places_of_all.Enter("u", 2).ok());
  EXPECT_TRUE(places_of_all.Enter("t", 0).ok()) << "no limit";
  places[0].Release();
  places[0].Release();
  places[1] = *places_of_all.Enter("t", 2);
  EXPECT_TRUE(places_of_all.Enter("t", 2).ok());
  places.push_back(*places_of_all.Enter("t", 2));
  EXPECT_FALSE(places_of_all.Enter("t", 2).ok());
  places.clear();
  EXPECT_TRUE(places_of_all.Enter("t", 1).ok());
}

}  // namespace
}  // namespace continuo::gateway::openai
