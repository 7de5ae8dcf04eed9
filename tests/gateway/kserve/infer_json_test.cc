// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/kserve/call/infer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/gateway/kserve/call/answer_json.h"
#include "services/protocol/error.h"

namespace continuo::gateway::kserve {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const ServedName kModel = {.model = "m", .version = ""};

std::string InputsWith(const std::string& tensors) {
  return R"({"inputs":[{"name":"text_input","shape":[1],"datatype":"BYTES","data":["once"]})" +
         tensors + "]}";
}

std::string Message(const std::string& body) {
  const auto call = ReadInferJson(kModel, body, std::nullopt);
  EXPECT_EQ(call.status().code(), absl::StatusCode::kInvalidArgument) << body;
  return std::string(call.status().message());
}

std::string GenerateMessage(const std::string& body, bool stream = false) {
  const auto call = ReadGenerateJson(kModel, body, stream);
  EXPECT_EQ(call.status().code(), absl::StatusCode::kInvalidArgument) << body;
  return std::string(call.status().message());
}

TEST(InferJsonTest, TensorsAndParametersAreMembers) {
  const auto call = ReadInferJson({.model = "m", .version = "1"}, R"({
      "id": "seven", "model_name": "m", "parameters": {"temperature": 0.5, "logit_bias": {"3": 1}},
      "inputs": [{"name": "input_ids", "shape": [2, 2], "datatype": "INT64", "data": [[1, 2], [3, 4]]},
                 {"name": "max_tokens", "shape": [1], "datatype": "UINT32", "data": [9]},
                 {"name": "return_num_output_tokens", "shape": [1], "datatype": "BOOL", "data": [true]}],
      "outputs": [{"name": "text_output"}, {"name": "num_input_tokens"}]})",
                                  std::nullopt);
  ASSERT_TRUE(call.ok()) << call.status();
  const v1::GenerateRequest& request = call->call.request;
  EXPECT_EQ(request.model(), "m");
  EXPECT_THAT(request.token_ids().ids(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(request.stopping().max_tokens(), 9u);
  EXPECT_FLOAT_EQ(request.sampling().temperature(), 0.5);
  EXPECT_FALSE(request.output().collect());
  EXPECT_EQ(call->call.id, "seven");
  EXPECT_TRUE(call->call.has_text && call->call.has_num_input_tokens);
  EXPECT_FALSE(call->call.has_finish_reason || call->call.has_num_output_tokens);
  EXPECT_FALSE(call->binary.Has("text_output"));
}

TEST(InferJsonTest, BytesBehindTheJson) {
  const std::string text = R"({"parameters":{"binary_data_output":true},
      "inputs":[{"name":"max_tokens","shape":[1],"datatype":"INT32","parameters":{"binary_data_size":4}},
                {"name":"text_input","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":8}}],
      "outputs":[{"name":"text_output"},{"name":"finish_reason","parameters":{"binary_data":false}}]})";
  const std::string bytes = std::string("\7\0\0\0", 4) + std::string("\4\0\0\0once", 8);
  const auto call = ReadInferJson(kModel, text + bytes, text.size());
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(call->call.request.text(), "once");
  EXPECT_EQ(call->call.request.stopping().max_tokens(), 7u);
  EXPECT_TRUE(call->binary.Has("text_output"));
  EXPECT_FALSE(call->binary.Has("finish_reason"));

  const auto left = ReadInferJson(kModel, text + bytes + "x", text.size());
  EXPECT_THAT(left.status().message(), HasSubstr("1 bytes behind"));
  const auto cut = ReadInferJson(kModel, text + bytes.substr(0, 11), text.size());
  EXPECT_THAT(cut.status().message(), HasSubstr("inputs.text_input.parameters.binary_data_size"));
  const auto beyond = ReadInferJson(kModel, text, text.size() + 1);
  EXPECT_THAT(beyond.status().message(), HasSubstr("beyond the body"));
}

