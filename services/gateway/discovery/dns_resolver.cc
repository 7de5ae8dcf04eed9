// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/discovery/dns_resolver.h"

#include <ares.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"
#include "services/base/clock.h"
#include "services/base/sorted_distinct.h"
#include "services/common/log.h"

namespace continuo::gateway {
namespace {

// The size of a UDP answer that is not fragmented on any usual path.
constexpr int kDatagramBytes = 1232;
// Addresses that fit into it, at 16 bytes each, with room for the name.
constexpr size_t kMostInDatagram = 60;

}  // namespace

// One query for the addresses of one family, and its answer. c-ares can query both families at
// once, but then reports only the status of the last one: a failure and an empty answer become an
// empty answer.
struct DnsResolver::Query {
  bool done = false;
  int status = ARES_SUCCESS;
  absl::Duration ttl = absl::InfiniteDuration();
  std::vector<std::string> addresses;

  // The server said that there are no addresses.
  bool is_empty() const { return status == ARES_ENOTFOUND || status == ARES_ENODATA; }

  void Ask(ares_channel channel, const std::string& name, int family) {
    ares_addrinfo_hints hints = {};
    hints.ai_family = family;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = ARES_AI_NOSORT;
    ares_getaddrinfo(channel, name.c_str(), nullptr, &hints, &OnAnswer, this);
  }

  static void OnAnswer(void* arg, int status, int /*timeouts*/, ares_addrinfo* info) {
    auto& query = *static_cast<Query*>(arg);
    query.done = true;
    query.status = status;
    if (info == nullptr) return;
    for (const ares_addrinfo_node* node = info->nodes; node != nullptr; node = node->ai_next) {
      std::array<char, INET6_ADDRSTRLEN> text = {};
      if (node->ai_family == AF_INET) {
        const auto* address = reinterpret_cast<const sockaddr_in*>(node->ai_addr);
        inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
        query.addresses.emplace_back(text.data());
      } else if (node->ai_family == AF_INET6) {
        const auto* address = reinterpret_cast<const sockaddr_in6*>(node->ai_addr);
        inet_ntop(AF_INET6, &address->sin6_addr, text.data(), text.size());
        query.addresses.push_back(absl::StrCat("[", text.data(), "]"));
      }
      query.ttl = std::min(query.ttl, absl::Seconds(node->ai_ttl));
    }
    ares_freeaddrinfo(info);
  }
};

DnsResolver::DnsResolver(std::string server, std::string name, int port,
                         const ResolverOptions& options)
    : server_(std::move(server)), name_(std::move(name)), port_(port), options_(options) {
  CONTINUO_CHECK(pipe2(wake_fds_, O_NONBLOCK | O_CLOEXEC) == 0);
}

void DnsResolver::Stop() {
  Wake('s');
  if (thread_.joinable()) thread_.join();
}

DnsResolver::~DnsResolver() {
  Stop();
  close(wake_fds_[0]);
  close(wake_fds_[1]);
}

void DnsResolver::Start(OnAddresses on_addresses) {
  on_addresses_ = std::move(on_addresses);
  thread_ = std::thread([this] { Run(); });
}

void DnsResolver::Refresh() { Wake('r'); }

void DnsResolver::Wake(char reason) {
  // A full pipe has woken the thread already.
  [[maybe_unused]] const ssize_t written = write(wake_fds_[1], &reason, 1);
}

void DnsResolver::Wait(void* channel, absl::Duration timeout) {
  std::array<pollfd, ARES_GETSOCK_MAXNUM + 1> fds;
  size_t num_fds = 0;
  fds[num_fds++] = {.fd = wake_fds_[0], .events = POLLIN, .revents = 0};
  auto* const ares = static_cast<ares_channel>(channel);
  std::array<ares_socket_t, ARES_GETSOCK_MAXNUM> sockets;
  const int bits = ares == nullptr ? 0 : ares_getsock(ares, sockets.data(), sockets.size());
  for (int i = 0; i < ARES_GETSOCK_MAXNUM; ++i) {
    short events = 0;
    if (ARES_GETSOCK_READABLE(bits, i)) events |= POLLIN;
    if (ARES_GETSOCK_WRITABLE(bits, i)) events |= POLLOUT;
    if (events != 0) fds[num_fds++] = {.fd = sockets[i], .events = events, .revents = 0};
  }
  if (ares != nullptr) {
    timeval limit = absl::ToTimeval(timeout), at_most;
    timeout = absl::DurationFromTimeval(*ares_timeout(ares, &limit, &at_most));
  }
  const auto millis = absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1)));
  poll(fds.data(), num_fds, static_cast<int>(millis));
  char reason;
  while (read(wake_fds_[0], &reason, 1) == 1) (reason == 's' ? stopped_ : refresh_) = true;
  if (ares == nullptr) return;
  bool any = false;
  for (size_t i = 1; i < num_fds; ++i) {
    const bool readable = (fds[i].revents & (POLLIN | POLLERR | POLLHUP)) != 0;
    const bool writable = (fds[i].revents & POLLOUT) != 0;
    if (!readable && !writable) continue;
    any = true;
    ares_process_fd(ares, readable ? fds[i].fd : ARES_SOCKET_BAD,
                    writable ? fds[i].fd : ARES_SOCKET_BAD);
  }
  if (!any) ares_process_fd(ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);  // Processes timeouts.
}

