// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/awaitable.hpp>

#include "services/gateway/openai/http/http_connection.h"

namespace continuo::gateway::openai {

// Sends the header of a stream of server-sent events. Its comments are ": keep-alive".
boost::asio::awaitable<void> BeginEvents(HttpConnection& connection, HttpHeaders headers);

}  // namespace continuo::gateway::openai
