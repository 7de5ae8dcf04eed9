// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/requests/tenant_shares.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"

namespace continuo::engine {
namespace {

constexpr int64_t kBurst = 100, kSlack = 10;

TEST(TenantSharesTest, ANewTenantIsAtMostTheBurstBehindTheOneThatGotMost) {
  TenantShares shares(kBurst, kSlack);
  Tenant* flood = shares.Enter("flood");
  shares.Charge(*flood, 5000);
  Tenant* light = shares.Enter("light");
  EXPECT_EQ(flood->virtual_tokens - light->virtual_tokens, kBurst);
  EXPECT_TRUE(shares.HasDeficit(*light, *flood));
  EXPECT_FALSE(shares.HasDeficit(*flood, *light));
}

TEST(TenantSharesTest, EqualsHaveNoDeficit) {
  TenantShares shares(kBurst, kSlack);
  Tenant *a = shares.Enter("a"), *b = shares.Enter("b");
  shares.Charge(*a, kSlack);
  EXPECT_FALSE(shares.HasDeficit(*b, *a));
  shares.Charge(*a, 1);
  EXPECT_TRUE(shares.HasDeficit(*b, *a));
}

TEST(TenantSharesTest, LeavingAndComingBackDoesNotResetVirtualTokens) {
  TenantShares shares(kBurst, kSlack);
  Tenant* patient = shares.Enter("patient");
  Tenant* flood = shares.Enter("flood");
  shares.Charge(*flood, 50);
  shares.Leave(*flood);
  flood = shares.Enter("flood");
  EXPECT_EQ(flood->virtual_tokens - patient->virtual_tokens, 50);
}

TEST(TenantSharesTest, AbsenceSavesUpNoMoreThanTheBurst) {
  TenantShares shares(kBurst, kSlack);
  Tenant* worker = shares.Enter("worker");
  shares.Leave(*shares.Enter("absent"));
  shares.Charge(*worker, 100000);
  EXPECT_EQ(worker->virtual_tokens - shares.Enter("absent")->virtual_tokens, kBurst);
}

TEST(TenantSharesTest, NobodyIsRememberedWhileNobodyIsThere) {
  TenantShares shares(kBurst, kSlack);
  Tenant* tenant = shares.Enter("a");
  shares.Charge(*tenant, 1000);
  shares.Leave(*tenant);
  EXPECT_EQ(shares.num_known(), 0);
  EXPECT_EQ(shares.Enter("a")->virtual_tokens, shares.Enter("b")->virtual_tokens);
}

TEST(TenantSharesTest, HoweverManyTenantsComeAndGoFewAreRemembered) {
  TenantShares shares(kBurst, kSlack);
  shares.Charge(*shares.Enter("there"), 1);
  for (int i = 0; i < 10000; ++i) {
    Tenant* tenant = shares.Enter(absl::StrCat(i));
    shares.Charge(*tenant, 1);
    shares.Leave(*tenant);
    ASSERT_LE(shares.num_known(), 2 + TenantShares::kMaxAbsent);
  }
  EXPECT_EQ(shares.num_live(), 1);
}

}  // namespace
}  // namespace continuo::engine
