// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/gateway/discovery/resolver.h"
#include "tests/gateway/discovery/answers.h"
#include "tests/gateway/discovery/fake_api_server.h"

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kPath[] =
    "/apis/discovery.k8s.io/v1/namespaces/llm/endpointslices?labelSelector="
    "kubernetes.io%2Fservice-name%3Dworkers";

class KubernetesResolverTest : public ::testing::Test {
 protected:
  ResolverOptions Options() {
    ResolverOptions options = kQuick;
    options.service_account = account_;
    return options;
  }
  // A list whose slice has one address.
  static std::string List(const char* address, const char* version, const char* next = "") {
    return absl::StrCat(R"({"metadata":{"resourceVersion":")", version, R"(","continue":")", next,
                        R"("},"items":[)", Slice(address, address, version), "]}");
  }
  static std::string Slice(const char* name, const char* address, const char* version) {
    return absl::StrCat(R"({"metadata":{"name":")", name, R"(","resourceVersion":")", version,
                        R"("},"addressType":"IPv4","ports":[],"endpoints":[{"addresses":[")",
                        address, R"("]}]})");
  }
  static std::string Event(const char* type, const char* name, const char* version) {
    return absl::StrCat(R"({"type":")", type, R"(","object":)", Slice(name, name, version), "}\n");
  }
  // Answers the list and begins the watch.
  void Serve() {
    server_.Next();
    server_.Answer(List("10.0.0.1", "5"));
    server_.Next();
    server_.BeginWatch();
  }

  FakeApiServer server_;
  const std::string account_ = server_.account();
};

TEST_F(KubernetesResolverTest, APagedListIsFollowedByAWatchWhoseEventsArriveAtOnce) {
  Answers answers(server_.Target("workers.llm:50051"), Options());
  FakeApiServer::Request request = server_.Next();
  EXPECT_EQ(request.target, absl::StrCat(kPath, "&limit=100"));
  EXPECT_EQ(request.authorization, "Bearer first");
  server_.WriteFile("token", "second");
  server_.Answer(List("10.0.0.1", "5", "next/page"));
  request = server_.Next();
  EXPECT_EQ(request.target, absl::StrCat(kPath, "&limit=100&continue=next%2Fpage"));
  EXPECT_EQ(request.authorization, "Bearer second");
  server_.Answer(List("10.0.0.2", "5"));
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.1:50051", "10.0.0.2:50051"));

  EXPECT_THAT(server_.Next().target, StartsWith(absl::StrCat(kPath, "&watch=1")));
  server_.BeginWatch();
  const std::string event = Event("ADDED", "10.0.0.3", "6");
  server_.Send(event.substr(0, 20));
  server_.Send(absl::StrCat(event.substr(20), Event("DELETED", "10.0.0.1", "7")));
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.2:50051", "10.0.0.3:50051"));
}

TEST_F(KubernetesResolverTest, AWatchGoesOnWhereItWasCut) {
  Answers answers(server_.Target("workers:1"), Options());
  Serve();
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.1:1"));
  server_.Send(Event("ADDED", "10.0.0.2", "8"));
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.1:1", "10.0.0.2:1"));
  server_.Cut();
  EXPECT_THAT(server_.Next().target, HasSubstr("&resourceVersion=8"));
  server_.BeginWatch();
  server_.EndWatch();  // As the server does after a while.
  EXPECT_THAT(server_.Next().target, HasSubstr("&resourceVersion=8"));
  server_.BeginWatch();
  server_.Send(Event("DELETED", "10.0.0.1", "9"));
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.2:1"));
}

TEST_F(KubernetesResolverTest, AWatchThatIsTooOldIsFollowedByAList) {
  Answers answers(server_.Target("workers.llm:1"), Options());
  Serve();
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.1:1"));
  server_.Send("{\"type\":\"ERROR\",\"object\":{\"code\":410,\"message\":\"too old\"}}\n");
  EXPECT_THAT(server_.Next().target, Not(HasSubstr("watch")));
  server_.Answer(List("10.0.0.5", "50"));
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.5:1"));
  EXPECT_THAT(server_.Next().target, HasSubstr("&resourceVersion=50"));
  server_.Answer(R"({"message":"gone"})", "410 Gone");
  EXPECT_THAT(server_.Next().target, Not(HasSubstr("watch")));
  server_.Answer(List("10.0.0.6", "60"));
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.6:1"));
}

