// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <string>
#include <utility>
#include <vector>

namespace continuo::gateway::openai {

using HttpRequest = boost::beast::http::request<boost::beast::http::string_body>;
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpResponse {
  int status = 200;
  // Without one the response has no content.
  std::string content_type = "application/json";
  HttpHeaders headers;
  std::string body;
  std::vector<std::string> more;  // further parts of the body; each is freed when it is sent
};

}  // namespace continuo::gateway::openai
