// SPDX-License-Identifier: Apache-2.0
// Streams of every API that go on behind each of their events, on workers that divide the same
// answer otherwise.
#include "services/gateway/openai/stream/event_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "services/gateway/openai/calls.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

using EventJson = nlohmann::ordered_json;

const std::string kDigest(64, 'd');

struct Event {
  std::string text;  // without its id
  std::string id;
};

std::vector<Event> EventsOf(const std::string& stream) {
  std::vector<Event> events;
  for (size_t at = 0; at < stream.size();) {
    const size_t end = stream.find("\n\n", at);
    const std::string event = stream.substr(at, end - at);
    const size_t id = event.find("\nid: ");
    events.push_back({event.substr(0, id), id == std::string::npos ? "" : event.substr(id + 5)});
    at = end + 2;
  }
  return events;
}

// One token of an answer: its id, and what it brings.
struct Token {
  uint32_t id;
  std::string reasoning, text;
  std::string call, arguments;  // the call's id where one begins
};

// Thoughts, a text, two calls, and a text behind them.
std::vector<Token> TokensOf(uint32_t choice) {
  std::vector<Token> tokens;
  uint32_t id = 100 * (choice + 1);
  for (const char* const word : {"let", " me", "", " think"}) {
    tokens.push_back({.id = id++, .reasoning = word});
  }
  for (const char* const word : {"", "Mira", " lives", "", " in", " Oslo\n\n", "\"ü\""}) {
    tokens.push_back({.id = id++, .text = word[0] == 0 ? "" : absl::StrCat(word, choice)});
  }
  for (int call = 0; call < 2; ++call) {
    tokens.push_back({.id = id++, .call = absl::StrCat("call", call), .arguments = "{"});
    for (const char* const piece : {"", "\"name\":", "\"Mira\"", "}"}) {
      tokens.push_back({.id = id++, .arguments = piece});
    }
  }
  for (const char* const word : {" and", " out"}) tokens.push_back({.id = id++, .text = word});
  return tokens;
}

// The place of a delta's parts in the order in which answers tell them.
int RankOf(const Token& token) {
  if (!token.arguments.empty()) return 3;
  return !token.text.empty() ? 2 : !token.reasoning.empty() ? 1 : 0;
}

void AddToken(const Token& token, int* call, bool with_logprobs, v1::Delta* delta) {
  delta->add_token_ids(token.id);
  delta->mutable_text()->append(token.text);
  delta->mutable_reasoning()->append(token.reasoning);
  if (!token.call.empty()) ++*call;
  if (!token.arguments.empty()) {
    v1::ToolCall& piece = *delta->add_tool_calls();
    piece.set_index(*call);
    if (!token.call.empty()) {
      piece.set_id(token.call);
      piece.set_name("find_person");
    }
    piece.set_arguments(token.arguments);
  }
  if (with_logprobs) {
    v1::TokenLogprob& logprob = *delta->add_logprobs();
    logprob.set_token_id(token.id);
    logprob.set_logprob(-0.5f);
    logprob.set_token(token.text);
  }
}

