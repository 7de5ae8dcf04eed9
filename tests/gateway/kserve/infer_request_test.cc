// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/kserve/call/infer_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "services/gateway/kserve/call/infer_tensor.h"
#include "services/protocol/error.h"

namespace continuo::gateway::kserve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Request = inference::ModelInferRequest;

Request::InferInputTensor* AddTensor(Request* request, const std::string& name,
                                     const std::string& datatype, int64_t size = 1) {
  auto* const tensor = request->add_inputs();
  tensor->set_name(name);
  tensor->set_datatype(datatype);
  tensor->add_shape(size);
  return tensor;
}

void AddText(Request* request, const std::string& name, const std::string& text) {
  AddTensor(request, name, "BYTES")->mutable_contents()->add_bytes_contents(text);
}

void AddBool(Request* request, const std::string& name, bool value) {
  AddTensor(request, name, "BOOL")->mutable_contents()->add_bool_contents(value);
}

Request TextRequest(const std::string& text = "once") {
  Request request;
  request.set_model_name("m");
  request.set_id("seven");
  AddText(&request, "text_input", text);
  return request;
}

// The name of what is wrong.
std::string Wrong(const Request& request) {
  const auto call = ReadInferRequest(request);
  EXPECT_EQ(call.status().code(), absl::StatusCode::kInvalidArgument) << call.status();
  return protocol::FieldOf(call.status());
}

TEST(InferRequestTest, ATextIsOneCollectedGeneration) {
  const auto call = ReadInferRequest(TextRequest());
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(call->request.model(), "m");
  EXPECT_EQ(call->request.text(), "once");
  EXPECT_TRUE(call->request.output().collect());
  EXPECT_EQ(call->id, "seven");
  EXPECT_FALSE(call->stream);
  EXPECT_FALSE(call->is_raw);
  EXPECT_TRUE(call->has_text && call->has_finish_reason);
  EXPECT_EQ(call->echo, "");
}

TEST(InferRequestTest, MembersComeFromJsonTensorsAndParameters) {
  Request request = TextRequest();
  AddText(&request, "sampling_parameters", R"({"temperature":0.5,"stop":["x","y"],"min_p":0.1})");
  AddTensor(&request, "max_tokens", "INT32")->mutable_contents()->add_int_contents(7);
  AddTensor(&request, "random_seed", "UINT64")->mutable_contents()->add_uint64_contents(9);
  (*request.mutable_parameters())["top_p"].set_double_param(0.25);
  (*request.mutable_parameters())["ignore_eos"].set_bool_param(true);
  const auto call = ReadInferRequest(request);
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(call->request.sampling().temperature(), 0.5f);
  EXPECT_EQ(call->request.sampling().top_p(), 0.25f);
  EXPECT_EQ(call->request.sampling().min_p(), 0.1f);
  EXPECT_EQ(call->request.sampling().seed(), 9u);
  EXPECT_EQ(call->request.stopping().max_tokens(), 7u);
  EXPECT_TRUE(call->request.stopping().ignore_eos());
  EXPECT_THAT(call->request.stopping().strings(), ElementsAre("x", "y"));
}

TEST(InferRequestTest, TensorsMayBeRaw) {
  Request request;
  AddTensor(&request, "input_ids", "INT32", 3);
  AddTensor(&request, "stream", "BOOL");
  AddTensor(&request, "temperature", "FP32");
  AddTensor(&request, "stop_words", "BYTES", 2);
  const int32_t ids[] = {5, 6, 70000};
  request.add_raw_input_contents(std::string(reinterpret_cast<const char*>(ids), sizeof(ids)));
  request.add_raw_input_contents(std::string(1, '\1'));
  const float temperature = 0.5;
  request.add_raw_input_contents(
      std::string(reinterpret_cast<const char*>(&temperature), sizeof(temperature)));
  AppendRawText("a", request.add_raw_input_contents());
  AppendRawText("bc", request.mutable_raw_input_contents(3));
  const auto call = ReadInferRequest(request);
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_THAT(call->request.token_ids().ids(), ElementsAre(5u, 6u, 70000u));
  EXPECT_TRUE(call->stream);
  EXPECT_TRUE(call->is_raw);
  EXPECT_FALSE(call->request.output().collect());
  EXPECT_EQ(call->request.sampling().temperature(), 0.5f);
  EXPECT_THAT(call->request.stopping().strings(), ElementsAre("a", "bc"));
}

TEST(InferRequestTest, TheFormOfTheAnswerIsAskedFor) {
  Request request = TextRequest();
  AddBool(&request, "streaming", true);
  AddBool(&request, "exclude_input_in_output", false);
  AddBool(&request, "return_finish_reason", false);
  AddBool(&request, "return_num_input_tokens", true);
  (*request.mutable_parameters())["triton_enable_empty_final_response"].set_bool_param(true);
  const auto call = ReadInferRequest(request);
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_TRUE(call->stream && call->wants_final && call->has_num_input_tokens);
  EXPECT_TRUE(call->request.output().progress());
  EXPECT_FALSE(call->has_finish_reason || call->has_num_output_tokens);
  EXPECT_EQ(call->echo, "once");
  request.add_outputs()->set_name("num_output_tokens");
  const auto listed = ReadInferRequest(request);
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_TRUE(listed->has_num_output_tokens);
  EXPECT_FALSE(listed->has_text || listed->has_finish_reason || listed->has_num_input_tokens);
}

