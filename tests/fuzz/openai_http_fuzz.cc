// SPDX-License-Identifier: Apache-2.0
// Any bytes on an HTTP connection, in any pieces, with a client that leaves and a worker that fails
// at any time, get well-formed answers and leave nothing behind: no body's room, no connection, no
// request at a worker. A neighbour on a connection of its own, served by turns on the same thread,
// gets the same bytes each time.
//
// The first four bytes: how many bytes a read gets (0: all); flags (1: a key is needed, 2: the
// client leaves when it has sent everything, 4: Content-Length is put right, 8: limits are low);
// at which response the worker fails, and how; how many bytes of an answer the client takes (0:
// all).
#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"
#include "services/protocol/error.h"
#include "tests/fuzz/http_answer.h"
#include "tests/fuzz/inline_gateway.h"
#include "tests/fuzz/memory_stream.h"
#include "tests/gateway/openai/fake_api.h"

namespace continuo::gateway::openai {
namespace {

constexpr size_t kControlBytes = 4;
// The neighbour comes with one in this many inputs.
constexpr int kNeighbourEvery = 16;

absl::Status FailureOf(int kind) {
  switch (kind % 8) {
    case 0:
      return absl::InvalidArgumentError("stopping.max_tokens: too \"bad\"\n\xff");
    case 1:
      return absl::UnavailableError("the connection is reset");
    case 2:
      return protocol::WithReason(absl::UnavailableError("draining"), protocol::kReasonDraining);
    case 3:
      return absl::InternalError("something of the inside");
    case 4:
      return protocol::WithRetryInfo(absl::ResourceExhaustedError("full"), absl::Seconds(3));
    case 5:
      return absl::FailedPreconditionError("no");
    case 6:
      return absl::DeadlineExceededError("late");
    default:
      return absl::OkStatus();  // without an answer's end
  }
}

// One connection, from its first byte until nothing of it is left.
class Connection {
 public:
  Connection(boost::asio::io_context* context, HttpShared* shared, HttpHandler* handler) {
    auto stream = std::make_unique<MemoryStream>(context->get_executor(), &client_);
    stream_ = stream.get();
    auto connection = std::make_shared<HttpConnection>(std::move(stream), context->get_executor(),
                                                       shared, handler);
    weak_ = connection;
    boost::asio::co_spawn(*context, connection->Run(),
                          [this, connection](std::exception_ptr failure) {
                            CONTINUO_CHECK(failure == nullptr);
                            connection->Close();
                            done_ = true;
                          });
  }

  MemoryClient& client() { return client_; }
  void Notify() {
    if (!weak_.expired()) stream_->Notify();
  }
  bool done() const { return done_; }
  bool gone() const { return weak_.expired(); }

 private:
  MemoryClient client_;
  MemoryStream* stream_;
  std::weak_ptr<HttpConnection> weak_;
  bool done_ = false;
};

class Server {
 public:
  Server()
      : gateway_(&context_, &clock_),
        api_(FakeApi(&gateway_, &clock_)),
        neighbour_(&context_, &shared_, &api_) {
    expected_ = {AskNeighbour(0), AskNeighbour(1)};
    for (int i = 0; i < 2; ++i) CONTINUO_CHECK(AskNeighbour(i) == expected_[i]);
  }

  void Run(std::string_view input) {
    const auto control = [&](size_t i) { return static_cast<uint8_t>(input[i]); };
    const uint8_t flags = control(1);
    gateway_.SetScript({.fail_at = control(2) % 8 - 1,
                        .failure = FailureOf(control(2) / 8),
                        .key = (flags & 1) != 0 ? "sesame" : ""});
    shared_.limits = HttpLimits();
    if ((flags & 8) != 0) {
      shared_.limits.max_body_bytes = 128;
      shared_.limits.max_header_bytes = 256;
      shared_.limits.max_answer_bytes = 1000;
    }
    Connection hostile(&context_, &shared_, &api_);
    MemoryClient& client = hostile.client();
    if (control(0) > 0) client.piece_bytes = control(0);
    if (control(3) > 0) client.output_limit = size_t{16} * control(3);
    client.input = BytesOf(input.substr(kControlBytes), (flags & 4) != 0);
    const bool has_head = client.input.find("HEAD") != std::string::npos;
    client.ended = (flags & 2) != 0;
    const bool is_cut = client.ended || control(3) > 0;

    const bool asks = num_runs_++ % kNeighbourEvery == 0;
    const int question = static_cast<int>(num_runs_ / kNeighbourEvery % 2);
    if (asks) Ask(question);
    while (true) {
      context_.restart();
      if (context_.poll() > 0) continue;
      if (hostile.done() && hostile.gone()) break;
      // Everything waits: for time to pass, or else for the client.
      if (gateway_.timer().RunNext()) continue;
      CONTINUO_CHECK(!client.ended);  // a connection that never ends
      client.ended = true;
      hostile.Notify();
    }
    CheckAnswers(client.output, is_cut, has_head);
    while (gateway_.timer().RunNext()) context_.restart(), context_.poll();
    if (asks) CONTINUO_CHECK(TakeAnswer() == expected_[question]);
    CONTINUO_CHECK(shared_.bodies.used() == 0 && gateway_.num_in_flight() == 0);
    clock_.Advance(start_ - clock_.Elapsed());
  }

 private:
  static std::string BytesOf(std::string_view input, bool set_length) {
    const size_t end = input.find("\r\n\r\n");
    if (!set_length || end == std::string_view::npos) return std::string(input);
    return absl::StrCat(std::string(input.substr(0, end)),
                        "\r\nContent-Length: ", input.size() - end - 4,
                        std::string(input.substr(end)));
  }

  void Ask(int question) {
    const std::string body =
        question == 0
            ? R"({"messages":[{"role":"user","content":"Who?"}],"stream":true,"seed":3,"n":2,"max_tokens":4})"
            : R"({"prompt":["a","b"],"max_tokens":3,"logprobs":2,"seed":4})";
    neighbour_.client().input =
        absl::StrCat("POST /v1/", question == 0 ? "chat/completions" : "completions",
                     " HTTP/1.1\r\nHost: a\r\nx-request-id: n\r\n", InlineGateway::kNeighbour,
                     ": 1\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
    neighbour_.Notify();
  }
  std::string TakeAnswer() { return Normalized(std::exchange(neighbour_.client().output, "")); }
  std::string AskNeighbour(int question) {
    Ask(question);
    do context_.restart();
    while (context_.poll() > 0);
    return TakeAnswer();
  }

  boost::asio::io_context context_{1};
  ManualClock clock_;
  const absl::Duration start_ = clock_.Elapsed();
  HttpShared shared_;
  InlineGateway gateway_;
  Api api_;
  Connection neighbour_;
  std::vector<std::string> expected_;
  int64_t num_runs_ = 0;
};

}  // namespace
}  // namespace continuo::gateway::openai

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using continuo::gateway::openai::kControlBytes;
  if (size < kControlBytes) return 0;
  // It is never destroyed, since its neighbour's connection stays open.
  static auto* const kServer = new continuo::gateway::openai::Server;
  kServer->Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