// A worker's responses to one prompt, divided by chance.
std::vector<v1::GenerateResponse> ResponsesOf(const v1::GenerateRequest& request, uint32_t prompt,
                                              std::mt19937& random) {
  std::vector<v1::GenerateResponse> responses(1);
  v1::Accepted& accepted = *responses[0].mutable_accepted();
  accepted.set_model("m");
  accepted.set_fingerprint("F");
  accepted.mutable_reference_time()->set_seconds(1000);
  const auto next = [&]() -> v1::GenerateResponse& {
    if (random() % 2 == 0) responses.emplace_back();
    return responses.back();
  };
  if (request.output().progress()) next().mutable_progress()->set_prompt_tokens(3);
  for (uint32_t i = 0; request.output().prompt_tokens() && i < 3; ++i) {
    v1::PromptToken& token = *next().add_prompt_tokens();
    token.set_token_id(i);
    token.set_token(absl::StrCat("p", i));
  }
  for (uint32_t i = 0; request.output().has_prompt_logprobs() && i < 2; ++i) {
    next().add_prompt_logprobs()->set_token_id(i + 1);
  }
  const uint32_t num_sequences = std::max(1u, request.sampling().num_sequences());
  struct State {
    std::vector<Token> tokens;
    size_t at = 0;
    int call = -1;
  };
  std::vector<State> states(num_sequences);
  for (uint32_t i = 0; i < num_sequences; ++i) {
    states[i].tokens = TokensOf(prompt * num_sequences + i);
  }
  std::vector<uint32_t> live(num_sequences);
  for (uint32_t i = 0; i < num_sequences; ++i) live[i] = i;
  while (!live.empty()) {
    const size_t which = random() % live.size();
    State& state = states[live[which]];
    v1::Delta& delta = *next().add_deltas();
    delta.set_index(live[which]);
    int rank = 0;
    for (size_t left = 1 + random() % 4; left > 0 && state.at < state.tokens.size(); --left) {
      const Token& token = state.tokens[state.at];
      if (RankOf(token) < rank && RankOf(token) > 0) break;
      rank = std::max(rank, RankOf(token));
      AddToken(token, &state.call, request.output().has_logprobs(), &delta);
      ++state.at;
    }
    if (state.at < state.tokens.size()) continue;
    delta.set_finish_reason(v1::FINISH_REASON_STOP);
    live.erase(live.begin() + which);
  }
  v1::Usage& usage = *next().mutable_summary()->mutable_usage();
  usage.set_prompt_tokens(3);
  usage.set_completion_tokens(20);
  return responses;
}

class EventStreamTest : public ::testing::TestWithParam<std::pair<RouteId, const char*>> {
 protected:
  FleetSecret secret_{[] { return std::vector<FleetSecret::Key>(1); }};
  bool has_ids_ = true;

  std::unique_ptr<CursorSigner> MakeSigner() {
    return std::make_unique<CursorSigner>(secret_, "t", kDigest);
  }
  static HttpRequest Request(const std::pair<RouteId, const char*>& param) {
    HttpRequest request;
    if (param.first == RouteId::kGenerateStream) request.target("/v2/models/m/generate_stream");
    request.body() = param.second;
    return request;
  }
  // The stream, from its begin or behind the event of this id, by workers of this chance. `status`
  // is that of the stream.
  std::string Run(const std::string& last_id, uint32_t chance, absl::Status* status = nullptr,
                  const std::function<void(v1::GenerateResponse*)>& change = nullptr) {
    absl::StatusOr<HttpCall> call = ReadCall(GetParam().first, Request(GetParam()));
    EXPECT_TRUE(call.ok()) << call.status();
    Cursor begin;
    begin.request_id = "id";
    begin.reference_time = absl::FromUnixSeconds(1000);
    if (!last_id.empty()) {
      absl::StatusOr<Cursor> read = MakeSigner()->Read(last_id);
      EXPECT_TRUE(read.ok()) << read.status();
      begin = *std::move(read);
    }
    const std::unique_ptr<Answer> answer = call->make_answer("id", "m", 1000);
    const auto num_sequences =
        static_cast<int>(std::max(1u, call->requests[0].sampling().num_sequences()));
    EventStream stream(
        answer.get(),
        {.num_prompts = static_cast<int>(call->requests.size()), .num_sequences = num_sequences},
        has_ids_ ? MakeSigner() : nullptr, std::move(begin), !last_id.empty());
    std::mt19937 random(chance);
    std::vector<std::vector<v1::GenerateResponse>> responses;
    for (size_t i = 0; i < call->requests.size(); ++i) {
      responses.push_back(ResponsesOf(call->requests[i], static_cast<uint32_t>(i), random));
    }
    std::vector<size_t> at(responses.size());
    std::string events;
    absl::Status ended;
    for (size_t left = responses.size(); left > 0 && ended.ok();) {
      const size_t i = random() % responses.size();
      if (at[i] == responses[i].size()) continue;
      v1::GenerateResponse response = responses[i][at[i]++];
      if (change) change(&response);
      ended = stream.Add(static_cast<int>(i), std::move(response), &events);
      if (at[i] == responses[i].size()) --left;
    }
    if (ended.ok()) ended = stream.AddEnd(&events);
    if (status == nullptr) {
      EXPECT_EQ(ended, absl::OkStatus());
    } else {
      *status = ended;
    }
    return events;
  }

