// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/discovery/resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "tests/gateway/discovery/answers.h"
#include "tests/gateway/discovery/dns_server.h"

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ResolverTest, AListIsItself) {
  Answers answers("b:2,a:1,b:2,[::1]:3");
  EXPECT_THAT(answers.Next(), ElementsAre("[::1]:3", "a:1", "b:2"));
}

TEST(ResolverTest, BadTargetsAreRefusedByName) {
  for (const char* target :
       {"", "a", "a:0", "a:65536", "a:1,", "a:x", ":1", "::1:5", "dns://a", "dns:///name",
        "dns://server/name:1", "dns:///:5", "a b:1", "kubernetes:///a.b", "kubernetes:///A.b:1",
        "kubernetes:///a.b.svc:1", "kubernetes://server/a.b:1", "kubernetes:///a.b:0",
        "kubernetes://a.b:1"}) {
    const absl::Status status = MakeResolver(target).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << target;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--workers")) << target;
  }
}

TEST(ResolverTest, AWorkerIsAddedAndRemovedWithItsRecord) {
  DnsServer server({"10.0.0.1"});
  Answers answers("dns://" + server.address() + "/workers.test:50051");
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.1:50051"));
  server.Set({"10.0.0.2", "10.0.0.1"});
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.1:50051", "10.0.0.2:50051"));
  server.Set({"10.0.0.2"});
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.2:50051"));
}

TEST(ResolverTest, ANameWithoutRecordsHasNoWorkers) {
  DnsServer server({"10.0.0.1"});
  Answers answers("dns://" + server.address() + "/workers.test:1");
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.1:1"));
  server.SetCode(3);
  EXPECT_THAT(answers.Next(), IsEmpty());
  server.SetCode(0);
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.1:1"));
  server.Set({});
  EXPECT_THAT(answers.Next(), IsEmpty());
}

TEST(ResolverTest, AnswersOfManyWorkersComeWhole) {
  std::vector<std::string> all;
  for (int i = 1; i <= 200; ++i) all.push_back(absl::StrCat("10.0.0.", i));
  // So many fit into a datagram with EDNS, not without.
  DnsServer server({all.begin(), all.begin() + 55});
  Answers answers("dns://" + server.address() + "/workers.test:1");
  EXPECT_EQ(answers.Next().size(), 55);
  EXPECT_EQ(server.num_cut_off(), 0);
  EXPECT_EQ(server.num_over_tcp(), 0);
  server.Set(all);
  EXPECT_EQ(answers.Next().size(), 200);
  EXPECT_GT(server.num_over_tcp(), 0);
  // From then on it is asked over TCP at once.
  const int num_cut_off = server.num_cut_off();
  all.pop_back();
  server.Set(all);
  EXPECT_EQ(answers.Next().size(), 199);
  EXPECT_EQ(server.num_cut_off(), num_cut_off);
}

TEST(ResolverTest, WhereDnsFailsTheWorkersKnownStay) {
  DnsServer server({"10.0.0.1"});
  Answers answers("dns://" + server.address() + "/workers.test:1");
  answers.Next();
  server.SetCode(2);
  ASSERT_TRUE(server.WaitForQuestions(server.num_questions() + 5));
  EXPECT_TRUE(answers.empty());
  server.Set({"10.0.0.9"});
  server.SetCode(0);
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.9:1"));
}

// A server under load may answer one of the two queries, for A and for AAAA, and fail the other.
TEST(ResolverTest, WhereOneQuestionFailsTheWorkersKnownStay) {
  DnsServer server({"10.0.0.1"});
  Answers answers("dns://" + server.address() + "/workers.test:1");
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.1:1"));
  server.LoseOthersOnce();  // The failure comes before the answer.
  server.SetCodes(/*a=*/2, /*other=*/0);
  ASSERT_TRUE(server.WaitForQuestions(server.num_questions() + 5));
  EXPECT_TRUE(answers.empty());
  server.Set({"10.0.0.2"});
  server.SetCodes(/*a=*/0, /*other=*/2);
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.2:1"));
  server.Set({});  // Nothing is known of AAAA.
  ASSERT_TRUE(server.WaitForQuestions(server.num_questions() + 5));
  EXPECT_TRUE(answers.empty());
  server.SetCode(0);
  EXPECT_THAT(answers.Next(), IsEmpty());
}

TEST(ResolverTest, ARefreshDoesNotWaitForTheTtl) {
  DnsServer server({"10.0.0.1"});
  server.SetTtl(3600);
  ResolverOptions options = kQuick;
  options.max_interval = absl::Hours(1);
  Answers answers("dns://" + server.address() + "/workers.test:1", options);
  answers.Next();
  server.Set({"10.0.0.2"});
  answers.resolver().Refresh();
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.2:1"));
}

}  // namespace
}  // namespace continuo::gateway
