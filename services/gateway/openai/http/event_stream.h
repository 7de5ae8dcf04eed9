// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/awaitable.hpp>

#include "services/gateway/openai/http/http_connection.h"

namespace continuo::gateway::openai {

// Sends the header of a stream of server-sent events. Its comments are ": keep-alive". Where events
// have ids no blank line follows a comment: to OpenAI's SDK for Python, which keeps the last id, it
// would end another event, one without data. Readers that cut a stream at blank lines, which know
// no ids, need it.
boost::asio::awaitable<void> BeginEvents(HttpConnection& connection, HttpHeaders headers,
                                         bool has_ids);

}  // namespace continuo::gateway::openai