TEST(InferJsonTest, WhatIsWrongIsNamed) {
  const auto tensor = [](const std::string& members) {
    return InputsWith(R"(,{"name":"max_tokens",)" + members + "}");
  };
  EXPECT_THAT(Message("[]"), HasSubstr("object"));
  EXPECT_THAT(Message(R"({"inputs":{}})"), HasSubstr("inputs: is no array"));
  EXPECT_THAT(Message(R"({"inputs":[]})"), HasSubstr("text_input: is missing"));
  EXPECT_THAT(Message(R"({"inputs":[{"shape":[1]}]})"), HasSubstr("without a name"));
  EXPECT_THAT(Message(R"({"wishes":1})"), HasSubstr("wishes: is not known"));
  EXPECT_THAT(Message(R"({"model_name":"n"})"), HasSubstr("model_name: is another"));
  EXPECT_THAT(Message(tensor(R"("shape":[1],"datatype":"INT8","data":[200])")),
              HasSubstr("max_tokens: has other elements"));
  EXPECT_THAT(Message(tensor(R"("shape":[1],"datatype":"INT32","data":[1.5])")),
              HasSubstr("max_tokens: has other elements"));
  EXPECT_THAT(Message(tensor(R"("shape":[2],"datatype":"INT32","data":[1])")),
              HasSubstr("the 2 of its shape"));
  EXPECT_THAT(Message(tensor(R"("shape":[-1],"datatype":"INT32","data":[1])")),
              HasSubstr("shape that is not supported"));
  EXPECT_THAT(Message(tensor(R"("shape":[18446744073709551615],"datatype":"INT32","data":[1])")),
              HasSubstr("shape that is not supported"));
  EXPECT_THAT(Message(tensor(R"("shape":[1],"datatype":"FP16","data":[1])")),
              HasSubstr("datatype that is not supported"));
  EXPECT_THAT(Message(tensor(R"("datatype":"INT32","data":[1])")), HasSubstr("has no shape"));
  EXPECT_THAT(Message(tensor(R"("shape":[1],"datatype":"INT32")")), HasSubstr("either data or"));
  EXPECT_THAT(Message(tensor(R"("shape":[1],"datatype":"INT32","data":[1],"units":"s")")),
              HasSubstr("inputs.max_tokens.units: is not known"));
  EXPECT_THAT(
      Message(InputsWith(R"(,{"name":"wishes","shape":[1],"datatype":"INT32","data":[1]})")),
      HasSubstr("wishes"));
  EXPECT_THAT(
      Message(InputsWith(R"(,{"name":"stream","shape":[1],"datatype":"BOOL","data":[true]})")),
      HasSubstr("generate_stream"));
  EXPECT_EQ(
      ReadInferJson({.model = "m", .version = "2"}, InputsWith(""), std::nullopt).status().code(),
      absl::StatusCode::kNotFound);
}

TEST(InferJsonTest, ErrorsShowTheBeginningOfALongName) {
  const std::string name(5000, 'n');
  const auto tensor = [&](const std::string& members) {
    return InputsWith(absl::StrCat(R"(,{"name":")", name, R"(",)", members, "}"));
  };
  for (const std::string& body :
       {tensor(R"("datatype":"INT32","data":[1])"), tensor(R"("shape":[1],"datatype":"INT32")"),
        tensor(R"("shape":3)"), absl::StrCat(R"({")", name, R"(":1})"),
        tensor(absl::StrCat(R"("shape":[1],")", name, R"(":1)")),
        absl::StrCat(R"({"outputs":[{"name":")", name, R"(","parameters":1}]})")}) {
    EXPECT_THAT(Message(body), ::testing::AllOf(::testing::SizeIs(::testing::Lt(250u)),
                                                HasSubstr(std::string(64, 'n'))));
  }
  EXPECT_THAT(GenerateMessage(absl::StrCat(R"({"text_input":"a",")", name, R"(":1,"parameters":{")",
                                           name, R"(":2}})")),
              ::testing::SizeIs(::testing::Lt(200u)));
}

