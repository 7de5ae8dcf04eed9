// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/responses/responses_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::ElementsAre;
using Json = nlohmann::json;

// The events of a stream, which are named by their types and numbered; [DONE] is its end.
std::vector<Json> Events(const std::string& stream, bool is_whole = true) {
  std::vector<Json> events;
  std::string rest = stream;
  const std::string done = "data: [DONE]\n\n";
  EXPECT_EQ(rest.ends_with(done), is_whole);
  if (is_whole) rest.resize(rest.size() - done.size());
  for (size_t begin = 0; begin < rest.size();) {
    const size_t end = rest.find("\n\n", begin);
    const size_t data = rest.find("\ndata: ", begin);
    events.push_back(Json::parse(rest.substr(data + 7, end - data - 7)));
    EXPECT_EQ(rest.substr(begin, data - begin), "event: " + std::string(events.back()["type"]));
    EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
    begin = end + 2;
  }
  return events;
}

std::vector<std::string> Types(const std::vector<Json>& events) {
  std::vector<std::string> types;
  for (const Json& event : events) types.push_back(event["type"]);
  return types;
}

// An answer with thoughts, text and a call, in pieces.
std::vector<v1::GenerateResponse> Responses(v1::FinishReason reason) {
  std::vector<v1::GenerateResponse> responses(6);
  responses[0].mutable_accepted()->set_model("served");
  responses[0].mutable_accepted()->mutable_reference_time()->set_seconds(70);
  responses[1].add_deltas()->set_reasoning("so ");
  responses[1].add_deltas()->set_reasoning("so");
  responses[2].add_deltas()->set_text("Let me ");
  responses[3].add_deltas()->set_text("\"look\"");
  v1::ToolCall& call = *responses[4].add_deltas()->add_tool_calls();
  call.set_id("call_1");
  call.set_name("f");
  call.set_arguments("{\"a\"");
  v1::Delta& last = *responses[4].add_deltas();
  last.add_tool_calls()->set_arguments(":1}");
  last.set_finish_reason(reason);
  v1::Summary& summary = *responses[5].mutable_summary();
  summary.mutable_usage()->set_prompt_tokens(11);
  summary.mutable_usage()->set_cached_prompt_tokens(4);
  summary.mutable_usage()->set_completion_tokens(9);
  summary.mutable_usage()->set_reasoning_tokens(2);
  summary.mutable_timings()->mutable_total_duration()->set_seconds(3);
  return responses;
}

Json BodyOf(ResponsesAnswer& answer) { return Json::parse(absl::StrJoin(answer.TakeBody(), "")); }

TEST(ResponsesAnswerTest, EventsAreToldAsTheyCame) {
  const std::vector<v1::GenerateResponse> responses = Responses(v1::FINISH_REASON_TOOL_CALLS);
  // A teller is made at any time, and asked after each response.
  for (size_t made = 0; made <= responses.size(); ++made) {
    for (const bool streams : {true, false}) {
      ResponsesForm form;
      form.repeated = R"("metadata":{"a":"b"})";
      form.stream = true;
      ResponsesAnswer stream(form, "i", "asked", 5);
      // One in one piece has no events of its own, and tells the same.
      form.stream = streams;
      ResponsesAnswer answer(form, "i", "asked", 5);
      std::unique_ptr<Retrievable::Teller> teller;
      std::string events, told;
      for (size_t i = 0; i <= responses.size(); ++i) {
        if (i == made) teller = answer.MakeTeller();
        if (teller != nullptr) {
          teller->Tell(nullptr, &told);
          EXPECT_EQ(told, events);
        }
        if (i == responses.size()) break;
        stream.Add(0, responses[i], &events);
        std::string ignored;
        answer.Add(0, responses[i], &ignored);
      }
      const size_t num_bytes = teller->num_bytes();
      EXPECT_GT(num_bytes, events.size() / 10);
      const Retrievable::Ending ending = {absl::InternalError("x"), R"({"error":{"code":"c"}})"};
      if (made % 2 == 0) {
        stream.AddEnd(&events);
        teller->Tell(std::make_unique<Retrievable::Ending>().get(), &told);
      } else {
        stream.AddError(ending.status, ending.error, &events);
        teller->Tell(&ending, &told);
      }
      EXPECT_EQ(told, events);
    }
  }
}

TEST(ResponsesAnswerTest, EventsOfAnotherRunAreNotToldAgain) {
  const std::vector<v1::GenerateResponse> responses = Responses(v1::FINISH_REASON_TOOL_CALLS);
  for (size_t cut = 0; cut < responses.size(); ++cut) {
    ResponsesAnswer answer({.stream = true}, "i", "asked", 5);
    std::string events;
    for (size_t i = 0; i < responses.size(); ++i) {
      if (i == cut) {
        events.clear();
        answer.set_num_events(100);
      }
      answer.Add(0, responses[i], &events);
    }
    EXPECT_EQ(answer.first_event(), 100);
    std::string told;
    answer.MakeTeller()->Tell(nullptr, &told);
    EXPECT_EQ(told, events) << cut;
  }
}

