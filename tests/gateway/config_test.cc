// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/config.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace continuo::gateway {
namespace {

int64_t All(const GatewayConfig& c) {
  return static_cast<int64_t>(c.max_buffer_bytes) + c.admission.max_open_bytes +
         c.forwarded.max_open_bytes + c.http.max_bodies_bytes + c.http.max_answers_bytes;
}

constexpr int64_t kMiB = 1 << 20;

ParsedConfig Parse(const std::vector<const char*>& flags) {
  std::vector<const char*> argv = {"continuo-gateway"};
  argv.insert(argv.end(), flags.begin(), flags.end());
  return ParseGatewayConfig(static_cast<int>(argv.size()), argv.data());
}

TEST(ParseGatewayConfigTest, FlagsAreInTheConfiguration) {
  const ParsedConfig parsed =
      Parse({"--workers=a:1;b:2@5", "--max_open_bytes=2MiB", "--no_worker_wait=7s",
             "--trust_tenant_header", "--worker_tls_ca_file=ca.pem",
             "--otlp_endpoint=collector:4317", "--models=a,org/b", "--cold_start_wait=20m"});
  ASSERT_EQ(parsed.exit_code, std::nullopt);
  EXPECT_EQ(parsed.config.workers, "a:1;b:2@5");
  EXPECT_EQ(parsed.config.admission.max_open_bytes, 2 * kMiB);
  EXPECT_EQ(parsed.config.relay.retry.no_worker_wait, absl::Seconds(7));
  EXPECT_EQ(parsed.config.models, (std::vector<std::string>{"a", "org/b"}));
  EXPECT_EQ(parsed.config.relay.retry.cold_start_wait, absl::Minutes(20));
  EXPECT_TRUE(parsed.config.auth.trust_tenant_header);
  EXPECT_EQ(parsed.config.worker_tls.ca_file, "ca.pem");
  EXPECT_EQ(parsed.config.otlp.endpoint, "collector:4317");
}

TEST(ParseGatewayConfigTest, PeersAreKnownByNamesAndTokens) {
  const ParsedConfig parsed =
      Parse({"--workers=w:1", "--worker_tls_names=a.test,spiffe://b/c", "--token_file=/t"});
  ASSERT_FALSE(parsed.exit_code.has_value());
  EXPECT_EQ(parsed.config.worker_tls_names, (std::vector<std::string>{"a.test", "spiffe://b/c"}));
  EXPECT_EQ(parsed.config.token_file, "/t");
}

TEST(ParseGatewayConfigTest, ReplaysAreBoundedAndTheLedgerIsAFile) {
  const ParsedConfig parsed =
      Parse({"--workers=w:1", "--tenant_max_replays=3", "--usage_log=/var/log/usage"});
  ASSERT_FALSE(parsed.exit_code.has_value());
  EXPECT_EQ(parsed.config.http.tenant_max_replays, 3);
  EXPECT_EQ(HttpLimitsOf(parsed.config).tenant_max_replays, 3);
  EXPECT_EQ(parsed.config.usage_log, "/var/log/usage");
  EXPECT_FALSE(parsed.config.usage_otlp);
  EXPECT_TRUE(Parse({"--workers=w:1", "--usage_otlp"}).config.usage_otlp);
}

TEST(ParseGatewayConfigTest, EventsHaveIdsUnlessAFlagSaysOtherwise) {
  EXPECT_TRUE(Parse({"--workers=w:1"}).config.http_event_ids);
  EXPECT_FALSE(Parse({"--workers=w:1", "--http_event_ids=false"}).config.http_event_ids);
}

TEST(ParseGatewayConfigTest, WorkersAreNeeded) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(Parse({"--listen=127.0.0.1:0"}).exit_code, 2);
  const std::string error = testing::internal::GetCapturedStderr();
  EXPECT_NE(error.find("--workers is needed: "), std::string::npos) << error;
  EXPECT_NE(error.find("host:port,host:port or dns:///NAME:PORT"), std::string::npos) << error;
}

TEST(ParseGatewayConfigTest, ABadValueIsToldBeforeAMissingFlag) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(Parse({"--routing_policy=best"}).exit_code, 2);
  const std::string error = testing::internal::GetCapturedStderr();
  EXPECT_NE(error.find("--routing_policy"), std::string::npos) << error;
}

TEST(ParseGatewayConfigTest, HelpAndVersionEndTheProgramWell) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(Parse({"--help"}).exit_code, 0);
  EXPECT_EQ(Parse({"--version"}).exit_code, 0);
  testing::internal::GetCapturedStdout();
}

TEST(FitMemoryTest, ALargeContainerChangesNothing) {
  GatewayConfig config;
  const GatewayConfig before = config;
  FitMemory(4096 * kMiB, {}, &config);
  EXPECT_EQ(All(config), All(before));
  EXPECT_EQ(config.http.max_answer_bytes, before.http.max_answer_bytes);
}

TEST(FitMemoryTest, ASmallOneIsNeverPromisedMoreThanThreeQuarters) {
  for (const int64_t memory : {2048 * kMiB, 1024 * kMiB, 64 * kMiB}) {
    GatewayConfig config;
    FitMemory(static_cast<uint64_t>(memory), {}, &config);
    EXPECT_LE(All(config), memory * 3 / 4);
    EXPECT_GT(All(config), memory * 7 / 10);
    // Everybody gives the same part.
    EXPECT_NEAR(static_cast<double>(config.admission.max_open_bytes),
                static_cast<double>(config.max_buffer_bytes), 1);
    EXPECT_LE(config.http.max_answer_bytes, config.http.max_answers_bytes);
  }
}

TEST(FitMemoryTest, WhatWasChosenStaysAndTheRestMakesRoom) {
  GatewayConfig config;
  config.max_buffer_bytes = 1024 * kMiB;
  FitMemory(2048 * kMiB, {.buffer_bytes = true}, &config);
  EXPECT_EQ(config.max_buffer_bytes, 1024 * kMiB);
  EXPECT_LE(All(config), 1536 * kMiB);
  EXPECT_GT(All(config), 1535 * kMiB);
}

TEST(FitMemoryTest, EachLimitKeepsWhatItsFlagTakesAtLeast) {
  for (const int64_t memory : {int64_t{0}, kMiB, 64 * kMiB}) {
    GatewayConfig config;
    config.admission.max_open_bytes = 3072 * kMiB;
    FitMemory(static_cast<uint64_t>(memory), {.open_bytes = true}, &config);
    EXPECT_EQ(config.admission.max_open_bytes, 3072 * kMiB);
    EXPECT_EQ(config.max_buffer_bytes, 16 * kMiB);
    EXPECT_EQ(config.http.max_bodies_bytes, kMiB);
    EXPECT_EQ(config.http.max_answer_bytes, kMiB);
  }
}

TEST(HttpLimitsOfTest, ABodyIsARequestAndHasRoom) {
  GatewayConfig config;
  EXPECT_EQ(HttpLimitsOf(config).max_body_bytes, 8 * kMiB);
  config.max_request_bytes = 64 * kMiB;
  EXPECT_EQ(HttpLimitsOf(config).max_body_bytes, 64 * kMiB);
  config.http.max_bodies_bytes = 35 * kMiB;
  EXPECT_EQ(HttpLimitsOf(config).max_body_bytes, 35 * kMiB / 2);
}

}  // namespace
}  // namespace continuo::gateway
