// SPDX-License-Identifier: Apache-2.0
#include "services/worker/hub/download.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "services/worker/hub/curl_library.h"
#include "tests/testing/temp_folder.h"

namespace continuo::hub {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A server that answers each connection with what a function says, and closes it.
class CuttingServer {
 public:
  // Returns the bytes of an answer, by the connection's number and the first byte that it asks for.
  using Answer = std::function<std::string(int connection, size_t first)>;

  explicit CuttingServer(Answer answer) : answer_(std::move(answer)) {
    sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_, any, size), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    EXPECT_EQ(getsockname(listener_, any, &size), 0);
    endpoint_ = absl::StrCat("http://127.0.0.1:", ntohs(address.sin_port));
    thread_ = std::thread([this] { Serve(); });
  }
  ~CuttingServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }

  const std::string& endpoint() const { return endpoint_; }
  int connections() const { return connections_; }

 private:
  void Serve() {
    for (int fd = accept(listener_, nullptr, nullptr); fd >= 0;
         fd = accept(listener_, nullptr, nullptr)) {
      std::string request;
      char bytes[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t count = read(fd, bytes, sizeof(bytes));
        if (count <= 0) break;
        request.append(bytes, static_cast<size_t>(count));
      }
      constexpr std::string_view kRange = "bytes=";
      const size_t range = request.find(kRange);
      const size_t first = range == std::string::npos
                               ? 0
                               : std::strtoull(&request[range + kRange.size()], nullptr, 10);
      const std::string answer = answer_(connections_++, first);
      EXPECT_EQ(send(fd, answer.data(), answer.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(answer.size()));
      close(fd);
    }
  }

  const Answer answer_;
  const int listener_ = socket(AF_INET, SOCK_STREAM, 0);
  std::string endpoint_;
  std::atomic<int> connections_ = 0;
  std::thread thread_;
};

class DownloadTest : public ::testing::Test {
 protected:
  DownloadTest() {
    for (int i = 0; i < 1000; ++i) content_.push_back(static_cast<char>(i * 7 % 251));
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_Digest(content_.data(), content_.size(), digest, &size, EVP_sha256(), nullptr);
    file_ = {.path = "model.safetensors",
             .size = static_cast<int64_t>(content_.size()),
             .digest = absl::BytesToHexString({reinterpret_cast<const char*>(digest), size}),
             .is_sha256 = true};
    retry_.wait = [this](absl::Duration wait) { waits_.push_back(wait / retry_.first_wait); };
  }
  void SetUp() override {
    ASSERT_TRUE(OpenCurl().ok()) << OpenCurl().status();
    setenv("no_proxy", "127.0.0.1", 1);
    ASSERT_TRUE(cache_.MakeFolders().ok());
  }

  // An answer that ends after `count` bytes, from `first` on where the hub knows ranges.
  std::string Ranged(size_t first, size_t count) const {
    const std::string head =
        first == 0 ? "HTTP/1.1 200 OK\r\n"
                   : absl::StrCat("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes ", first,
                                  "-999/1000\r\n");
    return absl::StrCat(head, "Content-Length: ", 1000 - first, "\r\n\r\n",
                        content_.substr(first, count));
  }
  absl::Status Fetch(const CuttingServer& server) {
    waits_.clear();
    return Download({.endpoint = server.endpoint()}, {.repository = "org/name"}, cache_,
                    std::string(40, 'a'), file_, retry_, [](int64_t) {});
  }
  std::string Blob() const {
    std::ifstream in(cache_.BlobPath(file_.digest), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  const testing::TempFolder folder_;
  const HubCache cache_{folder_.path().string(), "org/name"};
  std::string content_;
  HubFile file_;
  RetryOptions retry_;
  std::vector<double> waits_;  // in first_wait
};

TEST_F(DownloadTest, ABrokenConnectionGoesOnAfterAWait) {
  const CuttingServer server([this](int, size_t first) { return Ranged(first, 300); });
  const absl::Status status = Fetch(server);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(Blob(), content_);
  EXPECT_EQ(server.connections(), 4);
  EXPECT_THAT(waits_, ElementsAre(1, 1, 1));
}

TEST_F(DownloadTest, PlacesThatTakeTurnsAreNoProgress) {
  const CuttingServer server(
      [this](int connection, size_t) { return Ranged(0, connection % 2 == 0 ? 60 : 40); });
  EXPECT_EQ(Fetch(server).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(server.connections(), 1 + retry_.max_failures);
  EXPECT_THAT(waits_, ElementsAre(1, 1, 2, 4, 8, 16));
}

TEST_F(DownloadTest, BytesThatComeAgainAreBounded) {
  const CuttingServer server(
      [this](int connection, size_t) { return Ranged(0, 600 + static_cast<size_t>(connection)); });
  const absl::Status status = Fetch(server);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("7 connections brought 4221 bytes"));
  EXPECT_EQ(server.connections(), 7);
}

TEST_F(DownloadTest, ConnectionsAreBounded) {
  const CuttingServer server([this](int, size_t first) { return Ranged(first, 1); });
  retry_.max_attempts = 20;
  const absl::Status status = Fetch(server);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("20 connections brought 20 bytes"));
  EXPECT_THAT(waits_, Each(1));
  // A new start goes on with what is there.
  retry_.max_attempts = 10000;
  EXPECT_TRUE(Fetch(server).ok());
  EXPECT_EQ(Blob(), content_);
  EXPECT_EQ(server.connections(), 1000);
}

}  // namespace
}  // namespace continuo::hub