TEST(ResponsesAnswerTest, AnErrorBeforeTheClientsPlaceComesAlone) {
  for (size_t had = 0; had < 5; ++had) {
    ResponsesAnswer answer({.stream = true}, "i", "asked", 5);
    std::string events;
    for (size_t i = 0; i < had; ++i) {
      answer.Add(0, Responses(v1::FINISH_REASON_STOP)[i], &events);
    }
    events.clear();
    answer.AddErrorAlone(absl::InternalError("x"), R"({"error":{"code":"c"}})", 40, &events);
    EXPECT_THAT(events, ::testing::StartsWith("event: response.failed\ndata: "));
    const size_t end = events.find("\n\n");
    EXPECT_EQ(events.substr(end), "\n\ndata: [DONE]\n\n");
    const Json event = Json::parse(events.substr(events.find('{'), end - events.find('{')));
    EXPECT_EQ(event["sequence_number"], 40);
    EXPECT_EQ(event["response"]["error"]["code"], "c");
    EXPECT_EQ(event["response"]["output"], Json::array());
  }
}

TEST(ResponsesAnswerTest, ASnapshotHasWhatThereIs) {
  ResponsesAnswer answer({}, "i", "asked", 5);
  EXPECT_EQ(Json::parse(answer.Snapshot("in_progress"))["output"], Json::array());
  answer.Add(0, Responses(v1::FINISH_REASON_STOP)[2], nullptr);
  const Json snapshot = Json::parse(answer.Snapshot("cancelled"));
  EXPECT_EQ(snapshot["status"], "cancelled");
  EXPECT_EQ(snapshot["completed_at"], nullptr);
  EXPECT_EQ(snapshot["output"][0]["content"][0]["text"], "Let me ");
}

TEST(ResponsesAnswerTest, TheBody) {
  ResponsesForm form;
  form.repeated = R"("metadata":{"a":"b"})";
  ResponsesAnswer answer(form, "i", "asked", 5);
  for (const v1::GenerateResponse& response : Responses(v1::FINISH_REASON_TOOL_CALLS)) {
    answer.Add(0, response, nullptr);
  }
  EXPECT_GT(answer.num_bytes(), 0);
  EXPECT_EQ(BodyOf(answer), Json::parse(R"({"id":"resp_i","object":"response","created_at":70,
    "completed_at":73,"status":"completed","error":null,"incomplete_details":null,"model":"served",
    "output":[
      {"id":"rs_i_0","type":"reasoning","summary":[],"status":"completed",
       "content":[{"type":"reasoning_text","text":"so so"}]},
      {"id":"msg_i_1","type":"message","status":"completed","role":"assistant",
       "content":[{"type":"output_text","text":"Let me \"look\"","annotations":[],"logprobs":[]}]},
      {"id":"fc_i_2","type":"function_call","call_id":"call_1","name":"f","arguments":"{\"a\":1}",
       "status":"completed"}],
    "usage":{"input_tokens":11,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},
             "output_tokens":9,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":20},
    "metadata":{"a":"b"}})"));
  EXPECT_EQ(answer.num_bytes(), 0);
}

TEST(ResponsesAnswerTest, AStreamTellsTheSameInItsOrder) {
  ResponsesForm form;
  form.stream = true;
  ResponsesAnswer answer(form, "i", "asked", 5), body({}, "i", "asked", 5);
  std::string stream;
  for (const v1::GenerateResponse& response : Responses(v1::FINISH_REASON_TOOL_CALLS)) {
    answer.Add(0, response, &stream);
    body.Add(0, response, nullptr);
  }
  answer.AddEnd(&stream);
  const std::vector<Json> events = Events(stream);
  EXPECT_THAT(
      Types(events),
      ElementsAre(
          "response.created", "response.in_progress", "response.output_item.added",
          "response.content_part.added", "response.reasoning_text.delta",
          "response.reasoning_text.delta", "response.reasoning_text.done",
          "response.content_part.done", "response.output_item.done", "response.output_item.added",
          "response.content_part.added", "response.output_text.delta", "response.output_text.delta",
          "response.output_text.done", "response.content_part.done", "response.output_item.done",
          "response.output_item.added", "response.function_call_arguments.delta",
          "response.function_call_arguments.delta", "response.function_call_arguments.done",
          "response.output_item.done", "response.completed"));
  const Json whole = events.back()["response"];
  EXPECT_EQ(whole, BodyOf(body));
  // The deltas make up what the items have, and each event names its item.
  std::vector<std::string> texts(3);
  for (const Json& event : events) {
    if (event.contains("item_id")) {
      EXPECT_EQ(event["item_id"], whole["output"][int{event["output_index"]}]["id"]);
    }
    if (event.contains("delta")) texts[int{event["output_index"]}] += std::string(event["delta"]);
    if (event["type"] == "response.output_item.done") {
      EXPECT_EQ(event["item"], whole["output"][int{event["output_index"]}]);
    }
  }
  EXPECT_THAT(texts, ElementsAre("so so", "Let me \"look\"", "{\"a\":1}"));
}