TEST_F(KubernetesResolverTest, AddressesStayWhileTheServerRefusesOrSendsNonsense) {
  Answers answers(server_.Target("workers.llm:1"), Options());
  server_.Next();
  server_.Answer(R"({"kind":"Status","message":"no list for you"})", "403 Forbidden");
  server_.Next();
  server_.Answer(List("10.0.0.1", "5", "more"));
  server_.Next();
  server_.Answer("nonsense");  // The second page; the first one alone is not reported.
  EXPECT_TRUE(answers.empty());
  Serve();
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.1:1"));
  server_.Send("nonsense\n");
  server_.Next();
  server_.Answer("", "500 Internal Server Error");
  server_.Next();
  EXPECT_TRUE(answers.empty());
  server_.Answer(List("10.0.0.1", "9"));
  EXPECT_THAT(server_.Next().target, HasSubstr("&resourceVersion=9"));
  EXPECT_TRUE(answers.empty());
}

TEST_F(KubernetesResolverTest, AServerOfAnotherAuthorityIsAskedNothing) {
  const auto other = testing::MakeTestCertificate("other", nullptr);
  server_.WriteAuthority(*other);
  Answers answers(server_.Target("workers.llm:1"), Options());
  server_.RefuseNext();
  server_.WriteAuthority(server_.authority());
  answers.resolver().Refresh();
  // A handshake with the old file may have begun before.
  server_.Next();
  server_.Answer(List("10.0.0.1", "5"));
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.1:1"));
}

TEST_F(KubernetesResolverTest, TheServerIsToldTheAddressThatWasAsked) {
  Answers answers(server_.Target("workers.llm:1"), Options());
  EXPECT_EQ(server_.Next().host, absl::StrCat("localhost:", server_.port()));
  server_.Answer(List("10.0.0.1", "5"));
  EXPECT_THAT(answers.Next(), ElementsAre("10.0.0.1:1"));
}

TEST(KubernetesResolverOverIPv6Test, AddressesOfTheServerAreBracketed) {
  boost::asio::io_context context;
  boost::system::error_code error;
  boost::asio::ip::tcp::acceptor probe(context);
  probe.open(boost::asio::ip::tcp::v6(), error);
  if (!error) probe.bind({boost::asio::ip::address_v6::loopback(), 0}, error);
  if (error) GTEST_SKIP() << "no IPv6 here: " << error.message();

  FakeApiServer server("::1");
  ResolverOptions options = kQuick;
  const std::string account = server.account();
  options.service_account = account;
  // As kubelets set it: without brackets.
  setenv("KUBERNETES_SERVICE_HOST", "::1", 1);
  setenv("KUBERNETES_SERVICE_PORT", absl::StrCat(server.port()).c_str(), 1);
  Answers answers("kubernetes:///workers.llm:1", options);
  unsetenv("KUBERNETES_SERVICE_HOST");
  unsetenv("KUBERNETES_SERVICE_PORT");
  EXPECT_EQ(server.Next().host, absl::StrCat("[::1]:", server.port()));
  server.Answer(R"({"metadata":{"resourceVersion":"5"},"items":[]})");
  EXPECT_THAT(answers.Next(), IsEmpty());
}

TEST_F(KubernetesResolverTest, WhatThePodHasIsTheDefault) {
  ResolverOptions options = Options();
  unsetenv("KUBERNETES_SERVICE_HOST");
  absl::Status status = MakeResolver("kubernetes:///workers:1", options).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("KUBERNETES_SERVICE_HOST"));
  setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
  setenv("KUBERNETES_SERVICE_PORT", "443", 1);
  EXPECT_TRUE(MakeResolver("kubernetes:///workers:1", options).ok());
  options.service_account = "/nowhere";
  status = MakeResolver("kubernetes:///workers:1", options).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/namespace"));
  unsetenv("KUBERNETES_SERVICE_HOST");
  unsetenv("KUBERNETES_SERVICE_PORT");
}

}  // namespace
}  // namespace continuo::gateway
