// SPDX-License-Identifier: Apache-2.0
// Tests of the Open Inference Protocol over HTTP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/gateway/openai/routes/routes.h"
#include "services/protocol/error.h"
#include "tests/gateway/openai/server_fixture.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::HasSubstr;

constexpr char kInfer[] = "/v2/models/fake/infer";
constexpr char kText[] =
    R"({"id":"i","inputs":[{"name":"text_input","shape":[1],"datatype":"BYTES","data":["once"]}]})";

class KserveTest : public ServerTest {
 protected:
  // The texts of a stream's events, joined.
  static std::string TextOutputs(const std::string& events) {
    std::string text;
    for (size_t at = 0; (at = events.find("data: {", at)) != std::string::npos; ++at) {
      const std::string line = events.substr(at + 6, events.find('\n', at) - at - 6);
      text += Json::parse(line).value("text_output", "");
    }
    return text;
  }
};

TEST_F(KserveTest, AnInferenceIsTheWorkersAnswer) {
  StartServer();
  const HttpClient::Response response = Post(kInfer, kText);
  ASSERT_EQ(response.result_int(), 200) << response.body();
  EXPECT_EQ(response["Content-Type"], "application/json");
  const Json body = Json::parse(response.body());
  EXPECT_EQ(body["id"], "i");
  EXPECT_EQ(body["model_version"], "1");
  EXPECT_EQ(body["outputs"][0]["name"], "text_output");
  EXPECT_EQ(body["outputs"][0]["data"], Json::array({ExpectedText()}));
  EXPECT_EQ(service_.requests().at(0).model(), "fake");
}

TEST_F(KserveTest, OutputsComeAsBytesWhereTheyAreAskedFor) {
  StartServer();
  std::string text = kText;
  text.insert(1, R"("parameters":{"binary_data_output":true},)");
  const HttpClient::Response response = Post("/v2/models/fake/versions/1/infer", text);
  ASSERT_EQ(response.result_int(), 200) << response.body();
  EXPECT_EQ(response["Content-Type"], "application/octet-stream");
  const size_t json_bytes = std::stoul(std::string(response["Inference-Header-Content-Length"]));
  const Json outputs = Json::parse(response.body().substr(0, json_bytes))["outputs"];
  const size_t size = outputs[0]["parameters"]["binary_data_size"];
  EXPECT_EQ(response.body().substr(json_bytes + 4, size - 4), ExpectedText());
  EXPECT_EQ(Post(kInfer, text, "Inference-Header-Content-Length: no\r\n").result_int(), 400);
}

TEST_F(KserveTest, AGenerationIsOneObjectOrAStreamOfThem) {
  StartServer();
  const std::string body = R"({"text_input":"once","parameters":{"max_tokens":30}})";
  const HttpClient::Response whole = Post("/v2/models/fake/generate", body);
  ASSERT_EQ(whole.result_int(), 200) << whole.body();
  EXPECT_EQ(Json::parse(whole.body())["text_output"], ExpectedText());
  const HttpClient::Response stream = Post("/v2/models/fake/generate_stream", body);
  EXPECT_EQ(stream["Content-Type"], "text/event-stream; charset=utf-8");
  EXPECT_EQ(TextOutputs(stream.body()), ExpectedText(1));
  EXPECT_THAT(stream.body(), HasSubstr("\nid: "));
}