TEST(ResponsesAnswerTest, AnAnswerThatIsCutIsIncomplete) {
  for (const bool is_stream : {false, true}) {
    ResponsesForm form;
    form.stream = is_stream;
    ResponsesAnswer answer(form, "i", "m", 5);
    std::string stream;
    for (const v1::GenerateResponse& response : Responses(v1::FINISH_REASON_LENGTH)) {
      answer.Add(0, response, &stream);
    }
    if (is_stream) answer.AddEnd(&stream);
    const Json last = is_stream ? Events(stream).back() : Json();
    if (is_stream) {
      EXPECT_EQ(last["type"], "response.incomplete");
    }
    const Json response = is_stream ? last["response"] : BodyOf(answer);
    EXPECT_EQ(response["status"], "incomplete");
    EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
    EXPECT_TRUE(response["completed_at"].is_null());
    EXPECT_EQ(response["output"][1]["status"], "completed");
    EXPECT_EQ(response["output"][2]["status"], "incomplete");
  }
}

TEST(ResponsesAnswerTest, AFailureEndsTheStream) {
  ResponsesForm form;
  form.stream = true;
  ResponsesAnswer answer(form, "i", "m", 5);
  std::string stream;
  v1::GenerateResponse response;
  response.add_deltas()->set_text("half");
  answer.Add(0, response, &stream);
  answer.AddError(absl::InternalError("x"),
                  R"({"error":{"message":"gone","type":"server_error","param":null,"code":null}})",
                  &stream);
  const Json last = Events(stream).back();
  EXPECT_EQ(last["type"], "response.failed");
  EXPECT_EQ(last["response"]["status"], "failed");
  EXPECT_EQ(last["response"]["error"], Json::parse(R"({"code":"server_error","message":"gone"})"));
  EXPECT_EQ(last["response"]["output"][0]["status"], "incomplete");
}

TEST(ResponsesAnswerTest, AFailureSaysWhenToTryAgain) {
  ResponsesForm form;
  form.stream = true;
  ResponsesAnswer answer(form, "i", "m", 5);
  std::string stream;
  answer.AddError(
      protocol::WithRetryInfo(absl::ResourceExhaustedError("slow down"), absl::Milliseconds(6500)),
      R"({"error":{"message":"slow down","code":"overloaded"}})", &stream);
  EXPECT_EQ(Events(stream).back()["response"]["error"],
            Json::parse(R"({"code":"rate_limit_exceeded",
                            "message":"slow down. Please try again in 7s."})"));
}

TEST(ResponsesAnswerTest, ThoughtsAreEncodedForThoseWhoAsk) {
  ResponsesForm form;
  form.encodes_reasoning = true;
  ResponsesAnswer answer(form, "i", "m", 5);
  v1::GenerateResponse response;
  response.add_deltas()->set_reasoning("hm");
  answer.Add(0, response, nullptr);
  EXPECT_EQ(BodyOf(answer)["output"][0]["encrypted_content"], "continuo:aG0=");
}

TEST(ResponsesAnswerTest, APieceWithoutAnIdGoesOnWithTheCallBeforeTheText) {
  v1::GenerateResponse response;
  v1::ToolCall& call = *response.add_deltas()->add_tool_calls();
  call.set_id("c");
  call.set_name("f");
  call.set_arguments("{\"a\"");
  v1::Delta& joined = *response.add_deltas();
  joined.set_text("Then.");
  joined.add_tool_calls()->set_arguments(":1}");
  ResponsesAnswer answer({.stream = false}, "1", "m", 0);
  answer.Add(0, response, nullptr);
  const Json output = BodyOf(answer)["output"];
  ASSERT_EQ(output.size(), 2);
  EXPECT_EQ(output[0]["arguments"], "{\"a\":1}");
  EXPECT_EQ(output[1]["content"][0]["text"], "Then.");
}

TEST(ResponsesAnswerTest, TheLastItemOfASnapshotIsUnderWayOrCut) {
  ResponsesAnswer answer({.stream = false}, "1", "m", 0);
  v1::GenerateResponse response;
  response.add_deltas()->set_reasoning("so");
  response.add_deltas()->set_text("Let");
  answer.Add(0, response, nullptr);
  const auto statuses = [&](const char* status) {
    std::vector<std::string> all;
    const Json snapshot = Json::parse(answer.Snapshot(status));
    for (const Json& item : snapshot["output"]) all.push_back(item["status"]);
    return all;
  };
  EXPECT_THAT(statuses("in_progress"), ElementsAre("completed", "in_progress"));
  EXPECT_THAT(statuses("cancelled"), ElementsAre("completed", "incomplete"));
  EXPECT_THAT(statuses("incomplete"), ElementsAre("completed", "incomplete"));
}

}  // namespace
}  // namespace continuo::gateway::openai