TEST(InferRequestTest, WhatIsWrongIsNamed) {
  EXPECT_EQ(Wrong(Request()), "text_input");
  EXPECT_EQ(Wrong(TextRequest("\xff")), "text_input");
  const auto with = [](const auto& change) {
    Request request = TextRequest();
    change(&request);
    return Wrong(request);
  };
  EXPECT_EQ(with([](Request* r) { AddText(r, "text_input", "twice"); }), "text_input");
  EXPECT_EQ(with([](Request* r) { AddText(r, "image", "x"); }), "image");
  EXPECT_EQ(with([](Request* r) { AddText(r, "prompt", "x"); }), "prompt");
  EXPECT_EQ(with([](Request* r) { AddText(r, "stream", "x"); }), "stream");
  EXPECT_EQ(with([](Request* r) { AddText(r, "temperature", "x"); }), "temperature");
  EXPECT_EQ(with([](Request* r) { AddText(r, "sampling_parameters", "[1]"); }),
            "sampling_parameters");
  EXPECT_EQ(with([](Request* r) { AddText(r, "sampling_parameters", R"({"no_such":1})"); }),
            "no_such");
  EXPECT_EQ(with([](Request* r) { (*r->mutable_parameters())["priority_"].set_int64_param(1); }),
            "priority_");
  EXPECT_EQ(with([](Request* r) {
              AddText(r, "sampling_parameters", R"({"top_k":1})");
              (*r->mutable_parameters())["top_k"].set_int64_param(2);
            }),
            "top_k");
  EXPECT_EQ(with([](Request* r) { AddText(r, "sampling_parameters", R"({"logprobs":1})"); }),
            "logprobs");
  EXPECT_EQ(with([](Request* r) { r->add_outputs()->set_name("generated"); }), "outputs");
  EXPECT_EQ(with([](Request* r) { r->mutable_inputs(0)->set_datatype("STRING"); }), "text_input");
  EXPECT_EQ(with([](Request* r) { r->mutable_inputs(0)->set_shape(0, 2); }), "text_input");
  EXPECT_EQ(with([](Request* r) { r->mutable_inputs(0)->set_shape(0, -1); }), "text_input");
  EXPECT_EQ(with([](Request* r) {
              (*r->mutable_inputs(0)->mutable_parameters())["binary_data_size"].set_int64_param(1);
            }),
            "text_input");
  EXPECT_EQ(with([](Request* r) {
              AddBool(r, "stream", true);
              AddText(r, "sampling_parameters", R"({"n":2})");
            }),
            "n");
}

// Such values would become null, and null the default.
TEST(InferRequestTest, ValuesThatJsonHasNotAreRefused) {
  for (const double value :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Request parameter = TextRequest();
    (*parameter.mutable_parameters())["temperature"].set_double_param(value);
    EXPECT_EQ(Wrong(parameter), "temperature");
    Request single = TextRequest();
    AddTensor(&single, "temperature", "FP32")
        ->mutable_contents()
        ->add_fp32_contents(static_cast<float>(value));
    EXPECT_EQ(Wrong(single), "temperature");
    Request raw;
    AddTensor(&raw, "input_ids", "INT32");
    AddTensor(&raw, "temperature", "FP64");
    raw.add_raw_input_contents(std::string("\5\0\0\0", 4));
    raw.add_raw_input_contents(std::string(reinterpret_cast<const char*>(&value), sizeof(value)));
    EXPECT_EQ(Wrong(raw), "temperature");
  }
  Request empty = TextRequest();
  (*empty.mutable_parameters())["temperature"].Clear();
  EXPECT_EQ(Wrong(empty), "temperature");
}

TEST(InferRequestTest, WhatIsThereTwiceIsRefused) {
  for (const char* const name : {"stream", "exclude_input_in_output", "return_finish_reason",
                                 "return_num_input_tokens", "return_num_output_tokens"}) {
    Request request = TextRequest();
    AddBool(&request, name, true);
    EXPECT_TRUE(ReadInferRequest(request).ok()) << name;
    AddBool(&request, name, false);
    EXPECT_EQ(Wrong(request), name);
  }
  Request both = TextRequest();
  AddBool(&both, "stream", true);
  AddBool(&both, "streaming", false);
  EXPECT_EQ(Wrong(both), "streaming");
  Request sampling = TextRequest();
  AddText(&sampling, "sampling_parameters", R"({"top_k":1})");
  AddText(&sampling, "sampling_parameters", R"({"min_p":0.1})");
  EXPECT_EQ(Wrong(sampling), "sampling_parameters");
}