TEST_F(KserveTest, AStreamGoesOnBehindEachOfItsEvents) {
  StartServer();
  const std::string path = "/v2/models/fake/generate_stream";
  const std::string body = R"({"text_input":"once","temperature":0,"max_tokens":30})";
  const std::string whole = Post(path, body).body();
  std::string before;
  for (size_t at = 0, end; (end = whole.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const std::string event = whole.substr(at, end + 2 - at);
    before += event;
    const size_t id = event.find("\nid: ");
    ASSERT_NE(id, std::string::npos) << event;
    const std::string last = event.substr(id + 5, event.size() - id - 7);
    const HttpClient::Response rest =
        Post(path, body, absl::StrCat("Last-Event-ID: ", last, "\r\n"));
    if (end + 2 == whole.size()) {
      EXPECT_EQ(rest.result_int(), 204);
    } else {
      EXPECT_EQ(TextOutputs(before) + TextOutputs(rest.body()), TextOutputs(whole));
    }
  }
  // However many there are: responses that come together are one event.
  EXPECT_EQ(before, whole);
  EXPECT_THAT(before, HasSubstr("text_output"));
}

TEST_F(KserveTest, ModelsAndTheGatewayAreTold) {
  models_ = {"org/fake", "b"};
  StartServer();
  const Json server = Json::parse(Get("/v2").body());
  EXPECT_EQ(server["name"], "continuo");
  EXPECT_EQ(server["version"], "1.2.3");
  EXPECT_EQ(Get("/v2/health/live").body(), R"({"live":true})");
  for (const char* const path : {"/v2/models/org/fake", "/v2/models/org%2Ffake/versions/1"}) {
    const HttpClient::Response response = Get(path);
    ASSERT_EQ(response.result_int(), 200) << path;
    const Json model = Json::parse(response.body());
    EXPECT_EQ(model["name"], "org/fake");
    EXPECT_EQ(model["inputs"][0]["name"], "text_input");
    EXPECT_EQ(model["inputs"][1]["shape"], Json::array({-1}));
  }
  // No worker has reported.
  EXPECT_EQ(Get("/v2/models/b/ready").result_int(), 503);
  const Json index = Json::parse(Post("/v2/repository/index", "{}").body());
  ASSERT_EQ(index.size(), 2u);
  EXPECT_EQ(index[1]["name"], "b");
  EXPECT_EQ(Json::parse(Post("/v2/repository/index", R"({"ready":true})").body()), Json::array());
}

TEST_F(KserveTest, ErrorsHaveTheProtocolsForm) {
  models_ = {"fake"};
  StartServer();
  const auto error = [](const HttpClient::Response& response, unsigned status) {
    EXPECT_EQ(response.result_int(), status) << response.body();
    return Json::parse(response.body())["error"].get<std::string>();
  };
  EXPECT_THAT(error(Get("/v2/models/another"), 404), HasSubstr("another"));
  EXPECT_THAT(error(Get("/v2/models/fake/versions/2"), 404), HasSubstr("2"));
  EXPECT_THAT(error(Get(kInfer), 405), HasSubstr("GET"));
  EXPECT_THAT(error(Post(kInfer, "{"), 400), HasSubstr("JSON"));
  EXPECT_THAT(error(Post("/v2/models/fake/versions/2/infer", kText), 404), HasSubstr("version"));
  EXPECT_THAT(error(Post("/v2/models/fake/generate", R"({"text_input":"a","wishes":1})"), 400),
              HasSubstr("wishes"));
  EXPECT_THAT(error(Post("/v2/repository/index", R"({"wishes":1})"), 400), HasSubstr("wishes"));
  service_.SetScript({.fail_at = 0, .failure = protocol::FieldError("sampling.top_p", "is odd")});
  EXPECT_EQ(error(Post(kInfer, kText), 400), "top_p: is odd");
  service_.SetScript({.fail_at = 0, .failure = absl::DataLossError("at 10.0.0.7:50051")});
  EXPECT_THAT(error(Post(kInfer, kText), 500), HasSubstr("the server had an error"));
}

TEST_F(KserveTest, AModelWhoseNameIsAPathHasItInEveryCall) {
  models_ = {"/models/demo"};
  service_.ServeModel("/models/demo");
  StartServer();
  for (const std::string path : {"/v2/models//models/demo", "/v2/models/models/demo"}) {
    const HttpClient::Response told = Get(path);
    ASSERT_EQ(told.result_int(), 200) << told.body();
    EXPECT_EQ(Json::parse(told.body())["name"], "/models/demo");
    std::string named = kText;
    named.insert(1, R"("model_name":"/models/demo",)");
    const HttpClient::Response infer = Post(path + "/infer", named);
    EXPECT_EQ(infer.result_int(), 200) << infer.body();
    EXPECT_EQ(service_.requests().back().model(), "/models/demo");
    EXPECT_EQ(Post(path + "/generate", R"({"text_input":"once"})").result_int(), 200);
    EXPECT_EQ(service_.requests().back().model(), "/models/demo");
  }
}

TEST_F(KserveTest, AnErrorInAStreamIsItsLastEvent) {
  StartServer();
  service_.SetScript({.hold_at = 3, .fail_at = 3, .failure = absl::DataLossError("gone")});
  HttpClient client = Connect();
  client.Post("/v2/models/fake/generate_stream", R"({"text_input":"once"})");
  client.ReadUntil("\r\n\r\n");
  ASSERT_TRUE(service_.WaitForHeld(1));
  service_.Release();
  EXPECT_THAT(client.ReadUntil("\r\n0\r\n\r\n"),
              HasSubstr(R"(data: {"error":"the server had an error)"));
}

TEST(InferencePathTest, TheModelAndItsVersion) {
  struct Case {
    std::string path, model, version;
    RouteId route;
  };
  for (const Case& c : std::vector<Case>{
           {"/v2/models/m", "m", "", RouteId::kInferenceModel},
           {"/v2/models/a/b", "a/b", "", RouteId::kInferenceModel},
           {"/v2/models/a/b/versions/1/ready", "a/b", "1", RouteId::kInferenceModelReady},
           {"/v2/models/versions/versions/1/infer", "versions", "1", RouteId::kInfer},
           {"/v2/models/m/versions/a/b/generate", "m/versions/a/b", "", RouteId::kGenerate},
           {"/v2/models/m/generate_stream", "m", "", RouteId::kGenerateStream}}) {
    EXPECT_EQ(InferencePathOf(c.path).model, c.model) << c.path;
    EXPECT_EQ(InferencePathOf(c.path).version, c.version) << c.path;
    const Route* const route = FindRoute(c.path);
    ASSERT_NE(route, nullptr) << c.path;
    EXPECT_EQ(route->id, c.route) << c.path;
  }
  for (const char* const path : {"/v2/models", "/v2/models/infer", "/v2/health"}) {
    EXPECT_EQ(FindRoute(path), nullptr) << path;
  }
}

}  // namespace
}  // namespace continuo::gateway::openai
