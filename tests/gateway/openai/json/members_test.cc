// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/members.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/gateway/openai/json/request_json.h"
#include "services/protocol/error.h"
#include "tests/gateway/openai/object_members.h"

namespace continuo::gateway::openai {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Json BodyOf(Endpoint endpoint) {
  return endpoint == Endpoint::kChat
             ? Json::parse(R"({"messages":[{"role":"user","content":"Hello"}]})")
             : Json::parse(R"({"prompt":"Hello"})");
}
absl::StatusOr<ParsedCall> Parse(Endpoint endpoint, std::string_view name, const Json& value) {
  Json body = BodyOf(endpoint);
  body[std::string(name)] = value;
  return ParseCall(endpoint, body.dump());
}
std::string FieldOf(Endpoint endpoint, std::string_view name, const Json& value) {
  const absl::Status status = Parse(endpoint, name, value).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status << " of " << name << " " << value;
  return protocol::FieldOf(status);
}
bool Changes(Endpoint endpoint, const absl::StatusOr<ParsedCall>& call) {
  const auto plain = ParseCall(endpoint, BodyOf(endpoint).dump());
  return !MessageDifferencer::Equals(call->requests[0], plain->requests[0]);
}
bool Takes(const Member& member, Endpoint endpoint) {
  return (member.endpoints & (endpoint == Endpoint::kChat ? kOfChat : kOfCompletions)) != 0;
}

class MembersTest : public ::testing::TestWithParam<Endpoint> {};

TEST(MemberTableTest, EveryMemberHasOneRowWithANoteAndIdleValues) {
  std::set<std::string_view> names;
  for (const Member& member : Members()) {
    EXPECT_TRUE(names.insert(member.name).second) << member.name;
    EXPECT_FALSE(member.note.empty()) << member.name;
    EXPECT_TRUE(member.idle.empty() || Json::parse(member.idle).is_array()) << member.name;
  }
}

TEST_P(MembersTest, NullIsAbsentWhateverTheMember) {
  for (const Member& member : Members()) {
    if (BodyOf(GetParam()).contains(member.name)) continue;
    const auto call = Parse(GetParam(), member.name, nullptr);
    ASSERT_TRUE(call.ok()) << call.status();
    EXPECT_FALSE(Changes(GetParam(), call)) << member.name;
  }
}

TEST_P(MembersTest, HarmlessMembersAreLeftAlone) {
  for (const Member& member : Members()) {
    if (member.disposition != Disposition::kHarmless) continue;
    for (const Json& value : MemberValues()) {
      const auto call = Parse(GetParam(), member.name, value);
      ASSERT_TRUE(call.ok()) << call.status();
      EXPECT_FALSE(Changes(GetParam(), call)) << member.name;
    }
  }
}

TEST_P(MembersTest, RefusedMembersAreNamedAndIdleValuesAreTaken) {
  for (const Member& member : Members()) {
    if (member.disposition != Disposition::kRefused) continue;
    std::vector<Json> idle;
    if (!member.idle.empty()) idle = Json::parse(member.idle).get<std::vector<Json>>();
    for (const Json& value : idle) {
      const auto call = Parse(GetParam(), member.name, value);
      ASSERT_TRUE(call.ok()) << call.status();
      EXPECT_FALSE(Changes(GetParam(), call)) << member.name;
    }
    for (const Json& value : MemberValues()) {
      if (std::ranges::find(idle, value) != idle.end()) continue;
      EXPECT_EQ(FieldOf(GetParam(), member.name, value), member.name);
      EXPECT_THAT(std::string(Parse(GetParam(), member.name, value).status().message()),
                  HasSubstr(std::string(member.note)));
    }
  }
}

TEST_P(MembersTest, DoneMembersAreRead) {
  for (const Member& member : Members()) {
    if (member.disposition != Disposition::kDone) continue;
    const std::string name(member.name);
    // A member that is read takes values of its own type, so it rejects some of these.
    int num_rejected = 0;
    for (const Json& value : MemberValues()) {
      const absl::Status status = Parse(GetParam(), name, value).status();
      if (status.ok()) continue;
      ++num_rejected;
      const std::string field = protocol::FieldOf(status);
      EXPECT_TRUE(field == name || field.starts_with(name + ".") || field.starts_with(name + "["))
          << field << " of " << name;
    }
    EXPECT_GT(num_rejected, 0) << name;
  }
}

TEST_P(MembersTest, MembersOfTheOtherEndpointAreNamed) {
  for (const Member& member : Members()) {
    if (member.disposition != Disposition::kDone || Takes(member, GetParam())) continue;
    EXPECT_EQ(FieldOf(GetParam(), member.name, MemberValues().back()), member.name);
    EXPECT_THAT(std::string(Parse(GetParam(), member.name, 7).status().message()),
                HasSubstr("is a member of /v1/"));
  }
}

TEST_P(MembersTest, UnknownMembersAreNamed) {
  for (const char* name : {"what", "temprature", "TEMPERATURE", "", "a.b", "messages[0]", "text",
                           "sampling.top_p", "\xc3\xa9", "prompt "}) {
    const std::string shown = *name == '\0' ? "\"\"" : name;
    for (const Json& value : MemberValues()) EXPECT_EQ(FieldOf(GetParam(), name, value), shown);
    EXPECT_TRUE(Parse(GetParam(), name, nullptr).ok()) << name;
  }
  const auto message = [](std::string_view name) {
    return std::string(Parse(GetParam(), name, 1).status().message());
  };
  EXPECT_THAT(message("temprature"), HasSubstr("\"temperature\" is one"));
  EXPECT_THAT(message("maxtokens"), HasSubstr("\"max_tokens\" is one"));
  EXPECT_THAT(message("what"), Not(HasSubstr("is one")));
  EXPECT_THAT(message(""), StartsWith("\"\": is no member of /v1/"));
  EXPECT_THAT(message(""), Not(HasSubstr("is one")));
  // Logs have no word of the client's.
  const auto logged = [](const absl::Status& status) {
    return WithoutClientsWords(status).ToString();
  };
  EXPECT_THAT(logged(Parse(GetParam(), "secret", 1).status()), Not(HasSubstr("secret")));
  EXPECT_THAT(logged(Parse(GetParam(), "stream_options", {{"secret", 1}}).status()),
              Not(HasSubstr("secret")));
  EXPECT_THAT(logged(Parse(GetParam(), "top_k", "x").status()), HasSubstr("top_k"));
  const absl::Status twice = ParseObject(R"({"a": 1, "b": [{"secret": 1, "secret": 1}]})").status();
  EXPECT_THAT(std::string(twice.message()), HasSubstr("field \"secret\" is there twice"));
  EXPECT_THAT(logged(twice), AllOf(Not(HasSubstr("secret")), HasSubstr("twice")));
  // A long name is cut where a character ends.
  std::string longest = "abc";
  for (int i = 0; i < 1000; ++i) longest += "\xe2\x82\xac";
  EXPECT_LT(message(longest).size(), 200);
  EXPECT_THAT(FieldOf(GetParam(), longest, 1), ::testing::StartsWith("abc\xe2\x82\xac"));
}

INSTANTIATE_TEST_SUITE_P(Endpoints, MembersTest,
                         ::testing::Values(Endpoint::kChat, Endpoint::kCompletions));

TEST(MemberTableTest, TheDocumentsHaveTheTable) { CheckDocuments("members", MembersTable()); }

}  // namespace
}  // namespace continuo::gateway::openai
