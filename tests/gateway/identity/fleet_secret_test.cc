// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/identity/fleet_secret.h"

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"

namespace continuo::gateway {
namespace {

using Parts = std::vector<std::string_view>;

FleetSecret::Key KeyOf(uint8_t value) {
  FleetSecret::Key key;
  key.fill(value);
  return key;
}

FleetSecret SecretOf(std::vector<FleetSecret::Key> keys) {
  return FleetSecret([keys] { return keys; });
}

std::string_view View(const FleetSecret::Mac& mac) {
  return {reinterpret_cast<const char*>(mac.data()), mac.size()};
}

TEST(FleetSecretTest, AllGatewaysMakeTheSame) {
  const Parts parts = {"a", "b"};
  EXPECT_EQ(SecretOf({KeyOf(1)}).Make("p", parts), SecretOf({KeyOf(1)}).Make("p", parts));
  EXPECT_NE(SecretOf({KeyOf(1)}).Make("p", parts), SecretOf({KeyOf(2)}).Make("p", parts));
  EXPECT_NE(FleetSecret::Random().Make("p", parts), FleetSecret::Random().Make("p", parts));
}

// By Python: hmac.new(b"\x01" * 32, b"".join(struct.pack("<Q", len(p)) + p for p in
// (b"p", b"a", b"bc")), hashlib.sha256).hexdigest()
TEST(FleetSecretTest, TheValueIsHmacSha256) {
  const FleetSecret::Mac mac = SecretOf({KeyOf(1)}).Make("p", Parts{"a", "bc"});
  EXPECT_EQ(absl::BytesToHexString(absl::string_view(View(mac).data(), mac.size())),
            "fb9285a79c574beb1866e1e173c56bf974aa8e108ecfe73bef16ba00ebdf7d6a");
}

TEST(FleetSecretTest, EachPartAndThePurposeCount) {
  const FleetSecret secret = SecretOf({KeyOf(1)});
  const FleetSecret::Mac mac = secret.Make("p", Parts{"ab", "c"});
  EXPECT_NE(mac, secret.Make("p", Parts{"a", "bc"}));
  EXPECT_NE(mac, secret.Make("p", Parts{"abc"}));
  EXPECT_NE(mac, secret.Make("q", Parts{"ab", "c"}));
}

TEST(FleetSecretTest, TheFirstKeyMakesAndEachCanBeAsked) {
  const Parts parts = {"a"};
  const FleetSecret before = SecretOf({KeyOf(1)}), after = SecretOf({KeyOf(2)});
  const FleetSecret during = SecretOf({KeyOf(2), KeyOf(1)});
  EXPECT_EQ(during.Make("p", parts), after.Make("p", parts));
  EXPECT_EQ(during.MakeEach("p", parts),
            (std::vector{after.Make("p", parts), before.Make("p", parts)}));
}

TEST(DigestOfTest, PartsCountOneByOne) {
  EXPECT_EQ(DigestOf(Parts{"ab", "c"}), DigestOf(Parts{"ab", "c"}));
  EXPECT_NE(DigestOf(Parts{"ab", "c"}), DigestOf(Parts{"a", "bc"}));
  EXPECT_EQ(DigestOf(Parts{}).size(), 64u);
}

}  // namespace
}  // namespace continuo::gateway
