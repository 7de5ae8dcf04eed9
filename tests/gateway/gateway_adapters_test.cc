// SPDX-License-Identifier: Apache-2.0
// Tests /v1/load_lora_adapter and /v1/unload_lora_adapter with a whole gateway and fake workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "tests/gateway/gateway_fixture.h"
#include "tests/gateway/openai/http_client.h"
#include "tests/testing/temp_folder.h"

namespace continuo::gateway {
namespace {

using openai::HttpClient;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using Json = nlohmann::json;

constexpr char kLoad[] = "/v1/load_lora_adapter", kUnload[] = "/v1/unload_lora_adapter";
constexpr char kPoet[] = R"({"lora_name":"poet","lora_path":"/adapters/poet"})";

class GatewayAdaptersTest : public GatewayTest {
 protected:
  void Start(int num_workers, GatewayConfig config = {.allow_lora_updates = true}) {
    AddWorkers(num_workers);
    for (int i = 0; i < num_workers; ++i) {
      workers_[static_cast<size_t>(i)]->SetAdapterScript(
          [this, i](const std::string& name, const std::string& path) {
            absl::MutexLock lock(&mutex_);
            asked_.push_back(absl::StrCat(i, " ", name, " ", path));
            return grpc::Status::OK;
          });
    }
    StartGateway(config);
  }
  void FailAt(size_t worker, grpc::StatusCode code, const std::string& message) {
    workers_[worker]->SetAdapterScript([code, message](const std::string&, const std::string&) {
      return grpc::Status(code, message);
    });
  }
  struct Reply {
    int status;
    Json body;
  };
  Reply Post(const std::string& path, const std::string& body, const std::string& headers = "") {
    HttpClient client(gateway_->http_port());
    client.Post(path, body, headers);
    const HttpClient::Response response = client.Read();
    return {static_cast<int>(response.result_int()), Json::parse(response.body())};
  }
  std::vector<std::string> asked() {
    absl::MutexLock lock(&mutex_);
    return asked_;
  }

  absl::Mutex mutex_;
  std::vector<std::string> asked_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(GatewayAdaptersTest, EveryWorkerIsAsked) {
  Start(3);
  WaitForWorkers(3);
  Reply reply = Post(kLoad, kPoet);
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.body, Json::parse(R"({"lora_name":"poet","model":"fake","workers":[
      {"worker":"worker-0","code":"OK"},{"worker":"worker-1","code":"OK"},
      {"worker":"worker-2","code":"OK"}]})"));
  EXPECT_THAT(asked(), UnorderedElementsAre("0 poet /adapters/poet", "1 poet /adapters/poet",
                                            "2 poet /adapters/poet"));
  reply = Post(kUnload, R"({"lora_name":"poet","model":"fake"})");
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_THAT(asked(), ::testing::SizeIs(6));
  EXPECT_EQ(Post(kLoad, R"({"lora_name":"p","lora_path":"p","model":"other"})").status, 404);
}

TEST_F(GatewayAdaptersTest, AFailureAtOneWorkerIsToldWithAllOutcomes) {
  Start(2);
  WaitForWorkers(2);
  FailAt(1, grpc::StatusCode::NOT_FOUND, "no such folder");
  const Reply reply = Post(kLoad, kPoet);
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(reply.body["error"]["message"],
            "1 of 2 workers failed: worker \"worker-1\": no such folder");
  EXPECT_EQ(reply.body["workers"], Json::parse(R"([{"worker":"worker-0","code":"OK"},
      {"worker":"worker-1","code":"NOT_FOUND","message":"no such folder"}])"));
  EXPECT_THAT(asked(), ElementsAre("0 poet /adapters/poet"));
}

TEST_F(GatewayAdaptersTest, WorkersThatTakeNoCallsHaveFailed) {
  Start(2);
  WaitForWorkers(2);
  workers_[1]->SetState(v1::WORKER_STATE_LOADING);
  WaitForWorkers(1);
  const Reply reply = Post(kLoad, kPoet);
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.body["workers"][1]["message"], "the worker is loading");
}

TEST_F(GatewayAdaptersTest, AnOlderWorkerIsNamedWithoutItsAddress) {
  Start(1);
  WaitForWorkers(1);
  workers_[0]->SetAdapterScript(nullptr);
  const Reply reply = Post(kLoad, kPoet);
  EXPECT_EQ(reply.status, 501);
  EXPECT_THAT(reply.body.dump(), Not(HasSubstr("127.0.0.1")));
}

