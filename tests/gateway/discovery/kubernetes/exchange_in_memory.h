// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/beast/_experimental/test/stream.hpp>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "services/base/check.h"
#include "services/gateway/discovery/kubernetes/api_exchange.h"

namespace continuo::gateway {

// The result of an Exchange whose server answers `answer`, in reads of `piece_bytes` at most, and
// then closes the connection.
inline absl::Status ExchangeInMemory(std::string_view answer, size_t piece_bytes,
                                     const std::function<absl::Status(std::string_view)>& on_body) {
  boost::asio::io_context context;
  boost::beast::test::stream client(context), server(context);
  client.connect(server);
  client.read_size(piece_bytes);
  client.append(boost::beast::string_view(answer.data(), answer.size()));
  server.close();
  const ApiRequest request(boost::beast::http::verb::get, "/a", 11);
  std::optional<absl::Status> result;
  boost::asio::co_spawn(context,
                        Exchange(
                            client, request, [] {}, on_body),
                        [&result](std::exception_ptr failure, absl::Status status) {
                          CONTINUO_CHECK(failure == nullptr);
                          result = std::move(status);
                        });
  context.run();
  CONTINUO_CHECK(result.has_value());
  return *result;
}

}  // namespace continuo::gateway
