// SPDX-License-Identifier: Apache-2.0
// A server's keepalive, and clients that speak HTTP/2 frames by hand.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "services/common/grpc/grpc_server.h"
#include "tests/common/grpc/endless_generate.h"

namespace continuo::common {
namespace {

// Generate goes on until it is cancelled.
class EndlessService : public v1::InferenceService::CallbackService {
 public:
  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext*,
                                                           const v1::GenerateRequest*) override {
    return new EndlessGenerate;
  }
};

// Types and flags of frames (RFC 9113, section 6).
constexpr char kData = 0, kHeaders = 1, kSettings = 4, kPing = 6, kGoAway = 7;
constexpr char kEndStream = 1, kAck = 1, kEndHeaders = 4;

struct Frame {
  char type = 0, flags = 0;
  bool is_end = false;  // the connection ended instead
};

// A client that does only what it is told to.
class FrameClient {
 public:
  explicit FrameClient(const std::string& address) {
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
    file_ = ::socket(AF_INET, SOCK_STREAM, 0);
    const timeval minute = {.tv_sec = 60};
    ::setsockopt(file_, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof(minute));
    sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(file_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    Write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    Send(kSettings, 0, 0, "");
  }
  ~FrameClient() { ::close(file_); }
  FrameClient(const FrameClient&) = delete;
  FrameClient& operator=(const FrameClient&) = delete;

  void Send(char type, char flags, char stream, std::string_view payload) {
    std::string frame = {'\0', '\0',  static_cast<char>(payload.size()), type, flags, '\0', '\0',
                         '\0', stream};
    Write(frame.append(payload));
  }
  void Ping() { Send(kPing, 0, 0, "12345678"); }
  void CallGenerate() {
    // HPACK (RFC 7541) by the static table, without Huffman codes.
    const auto text = [](std::string_view value) {
      return static_cast<char>(value.size()) + std::string(value);
    };
    Send(kHeaders, kEndHeaders, 1,
         absl::StrCat("\x83\x86\x04", text("/continuo.v1.InferenceService/Generate"), "\x01",
                      text("test"), "\x0f\x10", text("application/grpc"), std::string(1, '\0'),
                      text("te"), text("trailers")));
    Send(kData, kEndStream, 1, std::string(5, '\0'));
  }

  Frame Read() {
    const std::string head = ReadBytes(9);
    if (head.size() < 9) return {.is_end = true};
    const auto byte = [&head](size_t i) { return static_cast<unsigned char>(head[i]); };
    const size_t size = (size_t{byte(0)} << 16) | (size_t{byte(1)} << 8) | byte(2);
    ReadBytes(size);
    return {.type = head[3], .flags = head[4]};
  }

 private:
  void Write(std::string_view bytes) {
    EXPECT_EQ(::send(file_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  std::string ReadBytes(size_t size) {
    std::string bytes(size, '\0');
    size_t at = 0;
    while (at < size) {
      const ssize_t got = ::recv(file_, bytes.data() + at, size - at, 0);
      EXPECT_FALSE(got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) << "nothing for a minute";
      if (got <= 0) break;
      at += static_cast<size_t>(got);
    }
    bytes.resize(at);
    return bytes;
  }

  int file_ = -1;
};

class GrpcKeepaliveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = GrpcServer::Start({.listen = "127.0.0.1:0",
                                     .keepalive_time = absl::Milliseconds(200),
                                     .keepalive_timeout = absl::Milliseconds(200)},
                                    {&service_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  EndlessService service_;
  std::unique_ptr<GrpcServer> server_;
};

// A client that does not read while it has no call, as grpcio's are, keeps its connection.
TEST_F(GrpcKeepaliveTest, OnlyConnectionsWithCallsArePinged) {
  FrameClient idle(server_->address());
  EXPECT_EQ(idle.Read().type, kSettings);  // The server has it, before the other one comes.
  FrameClient busy(server_->address());
  busy.CallGenerate();
  bool is_pinged = false;
  for (Frame frame = busy.Read(); !frame.is_end; frame = busy.Read()) {
    is_pinged |= frame.type == kPing && frame.flags != kAck;
  }
  EXPECT_TRUE(is_pinged) << "a client that is gone would keep its call";
  idle.Ping();
  for (Frame frame = idle.Read(); frame.type != kPing || frame.flags != kAck; frame = idle.Read()) {
    ASSERT_FALSE(frame.is_end);
    ASSERT_NE(frame.type, kGoAway);
    ASSERT_NE(frame.type, kPing) << "not answered, so the connection would be closed";
  }
}

TEST_F(GrpcKeepaliveTest, ClientsMayPingAsTheyLike) {
  FrameClient client(server_->address());
  for (int i = 0; i < 500; ++i) {
    client.Ping();
    for (Frame frame = client.Read(); frame.type != kPing; frame = client.Read()) {
      ASSERT_FALSE(frame.is_end);
      ASSERT_NE(frame.type, kGoAway);
    }
  }
}

}  // namespace
}  // namespace continuo::common
