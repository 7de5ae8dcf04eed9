// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/base/check.h"

namespace continuo::gateway {

// A DNS server on a loopback port, over UDP and TCP. It answers every query for A with the
// addresses it was last given, and every other query with none. Over UDP an answer that is larger
// than the query allows is cut off. Thread-safe.
class DnsServer {
 public:
  explicit DnsServer(std::vector<std::string> addresses) : addresses_(std::move(addresses)) {
    stop_ = eventfd(0, 0);
    while (!Bind()) {
      close(socket_);
      close(tcp_);
    }
    CONTINUO_CHECK(listen(tcp_, 16) == 0);
    thread_ = std::thread([this] { Run(); });
  }
  ~DnsServer() {
    const uint64_t one = 1;
    CONTINUO_CHECK(write(stop_, &one, sizeof(one)) == sizeof(one));
    thread_.join();
    close(socket_);
    close(tcp_);
    close(stop_);
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  void Set(std::vector<std::string> addresses) {
    absl::MutexLock lock(&mutex_);
    addresses_ = std::move(addresses);
  }
  // Response codes: 0 answers, 2 is SERVFAIL, 3 is NXDOMAIN.
  void SetCode(uint8_t code) { SetCodes(code, code); }
  // Codes for queries for A, and for all others.
  void SetCodes(uint8_t a, uint8_t other) {
    absl::MutexLock lock(&mutex_);
    code_ = a;
    other_code_ = other;
  }
  // Loses every other query that is not for A, so that only its repetition is answered.
  void LoseOthersOnce() {
    absl::MutexLock lock(&mutex_);
    lose_others_once_ = true;
  }
  void SetTtl(uint32_t seconds) {
    absl::MutexLock lock(&mutex_);
    ttl_ = seconds;
  }
  int num_questions() const {
    absl::MutexLock lock(&mutex_);
    return num_questions_;
  }
  // Return how many answers were cut off over UDP, and how many queries came over TCP.
  int num_cut_off() const {
    absl::MutexLock lock(&mutex_);
    return num_cut_off_;
  }
  int num_over_tcp() const {
    absl::MutexLock lock(&mutex_);
    return num_over_tcp_;
  }
  // Returns false after a minute.
  bool WaitForQuestions(int number) const {
    absl::MutexLock lock(&mutex_);
    const auto asked = [&]()
                           ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return num_questions_ >= number; };
    return mutex_.AwaitWithTimeout(absl::Condition(&asked), absl::Minutes(1));
  }