TEST(InferJsonTest, GenerateTakesMembersAndParameters) {
  const auto call = ReadGenerateJson(kModel, R"({"id":"i","text_input":"once","temperature":0,
                  "parameters":{"max_tokens":5,"stop_words":["a","b"],"exclude_input_in_output":false}})",
                                     /*stream=*/false);
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(call->request.text(), "once");
  EXPECT_EQ(call->request.stopping().max_tokens(), 5u);
  EXPECT_THAT(call->request.stopping().strings(), ElementsAre("a", "b"));
  EXPECT_EQ(call->echo, "once");
  EXPECT_EQ(call->id, "i");
  EXPECT_FALSE(call->stream);

  const auto stream = ReadGenerateJson(kModel, R"({"text_input":"once"})", /*stream=*/true);
  ASSERT_TRUE(stream.ok()) << stream.status();
  EXPECT_TRUE(stream->stream);
  EXPECT_TRUE(
      ReadGenerateJson(kModel, R"({"text_input":"once","parameters":{"stream":true}})", true).ok());
}

TEST(InferJsonTest, GenerateNamesWhatIsWrong) {
  EXPECT_THAT(GenerateMessage(R"({"text_input":"once","stream":true})"),
              HasSubstr("generate_stream"));
  EXPECT_THAT(GenerateMessage(R"({"text_input":"once","stream":false})", true),
              HasSubstr("stream"));
  EXPECT_THAT(GenerateMessage(R"({"text_input":["a","b"]})"), HasSubstr("2 elements"));
  EXPECT_THAT(GenerateMessage(R"({"text_input":"a","max_tokens":1,"parameters":{"max_tokens":2}})"),
              HasSubstr("max_tokens: is there twice"));
  EXPECT_THAT(GenerateMessage(R"({"text_input":"a","wishes":1})"), HasSubstr("wishes"));
  EXPECT_THAT(GenerateMessage(R"({"text_input":"a","parameters":3})"), HasSubstr("is no object"));
  EXPECT_THAT(GenerateMessage(R"({"text_input":"a","triton_enable_empty_final_response":true})"),
              HasSubstr("ModelStreamInfer alone"));
}

inference::ModelInferResponse Response() {
  inference::ModelInferResponse response;
  response.set_model_name("m");
  response.set_model_version("1");
  response.set_id("i");
  auto* text = response.add_outputs();
  text->set_name("text_output");
  text->set_datatype("BYTES");
  text->add_shape(2);
  text->mutable_contents()->add_bytes_contents("one");
  text->mutable_contents()->add_bytes_contents("zw\xC3\xB6lf");
  auto* number = response.add_outputs();
  number->set_name("num_output_tokens");
  number->set_datatype("UINT32");
  number->add_shape(1);
  number->mutable_contents()->add_uint_contents(258);
  return response;
}

TEST(AnswerJsonTest, OutputsAsJsonAndAsBytes) {
  const InferBody all_json = InferJson(Response(), {});
  EXPECT_EQ(all_json.binary, "");
  EXPECT_EQ(json::parse(all_json.json),
            json::parse(R"({"model_name":"m","model_version":"1","id":"i",
      "outputs":[{"name":"text_output","datatype":"BYTES","shape":[2],"data":["one","zwölf"]},
                 {"name":"num_output_tokens","datatype":"UINT32","shape":[1],"data":[258]}]})"));
  const InferBody mixed = InferJson(Response(), {.by_default = true, .json = {"text_output"}});
  EXPECT_EQ(mixed.binary, std::string("\2\1\0\0", 4));
  const json told = json::parse(mixed.json)["outputs"];
  EXPECT_TRUE(told[0].contains("data"));
  EXPECT_EQ(told[1]["parameters"], json({{"binary_data_size", 4}}));
  const InferBody binary = InferJson(Response(), {.binary = {"text_output"}});
  EXPECT_EQ(binary.binary, std::string("\3\0\0\0one\6\0\0\0zw\xC3\xB6lf", 17));
}

TEST(AnswerJsonTest, GenerateHasOutputsAsMembers) {
  EXPECT_EQ(json::parse(GenerateJson(Response())),
            json::parse(R"({"model_name":"m","model_version":"1","id":"i",
                            "text_output":["one","zwölf"],"num_output_tokens":258})"));
}

}  // namespace
}  // namespace continuo::gateway::kserve