  // What a stream that goes on behind `last_id` sends if it fails behind so many responses.
  struct Failed {
    std::string events;
    bool was_replaying = false;
    bool is_whole = false;  // there are no more responses
  };
  Failed Fail(const std::string& last_id, uint32_t chance, int num_responses) {
    const HttpCall call = *ReadCall(GetParam().first, Request(GetParam()));
    const std::unique_ptr<Answer> answer = call.make_answer("id", "m", 1000);
    const int num_sequences =
        static_cast<int>(std::max(1u, call.requests[0].sampling().num_sequences()));
    const int num_prompts = static_cast<int>(call.requests.size());
    EventStream stream(answer.get(), {.num_prompts = num_prompts, .num_sequences = num_sequences},
                       MakeSigner(), *MakeSigner()->Read(last_id), true);
    std::mt19937 random(chance);
    Failed failed;
    int left = num_responses;
    for (int i = 0; i < num_prompts; ++i) {
      for (v1::GenerateResponse& response :
           ResponsesOf(call.requests[static_cast<size_t>(i)], static_cast<uint32_t>(i), random)) {
        if (left-- <= 0) continue;
        EXPECT_TRUE(stream.Add(i, std::move(response), &failed.events).ok());
      }
    }
    failed.is_whole = left >= 0;
    failed.was_replaying = failed.events.empty() && stream.is_replaying();
    stream.AddError(absl::InternalError("x"), R"({"error":{"message":"x"}})", &failed.events);
    return failed;
  }

  // Returns what a client makes of events, without their division: the parts of each choice, in
  // their order.
  static std::map<std::string, std::string> Joined(const std::vector<Event>& events) {
    std::map<std::string, std::string> joined;
    std::map<std::string, std::string> last;  // the last part of each choice
    int number = 0;
    const auto add = [&](const std::string& choice, const std::string& part,
                         const std::string& text) {
      if (std::exchange(last[choice], part) != part) joined[choice] += "|" + part + ":";
      joined[choice] += text;
    };
    for (const Event& event : events) {
      const size_t at = event.text.find("data: ");
      EXPECT_NE(at, std::string::npos) << event.text;
      const std::string data = event.text.substr(at + 6);
      if (data == "[DONE]") {
        add("", "done", "");
        continue;
      }
      EventJson json = EventJson::parse(data);
      if (json.contains("sequence_number")) {
        EXPECT_EQ(json["sequence_number"], number++);
        json.erase("sequence_number");
      }
      const std::string type = json.value("type", "");
      if (type.ends_with("delta") && json.contains("delta") && type != "message_delta") {
        EventJson& delta = json["delta"];
        std::string* text = nullptr;
        if (delta.is_string()) text = delta.get_ptr<std::string*>();
        for (const char* const name : {"text", "thinking", "partial_json"}) {
          if (delta.is_object() && delta.contains(name)) text = delta[name].get_ptr<std::string*>();
        }
        if (text != nullptr) {
          const std::string piece = std::exchange(*text, "");
          add("", json.dump(), piece);
          continue;
        }
      }
      if (json.contains("text_output")) {
        add("", "text", json["text_output"].get<std::string>());
        const std::string reason = json["finish_reason"].get<std::string>();
        if (!reason.empty()) add("", "finish", reason);
        continue;
      }
      if (!json.contains("choices") || json["choices"].empty()) {
        add("", json.dump(), "");
        continue;
      }
      EXPECT_EQ(json["choices"].size(), 1u);
      EventJson& choice = json["choices"][0];
      const std::string index = choice["index"].dump();
      json.erase("usage");
      for (const char* const name : {"token_ids", "logprobs"}) {
        if (choice.contains(name) && !choice[name].is_null()) {
          // Entries one by one.
          const EventJson list = choice[name].is_array()            ? choice[name]
                                 : choice[name].contains("content") ? choice[name]["content"]
                                                                    : choice[name]["tokens"];
          for (const EventJson& entry : list) joined[index + name] += entry.dump() + ",";
        }
        choice.erase(name);
      }
      const std::string reason = choice["finish_reason"].dump();
      if (reason != "null") add(index, "finish", reason);
      if (choice.contains("text")) add(index, "text", choice["text"].get<std::string>());
      const EventJson delta = choice.value("delta", EventJson::object());
      for (const auto& [name, value] : delta.items()) {
        if (value.is_string()) {
          // Two names of one thing.
          if (name != "reasoning") add(index, name, value.get<std::string>());
          continue;
        }
        for (const EventJson& call : value) {
          if (call.contains("id")) {
            add(index, call["id"].get<std::string>() + call["function"]["name"].dump(), "");
          }
          add(index, absl::StrCat("arguments", call["index"].dump()),
              call["function"]["arguments"].get<std::string>());
        }
      }
      for (const char* const name : {"prompt_token_ids", "id", "model", "created"}) {
        if (json.contains(name)) joined[name] = json[name].dump();
      }
    }
    for (auto& [name, text] : joined) {
      // An empty piece leaves no trace where another division has none.
      for (size_t i; (i = text.find("|text:|")) != std::string::npos;) text.erase(i, 6);
    }
    return joined;
  }
};

