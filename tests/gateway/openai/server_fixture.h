// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "services/gateway/openai/api.h"
#include "services/gateway/openai/http/http_server.h"
#include "tests/gateway/openai/fake_api.h"
#include "tests/gateway/openai/fake_generate_service.h"
#include "tests/gateway/openai/http_client.h"

namespace continuo::gateway::openai {

inline constexpr char kChatPath[] = "/v1/chat/completions";
inline constexpr char kCompletionsPath[] = "/v1/completions";

// A server on a port of its own in front of a FakeGenerateService.
class ServerTest : public ::testing::Test {
 protected:
  using Json = nlohmann::json;

  void StartServer(HttpLimits limits = {}) {
    ApiDependencies dependencies = FakeApi(&service_, &clock_);
    dependencies.cors = cors_;
    dependencies.steps = steps_;
    dependencies.max_step_watchers = max_step_watchers_;
    dependencies.event_ids = event_ids_;
    if (!models_.empty()) {
      dependencies.models = [this](const ClientCall& /*call*/) {
        std::vector<v1::Model> models;
        for (const std::string& name : models_) {
          v1::Model& model = models.emplace_back();
          model.set_name(name);
          if (name == adapter_) model.set_parent(models_.front());
          model.set_embedding_dimensions(dimensions_);
        }
        return models;
      };
    }
    server_.reset();
    api_ = std::make_unique<Api>(std::move(dependencies));
    auto server = HttpServer::Start({.listen = "127.0.0.1:0", .num_threads = 2, .limits = limits},
                                    api_.get());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void TearDown() override {
    service_.Release();
    server_.reset();
    api_.reset();
  }

  HttpClient Connect() { return HttpClient(server_->port()); }
  HttpClient::Response Post(const std::string& path, const std::string& body,
                            const std::string& headers = "") {
    HttpClient client = Connect();
    client.Post(path, body, headers);
    return client.Read();
  }
  HttpClient::Response Get(const std::string& path) {
    HttpClient client = Connect();
    client.Get(path);
    return client.Read();
  }
  // The worker's answer to request number `number`.
  std::string ExpectedText(size_t number = 0, uint32_t sequence = 0) {
    return UndisturbedAnswer(service_.requests().at(number)).sequences[sequence].text;
  }
  // The text of the first choice of a stream.
  static std::string TextOf(const std::string& events) {
    std::string text;
    for (size_t at = 0; (at = events.find("data: {", at)) != std::string::npos; ++at) {
      const size_t begin = at + 6;
      const Json event = Json::parse(events.substr(begin, events.find('\n', begin) - begin));
      if (!event.contains("choices") || event["choices"].empty()) continue;
      const Json& choice = event["choices"][0];
      text +=
          choice.contains("text") ? choice.value("text", "") : choice["delta"].value("content", "");
    }
    return text;
  }

  const SystemClock clock_{};
  CorsPolicy cors_;
  StepFeed* steps_ = nullptr;
  int max_step_watchers_ = 32;
  bool event_ids_ = true;
  std::vector<std::string> models_;  // of callers; empty: those of FakeApi
  std::string adapter_;              // which of them is a LoRA adapter of the first
  uint32_t dimensions_ = 0;          // of the vectors that they make
  FakeGenerateService service_;
  std::unique_ptr<Api> api_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace continuo::gateway::openai
