// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/discovery/kubernetes/endpoint_slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// An EndpointSlice with the port 50051, named grpc, and `endpoints` in JSON.
std::string Slice(const char* name, const std::string& endpoints, const char* type = "IPv4") {
  return absl::StrCat(R"({"metadata":{"name":")", name,
                      R"(","resourceVersion":"7"},"addressType":")", type,
                      R"(","ports":[{"name":"metrics","port":9090},{"name":"grpc","port":50051}],)",
                      R"("endpoints":[)", endpoints, "]}");
}

std::string List(const std::string& items, const char* next = "") {
  return absl::StrCat(
      R"({"kind":"EndpointSliceList","metadata":{"resourceVersion":"5","continue":")", next,
      R"("},"items":[)", items, "]}");
}

std::string Event(const char* type, const std::string& slice) {
  return absl::StrCat(R"({"type":")", type, R"(","object":)", slice, "}");
}

constexpr char kOne[] = R"({"addresses":["10.0.0.1"],"conditions":{"ready":true}})";
constexpr char kTwo[] = R"({"addresses":["10.0.0.2"],"conditions":{"ready":true}})";

TEST(EndpointSlicesTest, ReadyEndpointsOfAllPagesAreAddresses) {
  EndpointSlices slices("50051");
  const std::string unready = R"({"addresses":["10.0.0.9"],"conditions":{"ready":false}})";
  const std::string unknown = R"({"addresses":["10.0.0.3","10.0.0.4"],"conditions":{}})";
  const auto first =
      slices.TakePage(List(Slice("b", absl::StrCat(kTwo, ",", unready)), "more"), true);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->next, "more");
  const auto second =
      slices.TakePage(List(Slice("a", absl::StrCat(kOne, ",", unknown, ",", kTwo))), false);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->next, "");
  EXPECT_EQ(second->resource_version, "5");
  EXPECT_THAT(slices.Addresses(),
              ElementsAre("10.0.0.1:50051", "10.0.0.2:50051", "10.0.0.3:50051"));
  ASSERT_TRUE(slices.TakePage(List(""), true).ok());
  EXPECT_THAT(slices.Addresses(), IsEmpty());
}

TEST(EndpointSlicesTest, APortIsFoundByItsName) {
  EndpointSlices named("grpc"), other("http");
  ASSERT_TRUE(named.TakePage(List(Slice("a", kOne)), true).ok());
  ASSERT_TRUE(other.TakePage(List(Slice("a", kOne)), true).ok());
  EXPECT_THAT(named.Addresses(), ElementsAre("10.0.0.1:50051"));
  EXPECT_THAT(other.Addresses(), IsEmpty());
}

TEST(EndpointSlicesTest, IPv6CountsWhereThereIsNoIPv4) {
  EndpointSlices slices("1");
  const std::string v6 = Slice("six", R"({"addresses":["fd00::1"]})", "IPv6");
  const std::string names = Slice("names", R"({"addresses":["worker.test"]})", "FQDN");
  ASSERT_TRUE(slices.TakePage(List(absl::StrCat(v6, ",", names)), true).ok());
  EXPECT_THAT(slices.Addresses(), ElementsAre("[fd00::1]:1"));
  ASSERT_TRUE(slices.TakeEvent(Event("ADDED", Slice("four", kOne))).ok());
  EXPECT_THAT(slices.Addresses(), ElementsAre("10.0.0.1:1"));
}

TEST(EndpointSlicesTest, EventsAddReplaceAndRemove) {
  EndpointSlices slices("1");
  ASSERT_TRUE(slices.TakePage(List(Slice("a", kOne)), true).ok());
  EXPECT_EQ(*slices.TakeEvent(Event("ADDED", Slice("b", kTwo))), "7");
  EXPECT_THAT(slices.Addresses(), ElementsAre("10.0.0.1:1", "10.0.0.2:1"));
  ASSERT_TRUE(slices.TakeEvent(Event("MODIFIED", Slice("a", ""))).ok());
  EXPECT_THAT(slices.Addresses(), ElementsAre("10.0.0.2:1"));
  EXPECT_EQ(
      *slices.TakeEvent(R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}})"),
      "9");
  EXPECT_THAT(slices.Addresses(), ElementsAre("10.0.0.2:1"));
  ASSERT_TRUE(slices.TakeEvent(Event("DELETED", Slice("b", kTwo))).ok());
  EXPECT_THAT(slices.Addresses(), IsEmpty());
}

TEST(EndpointSlicesTest, ErrorsOfTheServerAreTold) {
  EndpointSlices slices("1");
  const absl::Status old =
      slices.TakeEvent(R"({"type":"ERROR","object":{"code":410,"message":"too old"}})").status();
  EXPECT_TRUE(absl::IsOutOfRange(old)) << old;
  const absl::Status other =
      slices.TakeEvent(R"({"type":"ERROR","object":{"code":500,"message":"broken"}})").status();
  EXPECT_TRUE(absl::IsUnavailable(other)) << other;
  EXPECT_THAT(std::string(other.message()), HasSubstr("broken"));
}

TEST(EndpointSlicesTest, OtherTextIsRefusedOrSkipped) {
  EndpointSlices slices("grpc");
  for (const char* text :
       {"", "[]", "null", "{}", "{", R"({"items":[]})", R"({"metadata":{"resourceVersion":"1"}})",
        R"({"items":{},"metadata":{"resourceVersion":"1"}})", "\xff"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(slices.TakePage(text, true).status())) << text;
    EXPECT_FALSE(slices.TakeEvent(text).ok()) << text;
  }
  // Members of other types count as absent.
  const std::string odd =
      R"({"metadata":{"name":3},"addressType":"IPv4","ports":[1,{"name":"grpc","port":-1},)"
      R"({"name":"grpc","port":70000},{"name":"grpc","port":1}],"endpoints":[1,{},)"
      R"({"addresses":[]},{"addresses":[2]},{"addresses":["h"],"conditions":[1]}]})";
  ASSERT_TRUE(slices.TakePage(List(absl::StrCat("1,null,", odd)), true).ok());
  EXPECT_THAT(slices.Addresses(), ElementsAre("h:1"));
  // Each cut of a good event is refused.
  const std::string event = Event("ADDED", Slice("a", kOne));
  for (size_t size = 0; size < event.size(); ++size) {
    EXPECT_FALSE(slices.TakeEvent(event.substr(0, size)).ok()) << size;
  }
}

}  // namespace
}  // namespace continuo::gateway