TEST_P(EventStreamTest, EachEventHasAnIdOfItsOwn) {
  std::map<std::string, int> ids;
  for (const Event& event : EventsOf(Run("", 1))) {
    EXPECT_NE(event.id, "") << event.text;
    EXPECT_EQ(ids[event.id]++, 0) << event.text;
  }
  EXPECT_GT(ids.size(), 3u);
}

TEST_P(EventStreamTest, WithoutASignerTheEventsAreTheSameWithoutTheirIds) {
  for (uint32_t chance = 1; chance < 6; ++chance) {
    has_ids_ = true;
    std::string whole = Run("", chance);
    const std::vector<Event> events = EventsOf(whole);
    const std::string middle = events[events.size() / 2].id;
    std::string rest = Run(middle, chance);
    for (const Event& event : events) {
      for (std::string* const text : {&whole, &rest}) {
        absl::StrReplaceAll({{"\nid: " + event.id, ""}}, text);
      }
    }
    has_ids_ = false;
    EXPECT_EQ(Run("", chance), whole);
    EXPECT_EQ(Run(middle, chance), rest);
  }
}

TEST_P(EventStreamTest, TheSameDivisionGivesTheSameBytesBehindEachEvent) {
  for (uint32_t chance = 1; chance < 6; ++chance) {
    const std::string whole = Run("", chance);
    const std::vector<Event> events = EventsOf(whole);
    size_t at = 0;
    for (const Event& event : events) {
      at = whole.find("\n\n", whole.find("\nid: " + event.id, at)) + 2;
      EXPECT_EQ(Run(event.id, chance), whole.substr(at)) << event.text;
    }
  }
}

TEST_P(EventStreamTest, AnyDivisionSaysTheSameBehindEachEventAndEachEventOfThat) {
  for (uint32_t chance = 1; chance < 6; ++chance) {
    const std::vector<Event> whole = EventsOf(Run("", chance));
    const auto expected = Joined(whole);
    for (size_t i = 0; i < whole.size(); ++i) {
      std::vector<Event> events(whole.begin(), whole.begin() + i + 1);
      const std::vector<Event> rest = EventsOf(Run(whole[i].id, 100 * chance + i));
      std::vector<Event> all = events;
      all.insert(all.end(), rest.begin(), rest.end());
      ASSERT_EQ(Joined(all), expected) << chance << " cut behind " << whole[i].text;
      if (rest.empty()) continue;
      // Cut once more.
      const size_t again = (i * 7 + chance) % rest.size();
      events.insert(events.end(), rest.begin(), rest.begin() + again + 1);
      for (Event& event : EventsOf(Run(rest[again].id, 200 * chance + i))) {
        events.push_back(std::move(event));
      }
      ASSERT_EQ(Joined(events), expected) << chance << " cut again behind " << rest[again].text;
    }
  }
}