TEST_F(GatewayAdaptersTest, BodiesAreChecked) {
  Start(1);
  WaitForWorkers(1);
  const auto param = [&](const std::string& path, const std::string& body) {
    const Reply reply = Post(path, body);
    EXPECT_EQ(reply.status, 400) << reply.body;
    const Json& param = reply.body["error"]["param"];
    return param.is_string() ? param.get<std::string>() : "";
  };
  EXPECT_EQ(param(kLoad, R"({"lora_path":"p"})"), "lora_name");
  EXPECT_EQ(param(kLoad, R"({"lora_name":"p"})"), "lora_path");
  EXPECT_EQ(param(kLoad, R"({"lora_name":"","lora_path":"p"})"), "lora_name");
  EXPECT_EQ(param(kLoad, R"({"lora_name":7,"lora_path":"p"})"), "lora_name");
  EXPECT_EQ(param(kLoad, R"({"lora_name":"p","lora_path":"p","load_inplace":true})"),
            "load_inplace");
  EXPECT_EQ(param(kLoad, R"({"lora_name":"p","lora_path":"p","rank":8})"), "rank");
  EXPECT_EQ(param(kUnload, R"({"lora_name":"p","lora_path":"p"})"), "lora_path");
  EXPECT_EQ(param(kUnload, R"({"lora_name":"p","lora_int_id":3})"), "lora_int_id");
  EXPECT_EQ(param(kLoad, "[]"), "");
  EXPECT_THAT(asked(), IsEmpty());
}

TEST_F(GatewayAdaptersTest, OffUnlessTheFlagSaysOtherwise) {
  Start(1, {});
  WaitForWorkers(1);
  const Reply reply = Post(kLoad, kPoet);
  EXPECT_EQ(reply.status, 403);
  EXPECT_THAT(reply.body.dump(), HasSubstr("--allow_lora_updates"));
  EXPECT_THAT(asked(), IsEmpty());
}

TEST_F(GatewayAdaptersTest, AKeyNeedsTheRight) {
  const testing::TempFolder temp;
  GatewayConfig config = {.allow_lora_updates = true};
  config.auth.keys_file = (temp.path() / "keys").string();
  std::ofstream(config.auth.keys_file) << "alice key-of-alice-0123\n"
                                          "root key-of-root-012345 admin=true\n"
                                          "some key-of-some-012345 admin=true models=clerk\n";
  Start(1, config);
  const auto post = [&](const std::string& key) {
    return Post(kLoad, kPoet, absl::StrCat("Authorization: Bearer ", key, "\r\n")).status;
  };
  EXPECT_EQ(Post(kLoad, kPoet).status, 401);
  EXPECT_EQ(post("key-of-alice-0123"), 403);
  EXPECT_EQ(post("key-of-some-012345"), 403);
  // The worker may not be known yet.
  int status = 503;
  while (status == 503) status = post("key-of-root-012345");
  EXPECT_EQ(status, 200);
  EXPECT_THAT(asked(), ElementsAre("0 poet /adapters/poet"));
}

TEST_F(GatewayAdaptersTest, AShutdownDoesNotWaitForAWorker) {
  Start(1);
  WaitForWorkers(1);
  absl::Notification asked;
  workers_[0]->SetAdapterScript([&](const std::string&, const std::string&) {
    asked.Notify();
    release_.WaitForNotification();
    return grpc::Status::OK;
  });
  HttpClient client(gateway_->http_port());
  client.Post(kLoad, kPoet, "");
  asked.WaitForNotification();
  gateway_.reset();
  release_.Notify();
}

TEST_F(GatewayAdaptersTest, AGatewayWithASubsetCannotAskAll) {
  AddWorkers(1);
  GatewayConfig config = {.allow_lora_updates = true};
  config.listen = config.http_listen = config.metrics_listen = "127.0.0.1:0";
  config.workers = Addresses();
  config.subset.gateways = "127.0.0.1:1";
  const auto gateway = Gateway::Start(config);
  ASSERT_FALSE(gateway.ok());
  EXPECT_THAT(std::string(gateway.status().message()), HasSubstr("--allow_lora_updates"));
}

}  // namespace
}  // namespace continuo::gateway