 private:
  // Binds both sockets to one port that the system chooses for TCP; false where another socket has
  // it for UDP.
  bool Bind() {
    socket_ = socket(AF_INET, SOCK_DGRAM, 0);
    tcp_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CONTINUO_CHECK(bind(tcp_, reinterpret_cast<sockaddr*>(&at), sizeof(at)) == 0);
    socklen_t size = sizeof(at);
    getsockname(tcp_, reinterpret_cast<sockaddr*>(&at), &size);
    port_ = ntohs(at.sin_port);
    return bind(socket_, reinterpret_cast<sockaddr*>(&at), sizeof(at)) == 0;
  }
  void Run() {
    while (true) {
      pollfd fds[3] = {{socket_, POLLIN, 0}, {stop_, POLLIN, 0}, {tcp_, POLLIN, 0}};
      poll(fds, 3, -1);
      if (fds[1].revents != 0) return;
      if (fds[0].revents == 0) {
        if (fds[2].revents != 0) AnswerOverTcp();
        continue;
      }
      uint8_t packet[512];
      sockaddr_in from;
      socklen_t from_size = sizeof(from);
      const ssize_t size = recvfrom(socket_, packet, sizeof(packet), 0,
                                    reinterpret_cast<sockaddr*>(&from), &from_size);
      if (size < 17) continue;
      std::string answer = Answer(packet, static_cast<size_t>(size));
      if (answer.empty()) continue;
      // With EDNS the query ends with a record of 11 bytes that tells the size after its type.
      const bool has_edns = packet[11] == 1;
      const size_t most =
          has_edns ? static_cast<size_t>(packet[size - 8] << 8 | packet[size - 7]) : 512;
      if (answer.size() > most) {
        answer.resize(QuestionEnd(packet, static_cast<size_t>(size)));
        answer[2] |= 2;  // It was cut off.
        answer[7] = 0;
        absl::MutexLock lock(&mutex_);
        ++num_cut_off_;
      }
      sendto(socket_, answer.data(), answer.size(), 0, reinterpret_cast<sockaddr*>(&from),
             from_size);
    }
  }
  // Answers the queries of one connection until the client closes it.
  void AnswerOverTcp() {
    const int connection = accept(tcp_, nullptr, nullptr);
    CONTINUO_CHECK(connection >= 0);
    while (true) {
      uint8_t length[2], packet[512];
      if (recv(connection, length, 2, MSG_WAITALL) != 2) break;
      const auto size = static_cast<size_t>(length[0] << 8 | length[1]);
      CONTINUO_CHECK(size <= sizeof(packet));
      if (recv(connection, packet, size, MSG_WAITALL) != static_cast<ssize_t>(size)) break;
      const std::string answer = Answer(packet, size);
      {
        // The client may ask num_over_tcp() as soon as it has the answer.
        absl::MutexLock lock(&mutex_);
        ++num_over_tcp_;
      }
      const std::string framed = std::string{static_cast<char>(answer.size() >> 8),
                                             static_cast<char>(answer.size() & 255)} +
                                 answer;
      if (send(connection, framed.data(), framed.size(), MSG_NOSIGNAL) < 0) break;
    }
    close(connection);
  }
  // The end of the header and the question.
  static size_t QuestionEnd(const uint8_t* packet, size_t size) {
    size_t end = 12;
    while (end < size && packet[end] != 0) end += packet[end] + 1u;
    end += 5;
    CONTINUO_CHECK(end <= size);
    return end;
  }
  // The response: the header, the question as it came, and for each address a record whose name
  // points to the question. Empty where the query is lost.
  std::string Answer(const uint8_t* packet, size_t size) {
    const size_t end = QuestionEnd(packet, size);
    const bool wants_a = packet[end - 4] == 0 && packet[end - 3] == 1;
    absl::MutexLock lock(&mutex_);
    if (wants_a) ++num_questions_;
    if (!wants_a && lose_others_once_ && ++num_others_ % 2 == 1) return "";
    const bool answers = wants_a && code_ == 0;
    std::string out(reinterpret_cast<const char*>(packet), end);
    out[2] = static_cast<char>(0x84);  // An authoritative response.
    out[3] = static_cast<char>(wants_a ? code_ : other_code_);
    out[6] = 0;
    out[7] = static_cast<char>(answers ? addresses_.size() : 0);
    for (int i = 8; i < 12; ++i) out[i] = 0;
    if (!answers) return out;
    for (const std::string& address : addresses_) {
      out.append("\xc0\x0c\x00\x01\x00\x01", 6);
      const uint32_t ttl = htonl(ttl_);
      out.append(reinterpret_cast<const char*>(&ttl), 4);
      out.append("\x00\x04", 2);
      in_addr ip;
      CONTINUO_CHECK(inet_pton(AF_INET, address.c_str(), &ip) == 1);
      out.append(reinterpret_cast<const char*>(&ip), 4);
    }
    return out;
  }

  int socket_, tcp_, stop_, port_;
  std::thread thread_;
  mutable absl::Mutex mutex_;
  std::vector<std::string> addresses_ ABSL_GUARDED_BY(mutex_);
  uint8_t code_ ABSL_GUARDED_BY(mutex_) = 0, other_code_ ABSL_GUARDED_BY(mutex_) = 0;
  bool lose_others_once_ ABSL_GUARDED_BY(mutex_) = false;
  uint32_t ttl_ ABSL_GUARDED_BY(mutex_) = 1;
  int num_questions_ ABSL_GUARDED_BY(mutex_) = 0, num_others_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_cut_off_ ABSL_GUARDED_BY(mutex_) = 0, num_over_tcp_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace continuo::gateway