TEST_P(EventStreamTest, AnotherAnswerIsNeverSent) {
  const std::vector<Event> whole = EventsOf(Run("", 1));
  const std::string middle = whole[whole.size() / 2].id;
  const auto expect_refused = [&](const std::function<void(v1::GenerateResponse*)>& change) {
    absl::Status status;
    EXPECT_EQ(Run(middle, 2, &status, change), "");
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_EQ(protocol::ReasonOf(status), protocol::kReasonModelChanged);
  };
  expect_refused([](v1::GenerateResponse* response) {
    if (response->has_accepted()) response->mutable_accepted()->set_fingerprint("G");
  });
  expect_refused([](v1::GenerateResponse* response) {
    for (v1::Delta& delta : *response->mutable_deltas()) {
      for (uint32_t& id : *delta.mutable_token_ids()) id ^= 1;
    }
  });
  // One that ends before.
  expect_refused([](v1::GenerateResponse* response) { response->clear_deltas(); });
}

TEST_P(EventStreamTest, AnErrorWhileTheClientsPartIsMadeAgainRepeatsNothing) {
  const std::vector<Event> whole = EventsOf(Run("", 1));
  const auto number_of = [](const Event& event) {
    const EventJson json =
        EventJson::parse(event.text.substr(event.text.find("data: ") + 6), nullptr, false);
    return json.is_object() ? json.value("sequence_number", -1) : -1;
  };
  for (size_t cut = 0; cut + 1 < whole.size(); ++cut) {
    // An error at each point of the replay, and behind it.
    for (int num_responses = 0;; ++num_responses) {
      const Failed failed = Fail(whole[cut].id, 2, num_responses);
      std::vector<Event> had(whole.begin(), whole.begin() + static_cast<int>(cut) + 1);
      const std::vector<Event> more = EventsOf(failed.events);
      had.insert(had.end(), more.begin(), more.end());
      int next = 0;
      for (const Event& event : had) {
        if (number_of(event) >= 0) {
          EXPECT_EQ(number_of(event), next++);
        }
      }
      if (failed.was_replaying) {
        ASSERT_FALSE(more.empty());
        EXPECT_LE(more.size(), 2u) << failed.events;
        EXPECT_THAT(more[0].text, ::testing::HasSubstr("\"error\"")) << cut;
      }
      if (failed.is_whole) break;
    }
  }
}

TEST_P(EventStreamTest, AStreamWithoutAFingerprintSaysSo) {
  const auto change = [](v1::GenerateResponse* response) {
    if (response->has_accepted()) response->mutable_accepted()->clear_fingerprint();
  };
  for (const Event& event : EventsOf(Run("", 1, nullptr, change))) {
    EXPECT_FALSE(MakeSigner()->Read(event.id)->is_exact);
  }
  for (const Event& event : EventsOf(Run("", 1))) {
    EXPECT_TRUE(MakeSigner()->Read(event.id)->is_exact);
  }
}

TEST_P(EventStreamTest, TheLastEventIsKnownAsThat) {
  const std::vector<Event> whole = EventsOf(Run("", 3));
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(MakeSigner()->Read(whole[i].id)->is_last, i + 1 == whole.size());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Apis, EventStreamTest,
    ::testing::Values(std::pair(RouteId::kChat,
                                R"({"messages":[{"role":"user","content":"Hi"}],"stream":true,
                      "stream_options":{"include_usage":true}})"),
                      std::pair(RouteId::kChat,
                                R"({"messages":[{"role":"user","content":"Hi"}],"stream":true,"n":3,
                      "logprobs":true,"return_token_ids":true})"),
                      std::pair(RouteId::kCompletions, R"({"prompt":"Hi","stream":true})"),
                      std::pair(RouteId::kCompletions,
                                R"({"prompt":["Hi","Ho"],"stream":true,"n":2,"logprobs":1})"),
                      std::pair(RouteId::kCompletions,
                                R"({"prompt":"Hi","stream":true,"echo":true})"),
                      std::pair(RouteId::kGenerateStream, R"({"text_input":"Hi"})"),
                      std::pair(RouteId::kResponses, R"({"input":"Hi","stream":true})"),
                      std::pair(RouteId::kMessages,
                                R"({"max_tokens":50,"stream":true,"thinking":{"type":"adaptive"},
                      "messages":[{"role":"user","content":"Hi"}]})"),
                      std::pair(RouteId::kMessages,
                                R"({"max_tokens":50,"stream":true,
                      "messages":[{"role":"user","content":"Hi"}]})")));

}  // namespace
}  // namespace continuo::gateway::openai
