// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/discovery/kubernetes_resolver.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/common/log.h"
#include "services/gateway/discovery/kubernetes/watch_body.h"

namespace continuo::gateway {
namespace {

namespace asio = boost::asio;

constexpr size_t kMaxPageBytes = size_t{64} << 20;
constexpr int kPageSlices = 100;
// The server ends a watch after this; a connection that is dead without a word is found by it.
constexpr int kWatchSeconds = 240;
constexpr absl::Duration kListQuiet = absl::Seconds(30);
constexpr absl::Duration kWatchQuiet = absl::Seconds(kWatchSeconds + 30);
constexpr absl::Duration kLongestPause = absl::Seconds(30);

// Percent-encodes what a query may not hold as it is.
std::string Encoded(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_') {
      encoded += c;
    } else {
      absl::StrAppendFormat(&encoded, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

}  // namespace

KubernetesResolver::KubernetesResolver(KubernetesTarget target, const ResolverOptions& options)
    : target_(std::move(target)),
      options_(options),
      path_(absl::StrCat("/apis/discovery.k8s.io/v1/namespaces/", target_.name_space,
                         "/endpointslices?labelSelector=",
                         Encoded(absl::StrCat("kubernetes.io/service-name=", target_.service)))),
      slices_(target_.port) {}

KubernetesResolver::~KubernetesResolver() { Stop(); }

void KubernetesResolver::Start(OnAddresses on_addresses) {
  on_addresses_ = std::move(on_addresses);
  asio::co_spawn(context_, Run(), asio::detached);
  thread_ = std::thread([this] { context_.run(); });
}

void KubernetesResolver::Stop() {
  context_.stop();
  if (thread_.joinable()) thread_.join();
}

void KubernetesResolver::Refresh() {
  // A watch tells what changes without being asked; only a pause after a failure is cut short.
  asio::post(context_, [this] {
    const auto soonest =
        std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(options_.refresh_interval);
    if (retry_.expiry() > soonest) retry_.cancel();
  });
}

void KubernetesResolver::Report() {
  std::vector<std::string> addresses = slices_.Addresses();
  if (addresses == reported_) return;
  reported_ = addresses;
  on_addresses_(std::move(addresses));
}

asio::awaitable<absl::Status> KubernetesResolver::List() {
  std::string next, version;
  do {
    std::string target = absl::StrCat(path_, "&limit=", kPageSlices);
    if (!next.empty()) absl::StrAppend(&target, "&continue=", Encoded(next));
    std::string text;
    const std::function<absl::Status(std::string_view)> on_body = [&text](std::string_view part) {
      if (part.size() > kMaxPageBytes - text.size()) {
        return absl::UnavailableError("the list of EndpointSlices is too large");
      }
      text.append(part);
      return absl::OkStatus();
    };
    const absl::Status answered = co_await GetStream(target_.server, target, kListQuiet, on_body);
    if (!answered.ok()) co_return answered;
    const absl::StatusOr<EndpointSlices::Page> page = slices_.TakePage(text, next.empty());
    if (!page.ok()) co_return page.status();
    next = page->next;
    version = page->resource_version;
  } while (!next.empty());
  version_ = version;
  Report();
  co_return absl::OkStatus();
}

asio::awaitable<absl::Status> KubernetesResolver::Watch() {
  const std::string target =
      absl::StrCat(path_, "&watch=1&allowWatchBookmarks=true&timeoutSeconds=", kWatchSeconds,
                   "&resourceVersion=", Encoded(version_));
  WatchBody body(&slices_);
  const std::function<absl::Status(std::string_view)> on_body = [this,
                                                                 &body](std::string_view part) {
    heard_ = true;
    absl::Status taken = body.Take(part);
    if (!body.version().empty()) version_ = body.version();
    if (taken.ok()) Report();
    return taken;
  };
  co_return co_await GetStream(target_.server, target, kWatchQuiet, on_body);
}

asio::awaitable<void> KubernetesResolver::Run() {
  bool logged_failure = false;
  absl::Duration pause = options_.min_interval;
  for (;;) {
    absl::Status status;
    heard_ = false;
    if (version_.empty()) status = co_await List();
    if (status.ok()) {
      if (std::exchange(logged_failure, false)) {
        common::Log(common::LogSeverity::kInfo, "the API server answers again",
                    {{"service", target_.service}});
      }
      status = co_await Watch();
      if (heard_) pause = options_.min_interval;
    }
    // A watch that goes on where it ended misses nothing, unless the server has forgotten the
    // place, or what came cannot be read.
    if (!status.ok() && !absl::IsUnavailable(status)) version_.clear();
    // That a watch ends or is too old is usual.
    const bool usual =
        status.ok() || absl::IsOutOfRange(status) || (heard_ && absl::IsUnavailable(status));
    if (!usual && !std::exchange(logged_failure, true)) {
      common::Log(common::LogSeverity::kWarning,
                  "the API server does not tell EndpointSlices; the workers known stay",
                  {{"namespace", target_.name_space},
                   {"service", target_.service},
                   {"error", std::string(status.message())}});
    }
    boost::system::error_code cancelled;
    retry_.expires_after(absl::ToChronoNanoseconds(pause));
    co_await retry_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace continuo::gateway
