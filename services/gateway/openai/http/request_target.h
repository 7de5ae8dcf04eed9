// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reads what a request asks for and checks what HTTP/1.1 demands of its header. Pure functions.

#include <optional>
#include <string>
#include <string_view>

#include "services/gateway/openai/http/http_message.h"

namespace continuo::gateway::openai {

// An error of HTTP itself.
struct HttpProblem {
  int status = 400;
  std::string message;
};

// Checks what the parser leaves to its user: framing, the Host field, the form of the target (RFC
// 9112, sections 3.2 and 6). Returns nothing if the header is in order. After an error of framing
// the place where the next request begins is unknown.
std::optional<HttpProblem> CheckHeader(const HttpRequest& header);

// The path of a request whose header is in order, in the one form that handlers compare: without
// scheme, host and query, with its %-codes decoded, its segments "." and ".." resolved (RFC 3986,
// section 5.2.4), without doubled slashes and without one at the end. "*" for the whole server,
// which only OPTIONS may ask for.
std::string PathOf(std::string_view target);

// Returns what follows the ? of a target, as it is written; empty where there is none.
std::string_view QueryOf(std::string_view target);

// The value of the first `name=value` of a query, decoded as forms are: + is a space. Nothing where
// the query does not have the name.
std::optional<std::string> QueryValue(std::string_view query, std::string_view name);

// Decodes %2F and the like; anything that is no such code stays.
std::string DecodePercent(std::string_view text);

// Joins runs of slashes to one, and drops one at the end of a longer path.
std::string NormalPath(std::string_view path);

// True if `text` is the value of a Host field: a name or an address, perhaps with a port.
bool IsHost(std::string_view text);

// True if the line is a request line of another version of HTTP than 1.0 and 1.1.
bool IsOtherVersion(std::string_view line);

}  // namespace continuo::gateway::openai