TEST(InferRequestTest, RawContentsAreChecked) {
  const auto raw = [](const std::string& datatype, int64_t size, const std::string& bytes) {
    Request request;
    AddTensor(&request, "text_input", datatype, size);
    request.add_raw_input_contents(bytes);
    return Wrong(request);
  };
  EXPECT_EQ(raw("BYTES", 1, "abc"), "text_input");
  EXPECT_EQ(raw("BYTES", 1, std::string("\xff\xff\xff\xff", 4) + "abc"), "text_input");
  EXPECT_EQ(raw("INT32", 1, "abc"), "text_input");
  EXPECT_EQ(raw("INT32", int64_t{1} << 40, "abcd"), "text_input");
  // Nothing else is wrong with these ids but the byte behind them.
  Request ids;
  AddTensor(&ids, "input_ids", "INT32");
  ids.add_raw_input_contents(std::string("\5\0\0\0", 4));
  EXPECT_TRUE(ReadInferRequest(ids).ok());
  ids.mutable_raw_input_contents(0)->push_back('\0');
  EXPECT_EQ(Wrong(ids), "input_ids");
  Request request = TextRequest();
  request.add_raw_input_contents("");
  request.add_raw_input_contents("");
  EXPECT_EQ(Wrong(request), "raw_input_contents");
}

// A byte of raw contents would be sixteen of JSON.
TEST(InferRequestTest, TensorsAreBoundedTogetherBeforeTheyAreRead) {
  const auto ids = [](Request* request, const std::string& name, int64_t number) {
    AddTensor(request, name, "UINT8", number);
    request->add_raw_input_contents(std::string(static_cast<size_t>(number), '\1'));
  };
  Request request;
  ids(&request, "input_ids", kMaxElements + 1);
  EXPECT_EQ(Wrong(request), "input_ids");
  EXPECT_THAT(std::string(ReadInferRequest(request).status().message()),
              HasSubstr("more elements than"));
  Request both;
  ids(&both, "input_ids", kMaxElements / 2);
  ids(&both, "stop_words", kMaxElements / 2 + 1);
  EXPECT_EQ(Wrong(both), "stop_words");
  EXPECT_THAT(std::string(ReadInferRequest(both).status().message()),
              HasSubstr("more elements than"));
}

TEST(InferRequestTest, ErrorsShowTheBeginningOfALongName) {
  const std::string name(5000, 'n');
  const auto message = [](const Request& request) {
    const absl::Status status = ReadInferRequest(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const auto is_short =
      ::testing::AllOf(::testing::SizeIs(::testing::Lt(200u)), HasSubstr(std::string(64, 'n')));
  Request tensor = TextRequest();
  AddTensor(&tensor, name, "INT8", 2)->mutable_contents()->add_int_contents(1);
  EXPECT_THAT(message(tensor), is_short);
  Request twice = TextRequest();
  AddText(&twice, name, "x");
  (*twice.mutable_parameters())[name].set_int64_param(1);
  EXPECT_THAT(message(twice), is_short);
  Request empty = TextRequest();
  (*empty.mutable_parameters())[name].Clear();
  EXPECT_THAT(message(empty), is_short);
  Request parameter = TextRequest();
  AddText(&parameter, name, "x");
  (*parameter.mutable_inputs(1)->mutable_parameters())["p"].set_int64_param(1);
  EXPECT_THAT(message(parameter), is_short);
  Request output = TextRequest();
  output.add_outputs()->set_name(name);
  EXPECT_THAT(message(output), is_short);
  (*output.mutable_outputs(0)->mutable_parameters())["p"].set_int64_param(1);
  EXPECT_THAT(message(output), is_short);
}

// Each response repeats it.
TEST(InferRequestTest, AnIdIsBounded) {
  Request request = TextRequest();
  request.set_id(std::string(kMaxClientIdBytes, 'i'));
  EXPECT_TRUE(ReadInferRequest(request).ok());
  request.mutable_id()->push_back('i');
  EXPECT_EQ(Wrong(request), "id");
  EXPECT_EQ(IdForErrors(request), "");
  EXPECT_EQ(IdForErrors(TextRequest()), "seven");
}

TEST(InferRequestTest, ThereIsOneVersion) {
  Request request = TextRequest();
  request.set_model_version("1");
  EXPECT_TRUE(ReadInferRequest(request).ok());
  request.set_model_version("2");
  EXPECT_EQ(ReadInferRequest(request).status().code(), absl::StatusCode::kNotFound);
}

TEST(InferRequestTest, LaterErrorsHaveTheClientsNames) {
  const auto call = ReadInferRequest(TextRequest());
  ASSERT_TRUE(call.ok());
  const absl::Status status =
      WithClientsName(*call, protocol::FieldError("sampling.top_p", "is above 1"));
  EXPECT_EQ(protocol::FieldOf(status), "top_p");
  EXPECT_THAT(std::string(status.message()), HasSubstr("top_p"));
}

}  // namespace
}  // namespace continuo::gateway::kserve
