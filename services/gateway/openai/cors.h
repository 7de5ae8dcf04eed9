// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gateway/openai/http/http_message.h"

namespace continuo::gateway::openai {

// Says which pages of other origins may read answers in a browser (Fetch standard, "CORS
// protocol"). Other requests are served as well, unless a browser may have sent them for a page
// without asking (Api::Reject): nobody else looks at the headers. A value; none is allowed by
// default.
class CorsPolicy {
 public:
  // `text` is "", "*" or a list "https://a.example,http://localhost:3000". INVALID_ARGUMENT names
  // what is no origin.
  static absl::StatusOr<CorsPolicy> Parse(std::string_view text);

  // Adds what every answer needs to a request with this Origin, "" for none.
  void AddTo(std::string_view origin, HttpHeaders* headers) const;
  // Adds the answer to a preflight, besides AddTo: `allow` are the methods of the path,
  // `requested_headers` the value of Access-Control-Request-Headers.
  void AddPreflight(std::string_view origin, std::string_view allow,
                    std::string_view requested_headers, HttpHeaders* headers) const;

  bool Allows(std::string_view origin) const;

 private:
  bool any_ = false;
  std::vector<std::string> origins_;  // in lower case
};

}  // namespace continuo::gateway::openai