void DnsResolver::Run() {
  std::optional<std::vector<std::string>> last;
  size_t num_addresses = 0;  // In the last answer.
  bool logged_failure = false;
  const SystemClock clock;
  while (!stopped_) {
    // Each query has a new channel: c-ares reads resolv.conf when it makes one, so a changed file
    // is followed, and a server that failed once is tried again.
    ares_options ares_options = {};
    ares_options.timeout = static_cast<int>(absl::ToInt64Milliseconds(options_.query_timeout));
    ares_options.tries = 2;
    // EDNS allows answers of more than 512 bytes. An answer that does not fit comes over TCP, which
    // is asked at once where the last one was as large.
    ares_options.flags = ARES_FLAG_EDNS | (num_addresses > kMostInDatagram ? ARES_FLAG_USEVC : 0);
    ares_options.ednspsz = kDatagramBytes;
    ares_channel channel = nullptr;
    Query v4, v6;
    int status =
        ares_init_options(&channel, &ares_options,
                          ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_FLAGS | ARES_OPT_EDNSPSZ);
    if (status == ARES_SUCCESS && !server_.empty()) {
      status = ares_set_servers_ports_csv(channel, server_.c_str());
    }
    const absl::Duration query_time = clock.Elapsed();
    refresh_ = false;
    if (status == ARES_SUCCESS) {
      v4.Ask(channel, name_, AF_INET);
      v6.Ask(channel, name_, AF_INET6);
      while (!(v4.done && v6.done) && !stopped_) Wait(channel, options_.query_timeout);
    }
    if (channel != nullptr) ares_destroy(channel);  // Ends open queries with errors.
    if (stopped_) break;
    // IPv6 addresses count only where there are none of IPv4.
    Query& answer = v4.is_empty() ? v6 : v4;
    if (status == ARES_SUCCESS) status = answer.status;

    absl::Duration interval = options_.min_interval;
    if (status == ARES_SUCCESS || answer.is_empty()) {
      std::vector<std::string> addresses = std::move(answer.addresses);
      num_addresses = addresses.size();
      for (std::string& address : addresses) absl::StrAppend(&address, ":", port_);
      addresses = SortedDistinct(std::move(addresses));
      if (!addresses.empty()) {
        interval = std::clamp(answer.ttl, options_.min_interval, options_.max_interval);
      }
      logged_failure = false;
      if (addresses != last) {
        last = addresses;
        on_addresses_(std::move(addresses));
      }
    } else if (!std::exchange(logged_failure, true)) {
      common::Log(common::LogSeverity::kWarning, "DNS does not answer; the workers known stay",
                  {{"name", name_}, {"error", ares_strerror(status)}});
    }

    while (!stopped_) {
      const absl::Duration wait =
          query_time + (refresh_ ? options_.refresh_interval : interval) - clock.Elapsed();
      if (wait <= absl::ZeroDuration()) break;
      Wait(nullptr, wait);
    }
  }
}

}  // namespace continuo::gateway
