// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace continuo::hub {

// One GET, redirects included.
struct HttpRequest {
  std::string url;
  std::string token;       // sent as a bearer's to the origin of `url` alone; empty: none
  std::string ca_file;     // PEM of the authorities that are believed; empty: the system's
  int64_t first_byte = 0;  // of a range that goes to the end; 0: the whole body
  int64_t max_bytes = 0;   // of the body; more ends the transfer
};

struct HttpAnswer {
  int code = 0;
  // The headers of the last answer, with names in lower case; at most 64 KiB together.
  std::map<std::string, std::string> headers;
  // OK where the body was whole. Unavailable for what the network did; otherwise what the caller's
  // function said.
  absl::Status body;
};

// The bounds of a transfer.
struct HttpLimits {
  int max_redirects = 8;
  absl::Duration connect = absl::Seconds(20);
  // A transfer of less than a byte a second for so long is ended.
  absl::Duration silence = absl::Seconds(60);
};

// Fetches `request`. `on_head` is called once, before the body of a 2xx answer, with the answer so
// far; `on_body` gets the body of such an answer, in pieces. An error of either ends the transfer.
// Proxies are those of the environment (https_proxy, no_proxy). The scheme is http or https, and an
// https address does not redirect to http. An error status is Unavailable, naming the host and the
// cause, where no answer came at all. Blocks; thread-safe.
absl::StatusOr<HttpAnswer> Fetch(const HttpRequest& request, const HttpLimits& limits,
                                 const std::function<absl::Status(const HttpAnswer&)>& on_head,
                                 const std::function<absl::Status(std::string_view)>& on_body);

}  // namespace continuo::hub
